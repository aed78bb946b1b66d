import { mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { digestOf } from '../../protocol/hash.ts';
import type { ImageApproval, ImagePlan, ImageRecord, ImageStepResult } from '../../protocol/images.ts';
import type { Sha256, WallTime } from '../../protocol/primitives.ts';
import { cancelled } from '../dependencies/package-client.ts';
import type { Logger } from '../log.ts';
import type { ContainerEngine } from '../sandbox/engine.ts';
import { EngineFault } from '../sandbox/engine-fault.ts';
import type { PreparedImage } from '../sandbox/image-preparation.ts';
import { labelKeys, productLabel } from '../sandbox/labels.ts';
import type { ImageIdentity } from '../sandbox/port.ts';
import { coded } from '../sandbox/service.ts';
import type { Json, NewEvent, Store, ViewRow } from '../store/port.ts';
import { planImage, type ImageTarget, type PlanSources } from './image-plan.ts';
import { Preparation, type Progress } from './preparation.ts';

export interface ImageDeskDeps extends Omit<PlanSources, 'engine'> {
  readonly engine: ContainerEngine | EngineFault;
  readonly store: Store;
  readonly log: Logger;
  readonly now: () => WallTime;
}

export interface Yes {
  readonly by: string;
  readonly channel: ImageApproval['channel'];
  readonly standing: boolean;
}

/**
 * Images from plan to record: what would be done is shown, a person's yes is bound to exactly that and recorded, then it
 * is done and measured. Owner of the temporary folder of a preparation, which is gone when it ends.
 */
export class ImageDesk {
  readonly #deps: ImageDeskDeps;
  /** One preparation at a time: two would fetch the same packages twice. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(deps: ImageDeskDeps) {
    this.#deps = deps;
  }

  /** What preparing would do; touches nothing. Throws EscrowError ImageUnavailable, DependenciesUnusable, EngineUnavailable. */
  async plan(target: ImageTarget): Promise<ImagePlan> {
    const { plan } = await coded(() => planImage(target, this.#sources()));
    return this.#withMemory(plan);
  }

  /**
   * Does what a plan says. `yes` null relies on a standing approval of exactly this plan. Throws EscrowError ImageChanged
   * (it is another plan by now), ImageNotApproved, PreparationFailed, Cancelled, and what `plan` throws. After a fault or
   * an abort nothing that was begun is left, apart from a base that was pulled whole.
   */
  async prepare(
    target: ImageTarget,
    wanted: Sha256,
    yes: Yes | null,
    signal: AbortSignal,
    progress: Progress,
  ): Promise<{ readonly plan: ImagePlan; readonly record: ImageRecord | null }> {
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    try {
      progress('waiting', '', null);
      await before;
      return await coded(() => this.#prepare(target, wanted, yes, signal, progress));
    } finally {
      resolve();
    }
  }

  /** Records a person's no; a standing yes for this plan is taken back. */
  decline(plan: Sha256, by: string, channel: ImageApproval['channel']): void {
    const at = this.#deps.now();
    const row: ViewRow = { kind: 'image-approval', key: plan, root: '', createdAt: at, updatedAt: at, json: null };
    this.#append(planStream(plan), [{ type: 'image.declined', data: { by, channel } }], row);
  }

  /** The record of an image that this home prepared; null where there is none. */
  record(digest: string): ImageRecord | null {
    const row = this.#deps.store.view('image', digest);
    return row === undefined || row.json === null ? null : (row.json as unknown as ImageRecord);
  }

  /**
   * Before each use: the image is still the one that was measured. Gives the digest of its record, null where set-up made
   * it. Throws EscrowError ImageChanged, EngineUnavailable.
   */
  async checked(image: ImageIdentity): Promise<ImageIdentity & { readonly record: Sha256 | null }> {
    const record = this.record(image.digest);
    if (record === null) return { ...image, record: null };
    const found = await coded(() => this.#engine().images.inspect(image.digest));
    const layers = found?.RootFS?.Layers ?? [];
    const same =
      found !== undefined &&
      record.executor === image.executorDigest &&
      found.Size === record.sizeBytes &&
      layers.length === record.layers.length &&
      layers.every((layer, n) => layer === record.layers[n]);
    if (same) return { ...image, record: digestOf(record) };
    throw new EscrowError(
      'ImageChanged',
      'The prepared image is not the one that was measured when it was made.',
      'Remove it (escrow image prune --all) and prepare it again.',
      { digest: image.digest, recorded: record.sizeBytes, found: found?.Size ?? null },
    );
  }

  /**
   * Removes what preparations of dead Kernels of this home left: in the engine, and the temporary files, which nobody else
   * has as long as this Kernel has the home's lock. For before the first preparation. Never throws for an absent engine.
   */
  sweep(): Promise<void> {
    const swept = this.#sweep();
    // A preparation waits for it: it would lose its files to it.
    this.#turn = swept.catch(() => {});
    return swept;
  }

  async #sweep(): Promise<void> {
    const { store, log, temporary } = this.#deps;
    await rm(temporary, { recursive: true, force: true });
    try {
      const engine = this.#engine();
      const left = await engine.list([
        `${labelKeys.product}=${productLabel}`,
        `${labelKeys.image}=preparation`,
        `${labelKeys.owner}=${store.homeId}`,
      ]);
      for (const { id, state } of left) {
        if (state === 'running' || state === 'paused') {
          await engine.kill(id);
          await engine.waitUntilStopped(id, 20_000);
        }
        await engine.remove(id);
      }
      const steps = await engine.images.list([
        `${labelKeys.product}=${productLabel}`,
        `${labelKeys.image}=steps`,
        `${labelKeys.owner}=${store.homeId}`,
      ]);
      for (const { id } of steps.toSorted((a, b) => b.created - a.created))
        await engine.images.remove(id, true).catch(() => {});
    } catch (error) {
      if (!EngineFault.is(error)) throw error;
      log('warn', 'what preparations left could not be looked for', { error: error.message });
    }
  }

  async #prepare(
    target: ImageTarget,
    wanted: Sha256,
    yes: Yes | null,
    signal: AbortSignal,
    progress: Progress,
  ): Promise<{ readonly plan: ImagePlan; readonly record: ImageRecord | null }> {
    const planned = await planImage(target, this.#sources());
    const plan = this.#withMemory(planned.plan);
    if (plan.plan !== wanted) {
      throw new EscrowError(
        'ImageChanged',
        'What would be prepared is not what was shown any more.',
        'Look at the plan again: escrow image plan.',
        { shown: wanted, now: plan.plan },
      );
    }
    if (plan.state === 'ready') {
      return { plan, record: plan.image === null ? null : this.record(plan.image.digest) };
    }
    const approval = this.#approve(plan, yes);
    if (signal.aborted) throw cancelled();
    await mkdir(this.#deps.temporary, { recursive: true, mode: 0o700 });
    const folder = await mkdtemp(path.join(this.#deps.temporary, 'image-'));
    const started = performance.now();
    try {
      await this.#requireRoom(plan);
      const { executorPath, cache, store } = this.#deps;
      const deps = { executorPath, cache, homeId: store.homeId };
      const work = new Preparation(this.#engine(), deps, target, folder, signal, progress);
      const made = await work.run(plan, planned.node, planned.architecture);
      const record = await this.#keep(plan, approval, made, work.results, performance.now() - started);
      progress('done', made.reference, 100);
      return { plan: this.#withMemory((await planImage(target, this.#sources())).plan), record };
    } catch (error) {
      const told = withWhatToDo(error);
      this.#failed(plan.plan, told);
      throw told;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  #approve(plan: ImagePlan, yes: Yes | null): ImageApproval {
    if (yes === null) {
      if (plan.approval !== null) return plan.approval;
      throw new EscrowError(
        'ImageNotApproved',
        'Preparing this image needs a yes.',
        'Look at the plan (escrow image plan), then say yes: escrow image prepare.',
        { plan: plan.plan },
      );
    }
    if (yes.standing && !plan.mayStand) {
      throw new EscrowError(
        'ImageNotApproved',
        'A yes to steps of one’s own holds once only.',
        'Say yes to this preparation alone.',
        { plan: plan.plan },
      );
    }
    const at = this.#deps.now();
    const approval: ImageApproval = { ...yes, at };
    const row: ViewRow = {
      kind: 'image-approval',
      key: plan.plan,
      root: '',
      createdAt: at,
      updatedAt: at,
      json: { ...approval },
    };
    // With what it was a yes to: the record stands for itself.
    const data = { ...approval, steps: plan.steps.filter(({ cached }) => !cached) } as unknown as Json;
    this.#append(planStream(plan.plan), [{ type: 'image.approved', data }], yes.standing ? row : null);
    return approval;
  }

  async #requireRoom(plan: ImagePlan): Promise<void> {
    const { bavail, bsize } = await statfs(this.#deps.temporary);
    const free = bavail * bsize;
    if (free >= plan.reservedBytes) return;
    throw new EscrowError(
      'PreparationFailed',
      `${Math.round(plan.reservedBytes / 1e6)} MB are set aside for this preparation, ${Math.round(free / 1e6)} MB are free.`,
      `Free space on the disk of ${this.#deps.temporary}.`,
      { reserved: plan.reservedBytes, free },
    );
  }

  async #keep(
    plan: ImagePlan,
    approval: ImageApproval,
    made: PreparedImage & { readonly node: string },
    steps: readonly ImageStepResult[],
    ms: number,
  ): Promise<ImageRecord> {
    const found = await this.#engine().images.inspect(made.digest);
    if (found === undefined)
      throw new EngineFault('refused', `the image ${made.digest} is not there after it was made`);
    const record: ImageRecord = {
      image: made.digest,
      reference: made.reference,
      plan: plan.plan,
      base: { reference: plan.base.reference, digest: made.baseDigest },
      node: made.node,
      executor: made.executorDigest,
      dependencies:
        found.Config.Labels?.[labelKeys.dependencies] === undefined
          ? null
          : (found.Config.Labels[labelKeys.dependencies] as Sha256),
      approval,
      steps: [...steps],
      sizeBytes: found.Size,
      layers: [...(found.RootFS?.Layers ?? [])],
      ms: Math.round(ms),
    };
    const at = this.#deps.now();
    const json = record as unknown as Json;
    const row: ViewRow = { kind: 'image', key: made.digest, root: '', createdAt: at, updatedAt: at, json };
    this.#append(`image:${made.digest}`, [{ type: 'image.prepared', data: json }], row);
    return record;
  }

  /** That an image was taken away: its record stays in the evidence, not in the view. */
  removed(digest: string, by: string): void {
    const at = this.#deps.now();
    const row: ViewRow = { kind: 'image', key: digest, root: '', createdAt: at, updatedAt: at, json: null };
    this.#append(`image:${digest}`, [{ type: 'image.removed', data: { by } }], row);
  }

  #failed(plan: Sha256, error: unknown): void {
    const code = EscrowError.is(error) ? error.code : EngineFault.is(error) ? `engine-${error.kind}` : 'Internal';
    const message = error instanceof Error ? error.message : String(error);
    this.#append(planStream(plan), [{ type: 'image.failed', data: { code, message: message.slice(0, 2000) } }], null);
  }

  #withMemory(plan: Awaited<ReturnType<typeof planImage>>['plan']): ImagePlan {
    const row = this.#deps.store.view('image-approval', plan.plan);
    const approval = row === undefined || row.json === null ? null : (row.json as unknown as ImageApproval);
    const record = plan.image === null ? null : this.record(plan.image.digest);
    return {
      ...plan,
      approval,
      image: plan.image === null ? null : { ...plan.image, record: record === null ? null : digestOf(record) },
    };
  }

  #append(stream: string, events: readonly NewEvent[], row: ViewRow | null): void {
    const { store } = this.#deps;
    store.append(stream, store.load(stream).length, events, () => (row === null ? [] : [row]));
  }

  #sources(): PlanSources {
    const { executorPath, cache, temporary } = this.#deps;
    return { engine: this.#engine(), executorPath, cache, temporary };
  }

  #engine(): ContainerEngine {
    const { engine } = this.#deps;
    if (engine instanceof EngineFault) throw engine;
    return engine;
  }
}

/** An engine that is there but refused something is not one to be started. */
function withWhatToDo(error: unknown): unknown {
  if (!EngineFault.is(error) || error.kind === 'unreachable' || error.kind === 'permission') return error;
  return new EscrowError(
    'PreparationFailed',
    `The container engine did not do it (${error.message}).`,
    'Look at the engine (escrow doctor) and its disk, then prepare again.',
    { kind: error.kind, status: error.status },
  );
}

function planStream(plan: Sha256): string {
  return `image-plan:${plan}`;
}
