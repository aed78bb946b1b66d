import path from 'node:path';
import type { ImageList, ImagePlan, ImagePrune } from '../../protocol/images.ts';
import type { ParsedParams, Result } from '../../protocol/methods.ts';
import type { ContractDigest } from '../../protocol/primitives.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { FrozenContract } from '../../protocol/contract.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import { languageOf } from '../contract/contract-image.ts';
import type { Logger } from '../log.ts';
import type { ContainerEngine } from '../sandbox/engine.ts';
import { EngineFault } from '../sandbox/engine-fault.ts';
import { baseReference, defaultImage, shippedExecutor } from '../sandbox/image.ts';
import type { SandboxService } from '../sandbox/port.ts';
import { coded, connectEngine } from '../sandbox/service.ts';
import type { Store } from '../store/port.ts';
import type { Tasks } from '../tasks.ts';
import { ImageDesk } from './image-desk.ts';
import { listImages, pruneImages, type ImageNeeds } from './image-inventory.ts';
import type { ImageTarget } from './image-plan.ts';
import type { Progress } from './preparation.ts';

export interface ImageServiceDeps {
  readonly engineHost: string | null;
  readonly executorPath: string;
  readonly home: string;
  readonly store: Store;
  readonly contracts: ContractBook;
  readonly sandbox: SandboxService;
  /** Ids of images that sessions which are not closed are bound to. */
  readonly bound: () => ReadonlySet<string>;
  readonly changed: () => void;
  readonly tasks: Tasks;
  readonly log: Logger;
  readonly now: () => number;
}

/** What clients may ask of images, over the desk that makes them and the contracts that want them. */
export class ImageService {
  readonly desk: ImageDesk;
  readonly #deps: ImageServiceDeps;
  readonly #engine: ContainerEngine | EngineFault;
  readonly #ending = new AbortController();

  constructor(deps: ImageServiceDeps) {
    this.#deps = deps;
    this.#engine = connectEngine(deps.engineHost);
    this.desk = new ImageDesk({
      engine: this.#engine,
      executorPath: deps.executorPath,
      cache: path.join(deps.home, 'cache'),
      temporary: path.join(deps.home, 'preparing'),
      store: deps.store,
      log: deps.log,
      now: deps.now,
    });
  }

  /** A sandbox service whose images are looked at again before each use. */
  checking(): SandboxService {
    const { sandbox } = this.#deps;
    return { ...sandbox, image: async (wanted) => this.desk.checked(await sandbox.image(wanted)) };
  }

  /** Ends a preparation that is under way; for a drain. */
  end(): void {
    this.#ending.abort();
  }

  async plan(asked: ParsedParams<'image/plan'>): Promise<ImagePlan> {
    return this.desk.plan(await this.#target(asked));
  }

  async prepare(
    asked: ParsedParams<'image/prepare'>,
    signal: AbortSignal,
    progress: Progress,
  ): Promise<Result<'image/prepare'>> {
    const { approval } = asked;
    const yes =
      approval === null
        ? null
        : { by: approval.reviewer.name, channel: approval.reviewer.channel, standing: approval.standing };
    const target = await this.#target(asked);
    const work = this.desk.prepare(target, asked.plan, yes, AbortSignal.any([signal, this.#ending.signal]), progress);
    // A drain ends it, and waits until nothing of it is left.
    this.#deps.tasks.own(
      'image preparation',
      work.catch((error: unknown) => {
        if (!EscrowError.is(error)) throw error;
      }),
    );
    const done = await work;
    // The first time that the base was there at all.
    const { reference, digest } = done.plan.base;
    if (asked.digest !== undefined && target.wanted.pinned === null && digest !== null) {
      this.#deps.contracts.fixBase(asked.digest, { reference, digest });
    }
    this.#deps.changed();
    return done;
  }

  /** What a contract's base stands for now; null where that can't be told or nothing is there. Never throws for an engine. */
  async baseOf(contract: FrozenContract): Promise<{ reference: string | null; digest: string | null }> {
    const reference = baseReference({ base: contract.imageBase, language: languageOf(contract) });
    try {
      const found = await this.#deps.sandbox.baseOf(reference);
      return found ?? { reference, digest: null };
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      return { reference, digest: null };
    }
  }

  async list(): Promise<ImageList> {
    return coded(async () => listImages(this.#connected(), await this.#needs()));
  }

  async prune(asked: ParsedParams<'image/prune'>, by: string): Promise<ImagePrune> {
    const pruned = await coded(async () =>
      pruneImages(this.#connected(), await this.#needs(), asked, (id) => this.desk.removed(id, by)),
    );
    if (pruned.done) this.#deps.changed();
    return pruned;
  }

  async #target(asked: {
    readonly digest?: ContractDigest | undefined;
    readonly base?: string | undefined;
  }): Promise<ImageTarget> {
    const { contracts } = this.#deps;
    if (asked.digest === undefined) {
      return { wanted: { ...defaultImage, base: asked.base ?? null }, files: new Map() };
    }
    const contract = contracts.anyOf(asked.digest);
    const files = await contracts.dependencyFiles(contract);
    return {
      wanted: contracts.imageWanted(contract, asked.digest),
      files: new Map(files.map(({ path: at, bytes }) => [at, bytes])),
    };
  }

  async #needs(): Promise<ImageNeeds> {
    const { store, sandbox, executorPath, bound } = this.#deps;
    const current = await sandbox.image(null).catch((error: unknown) => {
      if (EscrowError.is(error)) return null;
      throw error;
    });
    return {
      homeId: store.homeId,
      executor: await shippedExecutor(executorPath),
      current: current?.digest ?? null,
      bound: bound(),
    };
  }

  #connected(): ContainerEngine {
    if (this.#engine instanceof EngineFault) throw this.#engine;
    return this.#engine;
  }
}
