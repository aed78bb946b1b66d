import type { FrozenContract } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { ArtefactRef, AttemptId, CandidateDigest, RelPath, SessionId } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { CandidateFile, SettlementTrigger } from '../../protocol/views.ts';
import type { AgentEnd, AgentFact, RunAgent } from '../agent/port.ts';
import type { InferenceEngine } from '../inference/port.ts';
import type { AttemptInference } from './attempt-inference.ts';
import type { Logger } from '../log.ts';
import {
  SandboxFault,
  type AbsenceObservation,
  type Collection,
  type ObservedContainer,
  type ProvisionFact,
  type Sandbox,
  type SandboxService,
  type SandboxSpec,
  type StopObservation,
} from '../sandbox/port.ts';
import { StaleEpoch, type ArtefactStore } from '../store/port.ts';
import type { CollectionRecord } from './events.ts';
import { next } from './next.ts';
import {
  engineStateOf,
  recordedStateOf,
  recoveryTable,
  type EngineState,
  type RecoveryAction,
} from './recovery-table.ts';
import type { Sessions } from './sessions.ts';
import type { AttemptState, ContainerState, SessionState } from './state.ts';

/** How long an aborted generation, a quiesce and a collection may take before they count as not observed, in ms. */
const bounds = { abort: 10_000, quiesce: 20_000, collect: 60_000, idle: 3_000, survey: 5_000 } as const;

/** Waits between looks at something that could not be observed: 1 s doubling to 30 s (a person may also ask at once). */
const backoff = (tries: number): number => Math.min(1_000 * 2 ** tries, 30_000);
/** After so many looks without change a Kernel without clients may exit; the next start reconciles. */
export const patientTries = 8;
/** A Kernel that ends waits for so many looks: 7 s. */
const stuckTries = 3;

export interface AttemptDriverDeps {
  readonly sessions: Sessions;
  readonly sandbox: SandboxService;
  readonly artefacts: ArtefactStore;
  readonly engineFor: (state: SessionState) => Promise<InferenceEngine>;
  /** The engine's side of the attempt. Throws EscrowError where the engine may not be used. */
  readonly inferenceFor: (state: SessionState, attempt: AttemptId) => Promise<AttemptInference>;
  readonly runAgent: RunAgent;
  readonly contractOf: (state: SessionState) => FrozenContract;
  /** The attempt's sandbox: snapshot bytes, paths, commands. */
  readonly specFor: (state: SessionState, attempt: AttemptState, contract: FrozenContract) => Promise<SandboxSpec>;
  /** What the collected files amount to against the snapshot; null when nothing changed. Pure. */
  readonly candidateOf: (
    contract: FrozenContract,
    collected: CollectionRecord['files'],
    missing: readonly RelPath[],
  ) => { readonly digest: CandidateDigest; readonly files: readonly CandidateFile[] } | null;
  readonly holder: string;
  readonly epoch: number;
  readonly monotonic: () => number;
  readonly log: Logger;
  /** Crash points of the harness: called by name around effects. */
  readonly at: (point: string) => void;
}

type Owed =
  { readonly kind: 'end'; readonly end: AgentEnd } | { readonly kind: 'settle'; readonly trigger: SettlementTrigger };

/** What the engine was seen to say of the attempt's container, and what the table makes of it. */
interface Look {
  readonly engine: EngineState;
  readonly action: RecoveryAction;
  readonly container: ObservedContainer | undefined;
  /** Why the engine gave no answer; empty where it did. */
  readonly fault: string;
}

/** Ends a promise's wait, never the promise: undefined after `ms`. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/**
 * Drives one attempt from reservation to settlement: asks `next` for the effect, carries it out, records what was
 * observed. Owns the live sandbox and the abort of the work. One driver an attempt; after a crash a new driver goes on
 * from the recorded state, without the agent.
 */
export class AttemptDriver {
  readonly #deps: AttemptDriverDeps;
  readonly #session: SessionId;
  readonly #attempt: AttemptId;
  readonly #abort = new AbortController();
  #sandbox: Sandbox | undefined;
  #working: Promise<AgentEnd> | undefined;
  #generating = false;
  #inference: AttemptInference | undefined;
  #tries = 0;
  #left = false;
  /** What could not be recorded yet; until it is, nothing else is begun. The first one stands. */
  #owed: Owed | undefined;
  #nudge: (() => void) | undefined;

  constructor(deps: AttemptDriverDeps, session: SessionId, attempt: AttemptId) {
    this.#deps = deps;
    this.#session = session;
    this.#attempt = attempt;
  }

  /** The live sandbox while the attempt runs, for an attached window. */
  get sandbox(): Sandbox | undefined {
    return this.#sandbox;
  }
  /** True while it waits for an observation, and a few looks have not brought it. */
  get stuck(): boolean {
    return this.#tries >= stuckTries && this.#state().phase === 'cancellation_pending';
  }
  /** Ends the drive where it waits next, without an end of the attempt: the next Kernel takes it over. */
  leave(): void {
    this.#left = true;
    this.#nudge?.();
  }

  /** True when looking again has not helped for a while. */
  get exhausted(): boolean {
    return this.#tries >= patientTries;
  }

  /**
   * Begins settlement: the token is advanced durably first, then the work is aborted. The first trigger stands. Never
   * throws: what can't be recorded now is owed, and the work ends all the same.
   */
  settle(trigger: SettlementTrigger): void {
    try {
      if (this.#owed === undefined) this.#execute({ kind: 'settle', attempt: this.#attempt, trigger });
    } catch (error) {
      this.#owed ??= { kind: 'settle', trigger };
      this.#deps.log('error', 'settlement began without a record', {
        attempt: this.#attempt,
        trigger,
        error: messageOf(error),
      });
    }
    this.#abort.abort();
  }

  /** Looks again now at what could not be observed. */
  nudge(): void {
    this.#nudge?.();
  }

  /** Resolves when the attempt is settled. Never rejects: what can't be recorded is retried, the stop is attempted anyway. */
  async drive(): Promise<void> {
    while (!this.#left) {
      const attempt = this.#state();
      const effect = next(attempt);
      this.#deps.at(`before-${effect.kind}`);
      try {
        switch (effect.kind) {
          case 'provision':
            if (!this.#recordOwed()) await this.#provision();
            break;
          case 'work':
            if (!this.#recordOwed()) await this.#work();
            break;
          case 'quiesce':
            await this.#quiesce();
            break;
          case 'collect':
            await this.#collect();
            break;
          case 'stop':
            await this.#stop();
            break;
          case 'release':
            await this.#release();
            break;
          case 'finish':
            await this.#finish();
            break;
          case 'observe':
            await this.#observe();
            break;
          case 'none':
            return;
          default:
            unreachable(effect, 'effect');
        }
        this.#deps.at(`after-${effect.kind}`);
      } catch (error) {
        // A later Kernel owns this attempt and its container now: nothing of it is touched any more.
        if (error instanceof StaleEpoch) {
          this.#abort.abort();
          this.#sandbox?.detach();
          this.#deps.log('error', 'a later Kernel has taken over', { attempt: this.#attempt });
          return;
        }
        await this.#recordingFailed(error);
      }
    }
  }

  /** True when something was owed and is recorded now; throws while it can't be. */
  #recordOwed(): boolean {
    const owed = this.#owed;
    if (owed === undefined) return false;
    const attempt = this.#attempt;
    if (owed.kind === 'end') this.#execute({ kind: 'end', attempt, end: owed.end });
    else this.#execute({ kind: 'settle', attempt, trigger: owed.trigger });
    this.#owed = undefined;
    return true;
  }
  /** Resolves when the work is to end. */
  get #aborted(): Promise<null> {
    const { signal } = this.#abort;
    return new Promise((resolve) => {
      if (signal.aborted) resolve(null);
      else signal.addEventListener('abort', () => resolve(null), { once: true });
    });
  }
  /** The cause of the end is known already, recorded or owed. */
  get #ending(): boolean {
    return this.#owed !== undefined || this.#state().settling !== null;
  }

  #whole(): SessionState {
    return this.#deps.sessions.get(this.#session);
  }
  #state(): AttemptState {
    const attempt = this.#whole().attempts.find((a) => a.id === this.#attempt);
    if (attempt === undefined) throw new Error(`attempt ${this.#attempt} is not in its session`);
    return attempt;
  }
  #execute(command: Parameters<Sessions['execute']>[1]): void {
    this.#deps.sessions.execute(this.#session, command);
  }

  async #spec(): Promise<SandboxSpec> {
    const state = this.#whole();
    return this.#deps.specFor(state, this.#state(), this.#deps.contractOf(state));
  }

  async #provision(): Promise<void> {
    const attempt = this.#attempt;
    try {
      const spec = await this.#spec();
      if (this.#state().phase === 'reserved') this.#execute({ kind: 'provision', attempt, container: spec.name });
      this.#deps.at('container-intended');
      let engineId = '';
      const onFact = async (fact: ProvisionFact): Promise<void> => {
        await Promise.resolve();
        switch (fact.kind) {
          case 'created':
            engineId = fact.engineId;
            this.#execute({ kind: 'container', attempt, state: 'created', engineId });
            this.#deps.at('container-created');
            break;
          case 'started':
            this.#execute({ kind: 'container', attempt, state: 'running', engineId });
            this.#deps.at('container-started');
            break;
          case 'limits':
            this.#execute({ kind: 'limits', attempt, limits: fact.limits });
            break;
          case 'attached':
            this.#deps.at('channel-attached');
            break;
          case 'placed':
            this.#execute({ kind: 'run', attempt, files: fact.files, bytes: fact.bytes });
            this.#deps.at('files-placed');
            break;
          default:
            unreachable(fact, 'provision fact');
        }
      };
      this.#sandbox = await this.#deps.sandbox.provision(spec, onFact, this.#abort.signal);
    } catch (error) {
      // Settled meanwhile: the loop goes on with settlement, whatever provisioning said.
      if (this.#ending) return;
      const code = SandboxFault.is(error) ? error.code : EscrowError.is(error) ? error.code : 'provision_failed';
      this.#execute({
        kind: 'end',
        attempt,
        end:
          code === 'no-space' || code === 'StorageFull'
            ? { kind: 'resource', code, detail: messageOf(error) }
            : { kind: 'infrastructure', code, detail: messageOf(error) },
      });
    }
  }

  async #work(): Promise<void> {
    const attempt = this.#attempt;
    const sandbox = this.#sandbox;
    if (sandbox === undefined) {
      // Only after a restart: the agent is never run again (the table says `settle` whatever the engine says).
      this.settle('kernel_restart');
      return;
    }
    const state = this.#whole();
    const contract = this.#deps.contractOf(state);
    let inference: AttemptInference;
    try {
      inference = await this.#deps.inferenceFor(state, attempt);
    } catch (error) {
      this.#execute({ kind: 'end', attempt, end: { kind: 'transport', code: 'no_engine', detail: messageOf(error) } });
      return;
    }
    this.#inference = inference;
    const refused = await Promise.race([inference.begin(), this.#aborted]);
    if (this.#ending) return;
    this.#deps.at('engine-looked-at');
    if (refused !== null) {
      this.#execute({ kind: 'end', attempt, end: refused });
      return;
    }
    this.#working = this.#deps.runAgent(
      { contract, binding: state.binding, feedback: this.#state().feedback },
      {
        chat: async (messages, tools, signal) => {
          this.#generating = true;
          try {
            return await inference.chat(messages, tools, signal);
          } finally {
            this.#generating = false;
          }
        },
        sandbox,
        record: (fact) => this.#record(fact),
        monotonic: this.#deps.monotonic,
      },
      this.#abort.signal,
    );
    const channelGone = sandbox.ended.then((end): AgentEnd => ({
      kind: 'infrastructure',
      code: `channel_${end.kind}`,
      detail: 'reason' in end ? end.reason : '',
    }));
    const aborted = this.#aborted.then((): AgentEnd => ({ kind: 'cancelled' }));
    // The loop ends by itself before; the lease bounds one that got stuck.
    const lease = setTimeout(
      () => this.settle('lease_expired'),
      Math.max(0, this.#state().leaseUntil - this.#deps.monotonic()),
    );
    const end = await Promise.race([this.#working, channelGone, aborted]).finally(() => clearTimeout(lease));
    this.#deps.at('work-ended');
    this.#witness();
    if (this.#ending) return;
    this.#execute({ kind: 'end', attempt, end });
    this.#abort.abort();
  }

  async #record(fact: AgentFact): Promise<void> {
    const attempt = this.#attempt;
    const { artefacts } = this.#deps;
    switch (fact.kind) {
      case 'request':
        // Whatever the last turn caused is durable before the next request.
        this.#witness();
        this.#execute({
          kind: 'count-request',
          attempt,
          n: fact.n,
          boundTokens: fact.boundTokens,
          proven: fact.proven,
        });
        this.#deps.at('request-counted');
        return;
      case 'turn': {
        const request = await artefacts.put(fact.turn.rawRequest, this.#session);
        const response = await artefacts.put(fact.turn.rawResponse, this.#session);
        this.#deps.at('turn-artefacts');
        this.#execute({ kind: 'turn', attempt, n: fact.n, receipt: fact.turn.receipt, request, response });
        this.#deps.at('turn-recorded');
        return;
      }
      case 'failure': {
        const { failure } = fact;
        const keep = async (bytes: Uint8Array | null): Promise<ArtefactRef | null> =>
          bytes === null ? null : artefacts.put(bytes, this.#session);
        const request = await keep(failure.rawRequest);
        const response = await keep(failure.rawResponse);
        const { kind, code, message } = failure;
        this.#execute({
          kind: 'failure',
          attempt,
          n: fact.n,
          failure: { kind, code, message },
          receipt: failure.receipt,
          request,
          response,
        });
        return;
      }
      case 'activity':
        this.#execute({ kind: 'activity', attempt, item: fact.item });
        this.#deps.at('activity-recorded');
        return;
      default:
        unreachable(fact, 'agent fact');
    }
  }

  async #quiesce(): Promise<void> {
    const attempt = this.#attempt;
    const trigger = this.#state().settling?.trigger ?? '';
    const has = (step: string): boolean => this.#state().settling?.steps.some((s) => s.step === step) ?? false;
    if (!has('revoke')) this.#execute({ kind: 'step', attempt, step: 'revoke', observed: true, facts: { trigger } });
    this.#abort.abort();
    if (this.#working !== undefined) {
      const generating = this.#generating;
      const ended = await within(
        bounds.abort,
        this.#working.catch((error: unknown) => messageOf(error)),
      );
      if (generating) {
        this.#execute({ kind: 'step', attempt, step: 'abort_generation', observed: ended !== undefined, facts: {} });
        await this.#engineIdle();
      }
    }
    if (this.#sandbox === undefined) {
      const { engine, action, fault } = await this.#look();
      if (action === 'wait') {
        this.#execute({ kind: 'pend', attempt, waitingFor: waitingFor(engine, fault) });
        return;
      }
      if (action !== 'quiesce') {
        this.#execute({
          kind: 'step',
          attempt,
          step: 'quiesce',
          observed: action === 'note_quiet',
          facts: { container: engine },
        });
        return;
      }
      await this.#reattach();
    }
    const seen =
      this.#sandbox === undefined
        ? undefined
        : await within(
            bounds.quiesce,
            this.#sandbox.quiesce().catch(() => undefined),
          );
    this.#execute({
      kind: 'step',
      attempt,
      step: 'quiesce',
      observed: seen?.empty === true,
      facts: seen === undefined ? { reason: 'supervisor_silent' } : { killed: seen.killed, ms: seen.ms },
    });
  }

  /** Asks the engine for this attempt's container, among our own. An id that was not recorded yet is recorded. */
  async #look(): Promise<Look> {
    const { container: known } = this.#state();
    let engine: EngineState;
    let container: ObservedContainer | undefined;
    let fault = '';
    try {
      const all = await this.#deps.sandbox.list();
      container = all.find((c) => c.ours && known !== null && isThis(c, known, this.#attempt));
      engine = engineStateOf(container);
    } catch (error) {
      engine = 'no_answer';
      fault = messageOf(error);
    }
    if (container !== undefined && known !== null && known.engineId === null) {
      this.#execute({
        kind: 'container',
        attempt: this.#attempt,
        state: engine === 'created' ? 'created' : 'running',
        engineId: container.engineId,
      });
    }
    const action = recoveryTable[recordedStateOf(this.#state())][engine];
    return { engine, action, container, fault };
  }

  /** Makes this side of the audit chain durable as far as it has come. */
  #witness(): void {
    if (this.#sandbox !== undefined)
      this.#execute({ kind: 'witness', attempt: this.#attempt, ...this.#sandbox.witness });
  }

  async #engineIdle(): Promise<void> {
    const state = this.#whole();
    const engine = await this.#deps.engineFor(state).catch(() => undefined);
    const idle = await within(
      bounds.idle,
      engine?.idle(state.binding.model.tag) ?? Promise.resolve('unknown' as const),
    );
    this.#execute({
      kind: 'step',
      attempt: this.#attempt,
      step: 'engine_idle',
      observed: idle === 'idle',
      facts: { said: idle ?? 'unknown' },
    });
  }

  /** Takes the channel up again after a restart. Leaves no sandbox where the container is not running or silent. */
  async #reattach(): Promise<void> {
    const engineId = this.#state().container?.engineId ?? null;
    if (this.#sandbox !== undefined || engineId === null) return;
    try {
      this.#sandbox =
        (await this.#deps.sandbox.reattach(await this.#spec(), engineId, this.#deps.epoch, this.#state().witness)) ??
        undefined;
    } catch (error) {
      this.#deps.log('warn', 'the channel could not be taken up again', {
        attempt: this.#attempt,
        error: messageOf(error),
      });
    }
  }

  async #collect(): Promise<void> {
    const attempt = this.#attempt;
    let collection = await this.#collectByChannel();
    let reason = 'supervisor_silent';
    if (collection === undefined) {
      const { engine, action, fault } = await this.#look();
      if (action === 'wait') {
        this.#execute({ kind: 'pend', attempt, waitingFor: waitingFor(engine, fault) });
        return;
      }
      if (action === 'collect') {
        // A restarted Kernel has no channel yet. One that was there and failed is given up for the fixed reader.
        if (this.#sandbox === undefined) {
          await this.#reattach();
          collection = await this.#collectByChannel();
        }
        collection ??= await this.#collectByExec();
      } else reason = `container_${engine}`;
    }
    this.#deps.at('collected-in-memory');
    const record = collection === undefined ? nothingCollected(reason) : await this.#keep(collection);
    this.#execute({ kind: 'collected', attempt, collection: record });
  }

  /** Undefined where there is no channel, or nothing came through it. */
  async #collectByChannel(): Promise<Collection | undefined> {
    const sandbox = this.#sandbox;
    if (sandbox === undefined) return undefined;
    const seen = await within(
      bounds.collect,
      sandbox.collect().catch(() => undefined),
    );
    return seen?.state === 'none' ? undefined : seen;
  }

  async #collectByExec(): Promise<Collection | undefined> {
    this.#sandbox?.detach();
    const engineId = this.#state().container?.engineId ?? null;
    if (engineId === null) return undefined;
    try {
      const seen = await this.#deps.sandbox.collectByExec(await this.#spec(), engineId, this.#state().witness);
      return seen.state === 'none' ? undefined : seen;
    } catch (error) {
      this.#deps.log('warn', 'fallback collection failed', { attempt: this.#attempt, error: messageOf(error) });
      return undefined;
    }
  }

  /** Makes the collected bytes durable before anything ends the container. */
  async #keep(collection: Collection): Promise<CollectionRecord> {
    const { artefacts } = this.#deps;
    const files: { path: RelPath; mode: number; ref: ArtefactRef }[] = [];
    for (const file of collection.files) {
      files.push({ path: file.path, mode: file.mode, ref: await artefacts.put(file.bytes, this.#session) });
    }
    this.#deps.at('files-durable');
    const auditLog = collection.auditLog === null ? null : await artefacts.put(collection.auditLog, this.#session);
    const monitor = await this.#keepMonitor(collection);
    return {
      state: collection.state,
      reason: collection.reason,
      via: collection.via,
      files,
      missing: collection.missing,
      manifest: collection.manifest,
      auditLog,
      auditAgrees: collection.audit.agree,
      equalsAudit: collection.equalsAudit,
      violations: collection.violations,
      monitor,
    };
  }

  /** Null where there is none, or where it finds no room any more: the bytes and their audit come first. */
  async #keepMonitor({ monitor }: Collection): Promise<NonNullable<CollectionRecord['monitor']> | null> {
    if (monitor === undefined || monitor === null) return null;
    try {
      return { ref: await this.#deps.artefacts.put(monitor.bytes, this.#session), peaks: monitor.peaks };
    } catch (error) {
      if (!EscrowError.is(error, 'StorageFull')) throw error;
      this.#deps.log('warn', 'no room for the monitor of an attempt', { attempt: this.#attempt });
      return null;
    }
  }

  async #stop(): Promise<void> {
    const attempt = this.#attempt;
    this.#sandbox?.detach();
    const { engine, action, container, fault } = await this.#look();
    if (action === 'wait') {
      this.#execute({ kind: 'pend', attempt, waitingFor: waitingFor(engine, fault) });
      return;
    }
    const seen = container === undefined ? ({ kind: 'absent' } as const) : await this.#kill(container);
    this.#deps.at('killed');
    switch (seen.kind) {
      case 'stopped':
        this.#execute({
          kind: 'step',
          attempt,
          step: 'stop',
          observed: true,
          facts: { exitCode: seen.exitCode, oomKilled: seen.oomKilled, finishedAt: seen.finishedAt },
        });
        return;
      case 'absent':
        this.#execute({ kind: 'step', attempt, step: 'stop', observed: true, facts: { absent: true } });
        return;
      case 'unconfirmed':
        this.#execute({ kind: 'pend', attempt, waitingFor: `stop: ${seen.reason}` });
        return;
      default:
        unreachable(seen, 'stop observation');
    }
  }

  #kill(container: ObservedContainer): Promise<StopObservation> {
    return this.#deps.sandbox.kill(container.engineId);
  }

  async #release(): Promise<void> {
    const attempt = this.#attempt;
    const { engine, action, container, fault } = await this.#look();
    if (action === 'wait') {
      this.#execute({ kind: 'pend', attempt, waitingFor: waitingFor(engine, fault) });
      return;
    }
    const seen = await this.#remove(action, container);
    this.#deps.at('removed');
    if (seen.kind === 'absent') {
      this.#execute({ kind: 'step', attempt, step: 'release', observed: true, facts: { absent: true } });
    } else {
      this.#execute({ kind: 'pend', attempt, waitingFor: `absence: ${seen.reason}` });
    }
  }

  async #remove(action: RecoveryAction, container: ObservedContainer | undefined): Promise<AbsenceObservation> {
    if (container === undefined) return { kind: 'absent' };
    if (action === 'stop_and_remove') {
      const stopped = await this.#kill(container);
      if (stopped.kind === 'unconfirmed') return { kind: 'present', reason: stopped.reason };
    }
    return this.#deps.sandbox.remove(container.engineId);
  }

  async #finish(): Promise<void> {
    const inference = this.#inference;
    this.#inference = undefined;
    // What changed at the engine is disclosed with the settlement; one that does not answer holds nothing up.
    if (inference !== undefined) await within(bounds.survey, inference.end());
    const attempt = this.#state();
    const { collection } = attempt;
    // Of a partial collection, what was not read counts as unchanged, never as deleted.
    const missing = collection?.state === 'complete' ? collection.missing : [];
    const candidate =
      collection === null || collection.state === 'none'
        ? null
        : this.#deps.candidateOf(this.#deps.contractOf(this.#whole()), collection.files, missing);
    this.#execute({ kind: 'finish-settlement', attempt: attempt.id, candidate });
  }

  /** Waits, then looks at what could not be seen. Only a sight of it leaves `cancellation_pending`. */
  async #observe(): Promise<void> {
    const attempt = this.#attempt;
    await this.#pause();
    if (this.#left) return;
    const { engine, action, container } = await this.#look();
    // A person may have ended the wait meanwhile; the loop asks again what is next.
    if (this.#state().phase !== 'cancellation_pending' || action === 'wait') return;
    switch (action) {
      case 'stop': {
        const seen = container === undefined ? ({ kind: 'absent' } as const) : await this.#kill(container);
        if (seen.kind === 'unconfirmed') return;
        break;
      }
      case 'remove':
      case 'stop_and_remove': {
        const seen = await this.#remove(action, container);
        if (seen.kind !== 'absent') return;
        break;
      }
      default:
    }
    if (this.#state().phase !== 'cancellation_pending') return;
    this.#execute({ kind: 'unblock', attempt, seen: engine });
    this.#tries = 0;
  }

  /** The record could not be written (disk full, allowance). The stop is attempted all the same, then recording again. */
  async #recordingFailed(error: unknown): Promise<void> {
    this.#deps.log('error', 'an attempt could not be recorded', { attempt: this.#attempt, error: messageOf(error) });
    this.#abort.abort();
    const state = this.#state();
    const storage = EscrowError.is(error, 'StorageFull') || EscrowError.is(error, 'StorageUnwritable');
    if (state.settling === null) {
      const end: AgentEnd = storage
        ? { kind: 'resource', code: 'storage', detail: messageOf(error) }
        : { kind: 'infrastructure', code: 'internal', detail: messageOf(error) };
      this.#owed ??= { kind: 'end', end };
      try {
        this.#recordOwed();
        return;
      } catch (again) {
        this.#deps.log('error', 'nor could its end', { attempt: this.#attempt, error: messageOf(again) });
      }
    } else if (state.phase === 'collecting' && storage) {
      // The bytes do not fit the session's allowance: the record says so, and goes on to the stop.
      try {
        this.#execute({ kind: 'collected', attempt: this.#attempt, collection: nothingCollected('storage_full') });
        return;
      } catch (again) {
        this.#deps.log('error', 'nor could the loss of its bytes', { attempt: this.#attempt, error: messageOf(again) });
      }
    }
    const target = state.container?.engineId ?? state.container?.name;
    if (target !== undefined) {
      this.#sandbox?.detach();
      const seen = await this.#deps.sandbox.kill(target);
      this.#deps.log('warn', 'stopped without a record', { attempt: this.#attempt, seen: seen.kind });
    }
    await this.#pause();
  }

  async #pause(): Promise<void> {
    if (this.#left) return;
    const wait = backoff(this.#tries);
    this.#tries += 1;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#nudge = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#nudge = undefined;
  }
}

/** By the engine's id; before that was recorded, by the intended name and our label of whose it is. */
const isThis = (seen: ObservedContainer, known: ContainerState, owner: AttemptId): boolean =>
  known.engineId === null ? seen.name === known.name && seen.owner === owner : seen.engineId === known.engineId;

/** What a person reads of an observation that is missing. */
const waitingFor = (engine: EngineState, fault: string): string =>
  engine === 'no_answer' ? `container_engine: ${fault}` : `container is ${engine}`;

const nothingCollected = (reason: string): CollectionRecord => ({
  state: 'none',
  reason,
  via: 'none',
  files: [],
  missing: [],
  manifest: [],
  auditLog: null,
  auditAgrees: false,
  equalsAudit: null,
  violations: [],
});
