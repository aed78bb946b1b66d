import { SessionId, type AttemptId } from '../../protocol/primitives.ts';
import type { Logger } from '../log.ts';
import type { ObservedContainer, SandboxService } from '../sandbox/port.ts';
import type { RunLedger } from '../sandbox/run-ledger.ts';
import { machineStream, type Store } from '../store/port.ts';
import { engineStateOf, recordedStateOf, recoveryTable, type RecordedState } from './recovery-table.ts';
import type { Sessions } from './sessions.ts';

export interface LeftoversDeps {
  readonly sandbox: SandboxService;
  readonly sessions: Sessions;
  readonly runs: RunLedger;
  readonly store: Store;
  readonly log: Logger;
}

/**
 * Containers of ours that no driver owns any more: a create that the engine carried out after its Kernel had died and
 * the absence had been recorded, or one that somebody started again. Every one is mapped by the recovery table.
 */
export class Leftovers {
  readonly #deps: LeftoversDeps;
  #sweeping: Promise<void> | undefined;

  constructor(deps: LeftoversDeps) {
    this.#deps = deps;
  }

  /** Stops and removes what the record says is over, and records that. An engine without an answer changes nothing. */
  async sweep(): Promise<void> {
    this.#sweeping ??= this.#sweep().finally(() => {
      this.#sweeping = undefined;
    });
    await this.#sweeping;
  }

  /** What the engine says of an attempt's container, in the words of the table's columns. */
  async sees(session: SessionId, attempt: AttemptId): Promise<string> {
    const container = this.#deps.sessions.get(session).attempts.find((a) => a.id === attempt)?.container ?? null;
    if (container === null) return 'absent';
    try {
      const all = await this.#deps.sandbox.list();
      const mine = all.find(
        (c) =>
          c.ours && (c.engineId === container.engineId || (container.engineId === null && c.name === container.name)),
      );
      return engineStateOf(mine);
    } catch {
      return 'no_answer';
    }
  }

  async #sweep(): Promise<void> {
    const { sandbox, store, log } = this.#deps;
    let listed: readonly ObservedContainer[];
    try {
      listed = await sandbox.list();
    } catch {
      return;
    }
    for (const container of listed.filter((c) => c.ours)) {
      const recorded = this.#recorded(container);
      if (recorded === undefined || recoveryTable[recorded][engineStateOf(container)] !== 'sweep') continue;
      const stop = await sandbox.kill(container.engineId);
      // Its owner removed it since it was listed: nothing was left.
      if (stop.kind === 'absent') continue;
      const absence = stop.kind === 'unconfirmed' ? undefined : await sandbox.remove(container.engineId);
      const data = {
        name: container.name,
        engineId: container.engineId,
        owner: container.owner,
        found: container.state,
        stop: stop.kind,
        absence: absence?.kind ?? 'not_tried',
      };
      log('warn', 'swept a leftover container', data);
      const version = store.load(machineStream).at(-1)?.version ?? 0;
      store.append(machineStream, version, [{ type: 'container.swept', data }]);
    }
  }

  /** Undefined: somebody owns it, a driver or the ledger of runs. */
  #recorded(container: ObservedContainer): RecordedState | undefined {
    const { sessions, runs } = this.#deps;
    if (container.purpose === 'attempt') {
      const session = SessionId.safeParse(container.session);
      if (!session.success) return 'no_record';
      try {
        const attempt = sessions.get(session.data).attempts.find((a) => a.id === container.owner);
        const recorded = recordedStateOf(attempt);
        return recorded === 'settled' || recorded === 'no_record' ? recorded : undefined;
      } catch {
        return 'no_record';
      }
    }
    const run = runs.recorded(container.owner ?? '');
    return run === 'live' ? undefined : run === 'settled' ? 'settled' : 'no_record';
  }
}
