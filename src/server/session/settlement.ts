import type { FrozenContract } from '../../protocol/contract.ts';
import type { CandidateDigest, RelPath } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { SettlementStep } from '../../protocol/attempt.ts';
import type { CandidateFile } from '../../protocol/views.ts';
import type { OomWord } from '../sandbox/port.ts';
import type { AttemptRecord, Collected } from './attempt-record.ts';
import type { AttemptSandbox } from './attempt-sandbox.ts';
import type { AttemptWork } from './attempt-work.ts';
import type { CollectionRecord } from './events.ts';
import type { EngineState } from './recovery-table.ts';
import type { SessionState } from './state.ts';

export interface SettlementDeps {
  readonly contractOf: (state: SessionState) => FrozenContract;
  /** What the collected files amount to against the snapshot; null when nothing changed. Pure. */
  readonly candidateOf: (
    contract: FrozenContract,
    collected: CollectionRecord['files'],
    missing: readonly RelPath[],
  ) => { readonly digest: CandidateDigest; readonly files: readonly CandidateFile[] } | null;
  readonly at: (point: string) => void;
}

/**
 * The steps from the end of the work to the settled record, each carried out and recorded as what was seen. What can't be
 * seen is recorded as waited for. The same steps serve the Kernel that ran the work and one that takes it over.
 */
export class Settlement {
  readonly #deps: SettlementDeps;
  readonly #record: AttemptRecord;
  readonly #sandbox: AttemptSandbox;
  readonly #work: AttemptWork;

  constructor(deps: SettlementDeps, record: AttemptRecord, sandbox: AttemptSandbox, work: AttemptWork) {
    this.#deps = deps;
    this.#record = record;
    this.#sandbox = sandbox;
    this.#work = work;
  }

  async quiesce(): Promise<void> {
    const { settling } = this.#record.state;
    if (settling?.steps.some((s) => s.step === 'revoke') !== true)
      this.#step('revoke', true, { trigger: settling?.trigger ?? '' });
    await this.#work.quiet();
    if (this.#sandbox.channel === undefined) {
      const { engine, action, fault } = await this.#sandbox.look();
      if (action === 'wait') {
        this.#pend(waitingFor(engine, fault));
        return;
      }
      if (action !== 'quiesce') {
        this.#step('quiesce', action === 'note_quiet', { container: engine });
        return;
      }
      await this.#sandbox.reattach();
    }
    const seen = await this.#sandbox.quiesce();
    this.#step(
      'quiesce',
      seen?.empty === true,
      seen === undefined ? { reason: 'supervisor_silent' } : { killed: seen.killed, ms: seen.ms },
    );
  }

  async collect(): Promise<void> {
    let collected: Collected | undefined = await this.#sandbox.collectByChannel();
    let reason = 'supervisor_silent';
    if (collected === undefined) {
      const { engine, action, fault } = await this.#sandbox.look();
      if (action === 'wait') {
        this.#pend(waitingFor(engine, fault));
        return;
      }
      if (action === 'collect') {
        // A restarted Kernel has no channel yet. One that was there and failed is given up for the fixed reader.
        if (this.#sandbox.channel === undefined) {
          await this.#sandbox.reattach();
          collected = await this.#sandbox.collectByChannel();
        }
        collected ??= await this.#sandbox.collectByExec();
      } else reason = `container_${engine}`;
    }
    this.#deps.at('collected');
    this.#record.write({
      kind: 'collected',
      collection:
        collected === undefined
          ? await this.#record.noCollection(reason, this.#sandbox.monitored())
          : await this.#record.collection(collected),
    });
  }

  async stop(): Promise<void> {
    this.#sandbox.detach();
    const { engine, action, container, fault } = await this.#sandbox.look();
    if (action === 'wait') {
      this.#pend(waitingFor(engine, fault));
      return;
    }
    const seen = await this.#sandbox.kill(container);
    this.#deps.at('killed');
    switch (seen.kind) {
      case 'stopped': {
        const { exitCode, oomKilled, finishedAt, oom } = seen;
        this.#step('stop', true, { exitCode, finishedAt, oomKilled, ...oomFacts(oom) });
        return;
      }
      case 'absent':
        this.#step('stop', true, { absent: true });
        return;
      case 'unconfirmed':
        this.#pend(`stop: ${seen.reason}`);
        return;
      default:
        unreachable(seen, 'stop observation');
    }
  }

  async release(): Promise<void> {
    const { engine, action, container, fault } = await this.#sandbox.look();
    if (action === 'wait') {
      this.#pend(waitingFor(engine, fault));
      return;
    }
    const seen = await this.#sandbox.remove(action, container);
    this.#deps.at('removed');
    if (seen.kind === 'absent') this.#step('release', true, { absent: true });
    else this.#pend(`absence: ${seen.reason}`);
  }

  async finish(): Promise<void> {
    await this.#work.disclose();
    const { collection, settling } = this.#record.state;
    // Before the attempt ran its files were not all in place: what is missing then says nothing.
    const ran = settling?.from === 'running';
    // Of a partial collection, what was not read counts as unchanged, never as deleted.
    const missing = collection?.state === 'complete' ? collection.missing : [];
    const candidate =
      collection === null || collection.state === 'none' || !ran
        ? null
        : this.#deps.candidateOf(this.#deps.contractOf(this.#record.whole), collection.files, missing);
    this.#record.write({ kind: 'finish-settlement', candidate });
  }

  /** Looks once at what could not be seen. True when it was seen, which alone leaves `cancellation_pending`. */
  async observe(): Promise<boolean> {
    const { engine, action, container } = await this.#sandbox.look();
    // A person may have ended the wait meanwhile; the loop asks again what is next.
    if (!this.#pending || action === 'wait') return false;
    switch (action) {
      case 'stop': {
        const seen = await this.#sandbox.kill(container);
        if (seen.kind === 'unconfirmed') return false;
        break;
      }
      case 'remove':
      case 'stop_and_remove': {
        const seen = await this.#sandbox.remove(action, container);
        if (seen.kind !== 'absent') return false;
        break;
      }
      default:
    }
    if (!this.#pending) return false;
    this.#record.write({ kind: 'unblock', seen: engine });
    return true;
  }

  get #pending(): boolean {
    return this.#record.state.phase === 'cancellation_pending';
  }
  #step(step: Exclude<SettlementStep['step'], 'collect'>, observed: boolean, facts: SettlementStep['facts']): void {
    this.#record.write({ kind: 'step', step, observed, facts });
  }
  #pend(reason: string): void {
    this.#record.write({ kind: 'pend', waitingFor: reason });
  }
}

/** The word of each witness by its name: the supervisor, this machine, the engine. Null is "does not tell". */
const oomFacts = ({ inside, host, events, eventsWhole, ended }: OomWord): SettlementStep['facts'] => ({
  oomInside: inside,
  oomHost: host,
  oomEvents: events,
  oomEventsWhole: eventsWhole,
  endedByOom: ended,
});

/** What a person reads of an observation that is missing. */
const waitingFor = (engine: EngineState, fault: string): string =>
  engine === 'no_answer' ? `container_engine: ${fault}` : `container is ${engine}`;
