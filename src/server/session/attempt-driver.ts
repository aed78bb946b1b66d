import { EscrowError } from '../../protocol/errors.ts';
import type { AttemptId, SessionId } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { SettlementTrigger } from '../../protocol/attempt.ts';
import type { AgentEnd } from '../agent/port.ts';
import { messageOf } from '../message-of.ts';
import type { Sandbox } from '../sandbox/port.ts';
import { StaleEpoch } from '../store/port.ts';
import { AttemptRecord, nothingCollected, type OwnCommand, type AttemptRecordDeps } from './attempt-record.ts';
import { AttemptSandbox, type AttemptSandboxDeps } from './attempt-sandbox.ts';
import { AttemptWork, type AttemptWorkDeps } from './attempt-work.ts';
import { next, type Effect } from './next.ts';
import { Settlement, type SettlementDeps } from './settlement.ts';

/** Waits between looks at something that could not be observed: 1 s doubling to 30 s (a person may also ask at once). */
const backoff = (tries: number): number => Math.min(1_000 * 2 ** tries, 30_000);
/** After so many looks without change a Kernel without clients may exit; the next start reconciles. */
export const patientTries = 8;
/** A Kernel that ends waits for so many looks: 7 s. */
const stuckTries = 3;

export interface AttemptDriverDeps extends AttemptRecordDeps, AttemptSandboxDeps, AttemptWorkDeps, SettlementDeps {
  /** Told each time that something could not be recorded: clients hear of it by no event of the log. */
  readonly unrecorded: () => void;
}

/** The end of the work as it could not be recorded yet. */
type Owed = Extract<OwnCommand, { readonly kind: 'end' | 'settle' }>;

/**
 * Drives one attempt from reservation to settlement: asks `next` for the effect and has it carried out. One driver an
 * attempt; after a crash a new driver goes on from the recorded state, without the agent.
 */
export class AttemptDriver {
  readonly #deps: AttemptDriverDeps;
  readonly #record: AttemptRecord;
  readonly #sandbox: AttemptSandbox;
  readonly #work: AttemptWork;
  readonly #settlement: Settlement;
  #tries = 0;
  #left = false;
  /** What could not be recorded yet; until it is, nothing else is begun. The first one stands. */
  #owed: Owed | undefined;
  #nudge: (() => void) | undefined;

  constructor(deps: AttemptDriverDeps, session: SessionId, attempt: AttemptId) {
    this.#deps = deps;
    this.#record = new AttemptRecord(deps, session, attempt);
    this.#sandbox = new AttemptSandbox(deps, this.#record);
    this.#work = new AttemptWork(deps, this.#record, this.#sandbox, {
      ending: () => this.#owed !== undefined || this.#record.state.settling !== null,
      settle: (trigger) => this.settle(trigger),
    });
    this.#settlement = new Settlement(deps, this.#record, this.#sandbox, this.#work);
  }

  /** The live sandbox while the attempt runs, for an attached window. */
  get sandbox(): Sandbox | undefined {
    return this.#sandbox.channel;
  }
  /** True while it waits for an observation, and a few looks have not brought it. */
  get stuck(): boolean {
    return this.#tries >= stuckTries && this.#record.state.phase === 'cancellation_pending';
  }
  /** True when looking again has not helped for a while. */
  get exhausted(): boolean {
    return this.#tries >= patientTries;
  }

  /** Ends the drive where it waits next, without an end of the attempt: the next Kernel takes it over. */
  leave(): void {
    this.#left = true;
    this.#nudge?.();
  }
  /** Looks again now at what could not be observed. */
  nudge(): void {
    this.#nudge?.();
  }

  /**
   * Begins settlement: the token is advanced durably first, then the work is aborted. The first trigger stands. Never
   * throws: what can't be recorded now is owed, and the work ends all the same.
   */
  settle(trigger: SettlementTrigger): void {
    try {
      if (this.#owed === undefined) this.#record.write({ kind: 'settle', trigger });
    } catch (error) {
      this.#owed ??= { kind: 'settle', trigger };
      this.#complain('settlement began without a record', error);
    }
    this.#work.abort();
  }

  /** Resolves when the attempt is settled. Never rejects: what can't be recorded is retried, the stop is attempted anyway. */
  async drive(): Promise<void> {
    while (!this.#left) {
      const effect = next(this.#record.state);
      if (effect.kind === 'none') return;
      this.#deps.at(`before-${effect.kind}`);
      try {
        await this.#carryOut(effect);
        this.#deps.at(`after-${effect.kind}`);
      } catch (error) {
        // A later Kernel owns this attempt and its container now: nothing of it is touched any more.
        if (error instanceof StaleEpoch) {
          this.#work.abort();
          this.#sandbox.detach();
          this.#complain('a later Kernel has taken over', error);
          return;
        }
        await this.#recordingFailed(error);
      }
    }
  }

  async #carryOut(effect: Exclude<Effect, { kind: 'none' }>): Promise<void> {
    switch (effect.kind) {
      case 'provision':
        if (!this.#recordOwed()) await this.#work.provision();
        return;
      case 'work':
        if (!this.#recordOwed()) await this.#work.run();
        return;
      case 'quiesce':
        return this.#settlement.quiesce();
      case 'collect':
        return this.#settlement.collect();
      case 'stop':
        return this.#settlement.stop();
      case 'release':
        return this.#settlement.release();
      case 'finish':
        return this.#settlement.finish();
      case 'observe':
        await this.#pause();
        if (!this.#left && (await this.#settlement.observe())) this.#tries = 0;
        return;
      default:
        unreachable(effect, 'effect');
    }
  }

  /** True when something was owed and is recorded now; throws while it can't be. */
  #recordOwed(): boolean {
    if (this.#owed === undefined) return false;
    this.#record.write(this.#owed);
    this.#owed = undefined;
    return true;
  }

  /** The record could not be written (disk full, allowance). The stop is attempted all the same, then recording again. */
  async #recordingFailed(error: unknown): Promise<void> {
    this.#complain('an attempt could not be recorded', error);
    this.#deps.unrecorded();
    this.#work.abort();
    const state = this.#record.state;
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
        this.#complain('nor could its end', again);
      }
    } else if (state.phase === 'collecting' && storage) {
      // The bytes do not fit the session's allowance: the record says so, and goes on to the stop.
      try {
        this.#record.write({ kind: 'collected', collection: nothingCollected('storage_full') });
        return;
      } catch (again) {
        this.#complain('nor could the loss of its bytes', again);
      }
    }
    await this.#sandbox.killUnrecorded();
    await this.#pause();
  }

  #complain(what: string, error: unknown): void {
    this.#deps.log('error', what, { attempt: this.#record.attempt, error: messageOf(error) });
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
