import { EscrowError } from '../../protocol/errors.ts';
import { SessionId, type ArtefactRef, type AttemptId } from '../../protocol/primitives.ts';
import type { Logger } from '../log.ts';
import type { ObservedContainer, Salvage, SandboxService } from '../sandbox/port.ts';
import type { RunLedger } from '../sandbox/run-ledger.ts';
import { machineStream, type Intake, type Json, type Store } from '../store/port.ts';
import { engineStateOf, recordedStateOf, recoveryTable, type RecordedState } from './recovery-table.ts';
import type { SalvageBook, SalvageRecord } from './salvaged.ts';
import type { Sessions } from './sessions.ts';

/** A reader or an engine that fails once may not fail twice; an hour later nothing new is to be learned. */
const patientTries = 3;
const betweenTriesMs = 60_000;

/** What of a container is in the store; `whole` where all that was read found room. */
type Kept = Pick<SalvageRecord, 'files' | 'lost' | 'auditLog'> & { readonly whole: boolean };

export interface LeftoversDeps {
  readonly sandbox: SandboxService;
  readonly sessions: Sessions;
  readonly runs: RunLedger;
  readonly store: Store;
  readonly salvaged: SalvageBook;
  readonly monotonic: () => number;
  readonly log: Logger;
}

/**
 * Containers of ours that no driver owns any more: a create that the engine carried out after its Kernel had died and
 * the absence had been recorded, or one that somebody started again. Every one is mapped by the recovery table.
 */
export class Leftovers {
  readonly #deps: LeftoversDeps;
  #sweeping: Promise<void> | undefined;
  /** Of containers that could not be read out whole yet, by engine id. */
  readonly #tries = new Map<string, { readonly count: number; readonly at: number }>();

  constructor(deps: LeftoversDeps) {
    this.#deps = deps;
  }

  /**
   * Stops and removes what the record says is over, and what no record knows once it was read out as far as it can be.
   * Both are recorded. An engine without an answer changes nothing.
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
    for (const engineId of this.#tries.keys()) {
      if (!listed.some((c) => c.engineId === engineId)) this.#tries.delete(engineId);
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

  /** Its bytes are durable and on record before it is stopped; what can't be read whole is given a few tries before. */
  async #salvage(container: ObservedContainer): Promise<void> {
    const { sandbox, salvaged, log, monotonic } = this.#deps;
    const { name, engineId, owner, session, purpose } = container;
    const before = this.#tries.get(engineId) ?? { count: 0, at: -Infinity };
    if (monotonic() - before.at < betweenTriesMs) return;
    const tries = before.count + 1;
    const intake = this.#deps.store.artefacts.intake(keeper(name));
    const read = await sandbox.salvage(engineId, intake);
    this.#tries.set(engineId, { count: tries, at: monotonic() });
    try {
      const { whole, ...kept } = await this.#keep(name, read, intake);
      const fault = read.fault ?? (whole ? null : 'no room');
      if (fault !== null && tries < patientTries) {
        log('warn', 'a container that no record knows could not be read out: it is tried again', {
          name,
          fault,
          tries,
        });
        return;
      }
      salvaged.record({ name, engineId, owner, session, purpose, fault, tries, ...kept });
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      // Where nothing can be recorded, the container is the only one who has the bytes.
      log('warn', 'what a container holds that no record knows could not be kept', { name, reason: error.message });
      return;
    }
    await this.#remove(container);
  }

  /** Keeps what finds room, and ends the intake. Throws EscrowError StorageUnwritable. */
  async #keep(name: string, read: Salvage, intake: Intake): Promise<Kept> {
    const refused = new Map(read.files.map(({ path, sha256 }) => [path, intake.refusal(sha256)]));
    try {
      const worse = [...refused.values()].find((reason) => reason !== undefined && !isFull(reason));
      if (worse !== undefined) throw worse;
      const fitting = read.files.filter(({ path }) => refused.get(path) === undefined);
      await intake.commit(fitting.map(({ sha256 }) => sha256));
    } catch (error) {
      if (!isFull(error)) throw error;
      // The disk is full, which is told when they are to be durable: of all of them together.
      for (const { path } of read.files) refused.set(path, new Error('no room'));
    } finally {
      intake.drop();
    }
    const lost = read.files.map(({ path }) => path).filter((path) => refused.get(path) !== undefined);
    const files = read.files.filter(({ path }) => refused.get(path) === undefined);
    let auditLog: ArtefactRef | null = null;
    try {
      if (read.auditLog !== null) auditLog = await this.#deps.store.artefacts.put(read.auditLog, keeper(name));
    } catch (error) {
      if (!isFull(error)) throw error;
    }
    const logLost = read.auditLog !== null && auditLog === null;
    return { files, lost, auditLog, whole: lost.length === 0 && !logLost };
  }

  #record(type: string, data: Json): void {
    const { store } = this.#deps;
    store.append(machineStream, store.version(machineStream), [{ type, data }]);
  }

  /** Undefined: somebody owns it, a driver, the ledger of runs, or a preparation of an image. */
  #recorded(container: ObservedContainer): RecordedState | undefined {
    if (container.purpose === null) return undefined;
    const recorded = this.#ofOwner(container);
    if (recorded !== 'no_record') return recorded;
    return this.#deps.salvaged.has(container.engineId) ? 'salvaged' : recorded;
  }

  #ofOwner(container: ObservedContainer): RecordedState | undefined {
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

/** Who keeps what was read out of a container that no record knows. */
const keeper = (name: string): string => `container:${name}`;

const isFull = (error: unknown): boolean => EscrowError.is(error, 'StorageFull');
