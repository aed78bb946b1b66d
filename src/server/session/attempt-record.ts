import { EscrowError } from '../../protocol/errors.ts';
import type { ArtefactRef, AttemptId, SessionId } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { AgentFact } from '../agent/port.ts';
import { contractStream } from '../contract/contract-book.ts';
import type { Logger } from '../log.ts';
import type { Collection, MonitorRecording } from '../sandbox/port.ts';
import type { ArtefactStore, Intake } from '../store/port.ts';
import type { CollectionRecord } from './events.ts';
import type { AttemptCommand } from './commands.ts';
import type { Sessions } from './sessions.ts';
import type { AttemptState, SessionState } from './state.ts';

export interface AttemptRecordDeps {
  readonly sessions: Sessions;
  readonly artefacts: ArtefactStore;
  readonly log: Logger;
  /** Crash points of the harness: called by name around effects. */
  readonly at: (point: string) => void;
}

/** What was read out of a sandbox, and its bytes on their way into the store. */
export interface Collected {
  readonly collection: Collection;
  readonly intake: Intake;
}

type Unaddressed<T> = T extends AttemptCommand ? Omit<T, 'attempt'> : never;
/** A command to an attempt without its name: a record can write of its own attempt only. */
export type OwnCommand = Unaddressed<AttemptCommand>;

/** The record of one attempt: what it says now, and every way of adding to it. Bytes are durable before they are named. */
export class AttemptRecord {
  readonly session: SessionId;
  readonly attempt: AttemptId;
  readonly #deps: AttemptRecordDeps;

  constructor(deps: AttemptRecordDeps, session: SessionId, attempt: AttemptId) {
    this.#deps = deps;
    this.session = session;
    this.attempt = attempt;
  }

  get whole(): SessionState {
    return this.#deps.sessions.get(this.session);
  }
  get state(): AttemptState {
    const attempt = this.whole.attempts.find((a) => a.id === this.attempt);
    if (attempt === undefined) throw new Error(`attempt ${this.attempt} is not in its session`);
    return attempt;
  }

  /** Throws EscrowError where the decider refuses, or the record can't be written. */
  write(command: OwnCommand): void {
    this.#deps.sessions.execute(this.session, { ...command, attempt: this.attempt });
  }

  /** A fact of the agent. Throws like `write`. */
  async fact(fact: AgentFact): Promise<void> {
    const { at } = this.#deps;
    switch (fact.kind) {
      case 'request':
        this.write({ kind: 'count-request', n: fact.n, boundTokens: fact.boundTokens, proven: fact.proven });
        at('request-counted');
        return;
      case 'turn': {
        const request = await this.#keep(fact.turn.rawRequest);
        const response = await this.#keep(fact.turn.rawResponse);
        at('turn-artefacts');
        this.write({ kind: 'turn', n: fact.n, receipt: fact.turn.receipt, request, response });
        at('turn-recorded');
        return;
      }
      case 'failure': {
        const { kind, code, message, rawRequest, rawResponse, receipt } = fact.failure;
        const request = rawRequest === null ? null : await this.#keep(rawRequest);
        const response = rawResponse === null ? null : await this.#keep(rawResponse);
        this.write({ kind: 'failure', n: fact.n, failure: { kind, code, message }, receipt, request, response });
        return;
      }
      case 'activity':
        this.write({ kind: 'activity', item: fact.item });
        at('activity-recorded');
        return;
      default:
        unreachable(fact, 'agent fact');
    }
  }

  /** A way in for what is collected. What is as it was in the snapshot is kept by the contract. */
  intake(): Intake {
    return this.#deps.artefacts.intake(this.session, contractStream(this.whole.contractDigest));
  }

  /**
   * Makes collected bytes durable before anything ends the container; ends their intake. Throws EscrowError StorageFull,
   * StorageUnwritable.
   */
  async collection({ collection, intake }: Collected): Promise<CollectionRecord> {
    await intake.commit(collection.files.map((file) => file.sha256));
    const files = collection.files.map(({ path, mode, size, sha256 }) => ({ path, mode, ref: { sha256, size } }));
    this.#deps.at('files-durable');
    const auditLog = collection.auditLog === null ? null : await this.#keep(collection.auditLog);
    const monitor = await this.#monitor(collection.monitor ?? null);
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

  /** Nothing was read out; what the sandbox had used is known all the same. Throws EscrowError StorageUnwritable. */
  async noCollection(reason: string, monitor: MonitorRecording | null): Promise<CollectionRecord> {
    return { ...nothingCollected(reason), monitor: await this.#monitor(monitor) };
  }

  /** Null where there is none, or where it finds no room any more: the bytes and their audit come first. */
  async #monitor(monitor: MonitorRecording | null): Promise<NonNullable<CollectionRecord['monitor']> | null> {
    if (monitor === null) return null;
    try {
      return { ref: await this.#keep(monitor.bytes), peaks: monitor.peaks };
    } catch (error) {
      if (!EscrowError.is(error, 'StorageFull')) throw error;
      this.#deps.log('warn', 'no room for the monitor of an attempt', { attempt: this.attempt });
      return null;
    }
  }

  #keep(bytes: Uint8Array): Promise<ArtefactRef> {
    return this.#deps.artefacts.put(bytes, this.session);
  }
}

/** The record of a collection that brought nothing. */
export const nothingCollected = (reason: string): CollectionRecord => ({
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
