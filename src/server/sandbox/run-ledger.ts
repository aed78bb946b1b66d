import type { SessionId, WallTime } from '../../protocol/primitives.ts';
import type { Json, Store, StoredEvent } from '../store/port.ts';
import type { AbsenceObservation, ProvisionFact, SandboxService, StopObservation } from './port.ts';

export type RunPurpose = 'baseline' | 'verification';

/** What is recorded of a run before its container exists. */
export interface RunIntent {
  readonly purpose: RunPurpose;
  readonly container: string;
  readonly session: SessionId | null;
  /** Contract or candidate digest. */
  readonly subject: string;
}

interface RunRow extends RunIntent {
  readonly version: number;
  readonly engineId: string | null;
  readonly stopped: boolean;
  readonly absent: boolean;
}

/**
 * The durable record of sandboxes that are not attempts: intent → effect → observation, on a stream of its own, so that
 * a container of a dead Kernel is found by name and its end is observed, whatever became of the result.
 */
export class RunLedger {
  readonly #store: Store;
  readonly #now: () => WallTime;

  constructor(store: Store, now: () => WallTime) {
    this.#store = store;
    this.#now = now;
  }

  intend(run: string, intent: RunIntent): void {
    this.#append(run, { ...intent, version: 0, engineId: null, stopped: false, absent: false }, 'run.intended', {
      ...intent,
    });
  }
  provisioned(run: string, fact: ProvisionFact): void {
    if (fact.kind !== 'created') return;
    this.#append(run, { ...this.#row(run), engineId: fact.engineId }, 'run.created', { engineId: fact.engineId });
  }
  stopped(run: string, seen: StopObservation): void {
    const row = this.#row(run);
    if (!row.stopped) this.#append(run, { ...row, stopped: seen.kind !== 'unconfirmed' }, 'run.stop', stopData(seen));
  }
  absent(run: string, seen: AbsenceObservation): void {
    const row = this.#row(run);
    if (!row.absent) this.#append(run, { ...row, absent: seen.kind === 'absent' }, 'run.release', { ...seen });
  }

  /** Runs whose container has not been seen absent, by any Kernel. */
  live(): readonly string[] {
    return this.#store.views('run', { root: 'live', limit: 100_000 }).map((row) => row.key);
  }

  /** How far the record of a run has come; undefined: there is none. */
  recorded(run: string): 'live' | 'settled' | undefined {
    const row = this.#store.view('run', run);
    return row === undefined ? undefined : (row.json as unknown as RunRow).absent ? 'settled' : 'live';
  }

  /** Throws for a run that was never intended. */
  intentOf(run: string): RunIntent {
    return this.#row(run);
  }

  /** Kills, confirms and removes what a run left behind. True when its absence was seen. */
  async settle(run: string, sandbox: SandboxService): Promise<boolean> {
    const row = this.#row(run);
    const target = row.engineId ?? row.container;
    const stop = await sandbox.kill(target);
    this.stopped(run, stop);
    if (stop.kind === 'unconfirmed') return false;
    const absence = await sandbox.remove(target);
    this.absent(run, absence);
    return absence.kind === 'absent';
  }

  #row(run: string): RunRow {
    const row = this.#store.view('run', run);
    if (row === undefined) throw new Error(`run ${run} was never intended`);
    return row.json as unknown as RunRow;
  }

  #append(run: string, after: Omit<RunRow, 'version'> & { readonly version: number }, type: string, data: Json): void {
    this.#store.append(`run:${run}`, after.version, [{ type, data }], (stored: readonly StoredEvent[]) => {
      const row: RunRow = { ...after, version: stored.at(-1)?.version ?? after.version };
      const at = this.#now();
      return [
        { kind: 'run', key: run, root: after.absent ? 'gone' : 'live', createdAt: at, updatedAt: at, json: { ...row } },
      ];
    });
  }
}

const stopData = (seen: StopObservation): Json =>
  seen.kind === 'stopped' ? { ...seen, oom: { ...seen.oom } } : { ...seen };
