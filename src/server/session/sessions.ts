import { randomBytes } from 'node:crypto';
import { EscrowError } from '../../protocol/errors.ts';
import { SessionId, type WallTime } from '../../protocol/primitives.ts';
import type { SessionSummary } from '../../protocol/views.ts';
import type { Json, Store, StoredEvent, ViewRow } from '../store/port.ts';
import type { Command } from './commands.ts';
import { decide } from './decide.ts';
import type { RecordedEvent, SessionBasis, SessionEvent } from './events.ts';
import { countedIn, ledgerRow, ledgerSum, noLedger, readLedger, type Ledger } from './ledger.ts';
import { begin, evolve, fold } from './evolve.ts';
import type { SessionState } from './state.ts';
import { isOpen, sessionSummary } from './view.ts';

/**
 * Version of the rows that sessions are listed and found open by. Raised whenever what they hold changes: they are then
 * written anew from the events.
 */
const projection = 2;
/** Of one session; a client that goes on with a stale token must not fill the record. The last one says so. */
const recordedRefusals = 100;
/** Folded sessions kept in memory; an older one is folded again when asked for. */
const cached = 256;

const streamOf = (id: SessionId): string => `session:${id}`;
const recorded = (e: StoredEvent): RecordedEvent =>
  ({ type: e.type, data: e.data, at: e.at, seq: e.seq }) as unknown as RecordedEvent;

/** Undefined for a stream that is no session's: damage is `kernel verify`'s to tell, and keeps nobody from the others. */
function folded(stream: string, events: readonly StoredEvent[]): SessionState | undefined {
  const id = SessionId.safeParse(stream.slice('session:'.length));
  try {
    return id.success ? fold(id.data, events.map(recorded)) : undefined;
  } catch {
    return undefined;
  }
}

function rowsOf(state: SessionState): readonly ViewRow[] {
  const row = { createdAt: state.createdAt, updatedAt: state.updatedAt };
  return [
    { kind: 'session', key: state.id, root: state.root, ...row, json: sessionSummary(state) },
    { kind: 'open', key: state.id, root: isOpen(state) ? 'open' : 'done', ...row, json: null },
  ];
}

/** A fresh random id with a prefix, e.g. `ses_0f3k…` (20 hex digits: 80 bits). */
export function freshId(prefix: string): string {
  return `${prefix}_${randomBytes(10).toString('hex')}`;
}

/** The only writer of session streams: decides, appends and folds, synchronously, so that nothing interleaves. */
export class Sessions {
  readonly #store: Store;
  readonly #monotonic: () => number;
  readonly #states = new Map<SessionId, SessionState>();

  constructor(store: Store, monotonic: () => number) {
    this.#store = store;
    this.#monotonic = monotonic;
    store.reproject('session', projection, () => this.#everyRow());
  }

  /** Throws EscrowError NotFound. */
  get(id: SessionId): SessionState {
    const known = this.#states.get(id);
    if (known !== undefined) {
      this.#remember(id, known);
      return known;
    }
    const events = this.#store.load(streamOf(id));
    if (events.length === 0) {
      throw new EscrowError('NotFound', `There is no session ${id}.`, 'List the sessions and take an id from there.');
    }
    const state = fold(id, events.map(recorded));
    this.#remember(id, state);
    return state;
  }

  create(data: SessionBasis): SessionState {
    const id = SessionId.parse(freshId('ses'));
    const event: SessionEvent = { type: 'session.created', data };
    this.#append(id, undefined, [event]);
    return this.get(id);
  }

  /** Attempts counted and allowed for the session's contract and qualification key. */
  ledger(state: Pick<SessionState, 'contractDigest' | 'qualificationKey' | 'budget'>): {
    spent: number;
    allowed: number;
  } {
    const { spent, extended } = readLedger(this.#store, state.contractDigest, state.qualificationKey);
    return { spent, allowed: state.budget.attempts + extended };
  }

  /**
   * Carries a command out durably. Throws EscrowError when the decider refuses; a refusal for stale authority is itself
   * recorded.
   */
  execute(id: SessionId, command: Command): SessionState {
    const state = this.get(id);
    const decision = decide(state, command, {
      mono: this.#monotonic(),
      epoch: this.#store.epoch,
      ledger: this.ledger(state),
    });
    if (!decision.ok) {
      const { code, message, next } = decision.refusal;
      if (code === 'StaleAuthority') this.recordRefusal(id, command.kind, '', message);
      throw new EscrowError(code, message, next, { session: id });
    }
    return decision.events.length === 0 ? state : this.#append(id, state, decision.events);
  }

  /** Throws the EscrowError that `execute` would throw; writes nothing. */
  ask(id: SessionId, command: Command): void {
    const state = this.get(id);
    const now = { mono: this.#monotonic(), epoch: this.#store.epoch, ledger: this.ledger(state) };
    const decision = decide(state, command, now);
    if (!decision.ok)
      throw new EscrowError(decision.refusal.code, decision.refusal.message, decision.refusal.next, { session: id });
  }

  /**
   * Records a refusal for stale authority, also one that was made before the decider was asked. After the hundredth of
   * a session they are refused all the same, and no longer recorded.
   */
  recordRefusal(id: SessionId, what: string, by: string, reason: string): void {
    const state = this.get(id);
    if (state.refusals >= recordedRefusals) return;
    const last = state.refusals + 1 === recordedRefusals;
    const said = last ? `${reason} No further refusal of this session is recorded.` : reason;
    this.#append(id, state, [{ type: 'request.refused', data: { what, by, reason: said } }]);
  }

  summaries(filter: {
    root?: string;
    before?: WallTime;
    beforeKey?: string;
    limit?: number;
  }): readonly SessionSummary[] {
    return this.#store.views('session', filter).map((row) => row.json as unknown as SessionSummary);
  }

  /** Sessions that a Kernel has to carry on, whatever their number in all. */
  open(): readonly SessionId[] {
    return this.#store.views('open', { root: 'open', limit: 100_000 }).map((row) => SessionId.parse(row.key));
  }

  #append(id: SessionId, before: SessionState | undefined, events: readonly SessionEvent[]): SessionState {
    let after: SessionState | undefined;
    this.#store.append(
      streamOf(id),
      before?.version ?? 0,
      events as unknown as { type: string; data: Json }[],
      (stored) => {
        let state = before;
        for (const e of stored) state = state === undefined ? begin(id, recorded(e)) : evolve(state, recorded(e));
        if (state === undefined) return [];
        after = state;
        return this.#rows(state, stored);
      },
    );
    if (after === undefined) throw new Error('the store did not hand back what it stored');
    this.#remember(id, after);
    return after;
  }

  #rows(state: SessionState, stored: readonly StoredEvent[]): readonly ViewRow[] {
    const { contractDigest, qualificationKey, updatedAt } = state;
    const counted = countedIn(stored);
    if (counted.spent === 0 && counted.extended === 0) return rowsOf(state);
    const ledger = ledgerSum(readLedger(this.#store, contractDigest, qualificationKey), counted);
    return [...rowsOf(state), ledgerRow(contractDigest, qualificationKey, ledger, updatedAt)];
  }

  /** Every row of every session that can be folded, from the events alone; one that is damaged keeps its rows. */
  *#everyRow(): Generator<ViewRow> {
    const ledgers = new Map<string, { state: SessionState; ledger: Ledger; at: WallTime }>();
    for (const stream of this.#store.streams('session:')) {
      const events = this.#store.load(stream);
      const state = folded(stream, events);
      if (state === undefined) continue;
      yield* rowsOf(state);
      const key = `${state.contractDigest}:${state.qualificationKey}`;
      const before = ledgers.get(key);
      ledgers.set(key, {
        state,
        ledger: ledgerSum(before?.ledger ?? noLedger, countedIn(events)),
        at: Math.max(before?.at ?? 0, state.updatedAt),
      });
    }
    for (const { state, ledger, at } of ledgers.values())
      yield ledgerRow(state.contractDigest, state.qualificationKey, ledger, at);
  }

  #remember(id: SessionId, state: SessionState): void {
    this.#states.delete(id);
    this.#states.set(id, state);
    if (this.#states.size > cached) {
      const oldest = this.#states.keys().next().value;
      if (oldest !== undefined) this.#states.delete(oldest);
    }
  }
}
