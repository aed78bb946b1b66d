import { EscrowError } from '../../protocol/errors.ts';
import { SessionId, type AttemptId } from '../../protocol/primitives.ts';
import type { Logger } from '../log.ts';
import type { ObservedContainer, SandboxService } from '../sandbox/port.ts';
import type { RunLedger } from '../sandbox/run-ledger.ts';
import { machineStream, type Json, type Store } from '../store/port.ts';
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

  /**
   * Stops and removes what the record says is over; reads out and stops what no record knows. Both are recorded. An engine
   * without an answer changes nothing.
   */
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
    let listed: readonly ObservedContainer[];
    try {
      listed = await this.#deps.sandbox.list();
    } catch {
      return;
    }
    for (const container of listed.filter((c) => c.ours)) {
      const recorded = this.#recorded(container);
      if (recorded === undefined) continue;
      const action = recoveryTable[recorded][engineStateOf(container)];
      if (action === 'sweep') await this.#remove(container);
      if (action === 'salvage') await this.#salvage(container);
    }
  }

  async #remove(container: ObservedContainer): Promise<void> {
    const { sandbox, log } = this.#deps;
    const stop = await sandbox.kill(container.engineId);
    // Its owner removed it since it was listed: nothing was left.
    if (stop.kind === 'absent') return;
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
    this.#record('container.swept', data);
  }

  /** Its bytes are durable and on record before it is stopped; what can't be read whole goes on holding them. */
  async #salvage(container: ObservedContainer): Promise<void> {
    const { sandbox, store, log } = this.#deps;
    const { name, engineId, owner, session, purpose } = container;
    const { files, auditLog, fault } = await sandbox.salvage(engineId);
    if (fault !== null) {
      log('warn', 'a container that no record knows could not be read out: it is left as it is', { name, fault });
      return;
    }
    const keep = (bytes: Uint8Array) => store.artefacts.put(bytes, `container:${name}`);
    try {
      const kept: { path: string; mode: number; sha256: string; size: number }[] = [];
      for (const { path, mode, bytes } of files) kept.push({ path, mode, ...(await keep(bytes)) });
      const audit = auditLog === null ? null : { ...(await keep(auditLog)) };
      this.#record('container.salvaged', { name, engineId, owner, session, purpose, files: kept, auditLog: audit });
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      log('warn', 'no room for what a container holds that no record knows: it is left as it is', {
        name,
        reason: error.message,
      });
      return;
    }
    const stop = await sandbox.kill(engineId);
    log('warn', 'a container that no record knows was read out and stopped', { name, stop: stop.kind });
    this.#record('container.stopped', { name, engineId, stop: stop.kind });
  }

  #record(type: string, data: Json): void {
    const { store } = this.#deps;
    const version = store.load(machineStream).at(-1)?.version ?? 0;
    store.append(machineStream, version, [{ type, data }]);
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
