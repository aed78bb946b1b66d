import type { FrozenContract } from '../../protocol/contract.ts';
import type { AttemptId } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { Logger } from '../log.ts';
import { messageOf } from '../message-of.ts';
import type {
  AbsenceObservation,
  Collection,
  MonitorRecording,
  ObservedContainer,
  ProvisionFact,
  Sandbox,
  SandboxService,
  SandboxSpec,
  StopObservation,
} from '../sandbox/port.ts';
import type { Intake } from '../store/port.ts';
import { within } from '../within.ts';
import type { AttemptRecord, Collected } from './attempt-record.ts';
import {
  engineStateOf,
  recordedStateOf,
  recoveryTable,
  type EngineState,
  type RecoveryAction,
} from './recovery-table.ts';
import type { AttemptState, ContainerState, SessionState } from './state.ts';

/** How long a quiesce and a collection through the channel may take before they count as not observed, in ms. */
const bounds = { quiesce: 20_000, collect: 60_000 } as const;

export interface AttemptSandboxDeps {
  readonly sandbox: SandboxService;
  readonly contractOf: (state: SessionState) => FrozenContract;
  /** The attempt's sandbox: snapshot bytes, paths, commands. */
  readonly specFor: (state: SessionState, attempt: AttemptState, contract: FrozenContract) => Promise<SandboxSpec>;
  readonly epoch: number;
  readonly log: Logger;
  readonly at: (point: string) => void;
}

/** What the engine was seen to say of the attempt's container, and what the table makes of it. */
export interface Look {
  readonly engine: EngineState;
  readonly action: RecoveryAction;
  readonly container: ObservedContainer | undefined;
  /** Why the engine gave no answer; empty where it did. */
  readonly fault: string;
}

/** The container of one attempt: makes it, looks at it, reaches into it, ends it. Owns the channel. */
export class AttemptSandbox {
  readonly #deps: AttemptSandboxDeps;
  readonly #record: AttemptRecord;
  #channel: Sandbox | undefined;

  constructor(deps: AttemptSandboxDeps, record: AttemptRecord) {
    this.#deps = deps;
    this.#record = record;
  }

  /** The channel into the container; undefined before it was provisioned, and after a restart until it is taken up again. */
  get channel(): Sandbox | undefined {
    return this.#channel;
  }

  /** Intends, creates and starts the container, each recorded as it is seen. Throws SandboxFault, EscrowError. */
  async provision(signal: AbortSignal): Promise<void> {
    const record = this.#record;
    const { at } = this.#deps;
    const spec = await this.#spec();
    if (record.state.phase === 'reserved') record.write({ kind: 'provision', container: spec.name });
    at('container-intended');
    let engineId = '';
    const onFact = async (fact: ProvisionFact): Promise<void> => {
      await Promise.resolve();
      switch (fact.kind) {
        case 'created':
          engineId = fact.engineId;
          record.write({ kind: 'container', state: 'created', engineId });
          at('container-created');
          break;
        case 'started':
          record.write({ kind: 'container', state: 'running', engineId });
          at('container-started');
          break;
        case 'limits':
          record.write({ kind: 'limits', limits: fact.limits });
          break;
        case 'attached':
          at('channel-attached');
          break;
        case 'placed':
          record.write({ kind: 'run', files: fact.files, bytes: fact.bytes });
          at('files-placed');
          break;
        default:
          unreachable(fact, 'provision fact');
      }
    };
    this.#channel = await this.#deps.sandbox.provision(spec, onFact, signal);
  }

  /** Asks the engine for this attempt's container, among our own. An id that was not recorded yet is recorded. */
  async look(): Promise<Look> {
    const record = this.#record;
    const { container: known } = record.state;
    let engine: EngineState;
    let container: ObservedContainer | undefined;
    let fault = '';
    try {
      const all = await this.#deps.sandbox.list();
      container = all.find((c) => c.ours && known !== null && isThis(c, known, record.attempt));
      engine = engineStateOf(container);
    } catch (error) {
      engine = 'no_answer';
      fault = messageOf(error);
    }
    if (container !== undefined && known !== null && known.engineId === null) {
      record.write({
        kind: 'container',
        state: engine === 'created' ? 'created' : 'running',
        engineId: container.engineId,
      });
    }
    const action = recoveryTable[recordedStateOf(record.state)][engine];
    return { engine, action, container, fault };
  }

  /** Makes this side of the audit chain durable as far as it has come. */
  witness(): void {
    if (this.#channel !== undefined) this.#record.write({ kind: 'witness', ...this.#channel.witness });
  }

  /** Takes the channel up again after a restart. Leaves none where the container is not running or silent. */
  async reattach(): Promise<void> {
    const { container, witness } = this.#record.state;
    const engineId = container?.engineId ?? null;
    if (this.#channel !== undefined || engineId === null) return;
    try {
      const { sandbox, epoch } = this.#deps;
      this.#channel = (await sandbox.reattach(await this.#spec(), engineId, epoch, witness)) ?? undefined;
    } catch (error) {
      this.#deps.log('warn', 'the channel could not be taken up again', {
        attempt: this.#record.attempt,
        error: messageOf(error),
      });
    }
  }

  /** Ends the processes of the worker. Undefined where the supervisor did not say what became of them. */
  async quiesce(): Promise<Awaited<ReturnType<Sandbox['quiesce']>> | undefined> {
    const channel = this.#channel;
    if (channel === undefined) return undefined;
    return within(
      bounds.quiesce,
      channel.quiesce().catch(() => undefined),
    );
  }

  /** Undefined where there is no channel, or nothing came through it. Else the caller ends the intake. */
  async collectByChannel(): Promise<Collected | undefined> {
    const channel = this.#channel;
    if (channel === undefined) return undefined;
    return this.#into((intake) => within(bounds.collect, channel.collect(intake)));
  }

  /** Gives the channel up for the fixed reader in the image. Undefined where that brought nothing either. */
  async collectByExec(): Promise<Collected | undefined> {
    this.detach();
    const { container, witness } = this.#record.state;
    const engineId = container?.engineId ?? null;
    if (engineId === null) return undefined;
    return this.#into(async (intake) =>
      this.#deps.sandbox.collectByExec(await this.#spec(), engineId, witness, intake),
    );
  }

  /** Where nothing came, nothing of it is left in the store. */
  async #into(collect: (intake: Intake) => Promise<Collection | undefined>): Promise<Collected | undefined> {
    const intake = this.#record.intake();
    let collection: Collection | undefined;
    try {
      collection = await collect(intake);
    } catch (error) {
      const { attempt } = this.#record;
      this.#deps.log('warn', 'a collection failed', { attempt, error: messageOf(error) });
    }
    if (collection !== undefined && collection.state !== 'none') return { collection, intake };
    intake.drop();
    return undefined;
  }

  /** What was recorded of the container's use while this Kernel was attached; null where nothing was. */
  monitored(): MonitorRecording | null {
    const engineId = this.#record.state.container?.engineId ?? null;
    return engineId === null ? null : this.#deps.sandbox.monitored(engineId);
  }

  /** Ends this process's attachment; the container is not touched. */
  detach(): void {
    this.#channel?.detach();
  }

  async kill(container: ObservedContainer | undefined): Promise<StopObservation> {
    return container === undefined ? { kind: 'absent' } : this.#deps.sandbox.kill(container.engineId);
  }

  async remove(action: RecoveryAction, container: ObservedContainer | undefined): Promise<AbsenceObservation> {
    if (container === undefined) return { kind: 'absent' };
    if (action === 'stop_and_remove') {
      const stopped = await this.kill(container);
      if (stopped.kind === 'unconfirmed') return { kind: 'present', reason: stopped.reason };
    }
    return this.#deps.sandbox.remove(container.engineId);
  }

  /** The stop that is owed whatever can be recorded. */
  async killUnrecorded(): Promise<void> {
    const { container } = this.#record.state;
    const target = container?.engineId ?? container?.name;
    if (target === undefined) return;
    this.detach();
    const seen = await this.#deps.sandbox.kill(target);
    this.#deps.log('warn', 'stopped without a record', { attempt: this.#record.attempt, seen: seen.kind });
  }

  async #spec(): Promise<SandboxSpec> {
    const state = this.#record.whole;
    return this.#deps.specFor(state, this.#record.state, this.#deps.contractOf(state));
  }
}

/** By the engine's id; before that was recorded, by the intended name and our label of whose it is. */
const isThis = (seen: ObservedContainer, known: ContainerState, owner: AttemptId): boolean =>
  known.engineId === null ? seen.name === known.name && seen.owner === owner : seen.engineId === known.engineId;
