import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import type { ClientId, FencingToken, SessionId } from '../../../src/protocol/primitives.ts';
import type { SettlementTrigger } from '../../../src/protocol/attempt.ts';
import type { ConnectedClient } from '../../../src/server/rpc/port.ts';
import { Control } from '../../../src/server/session/control.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { basis, ids, limit } from '../../fixtures/session.ts';

let home: string;
let store: Store;
let sessions: Sessions;
const create = (): SessionId => sessions.create(basis).id;
const runToEnd = (id: SessionId, attempt = ids.attempt): void => {
  sessions.execute(id, { kind: 'queue', attempt, feedback: null, token: null });
  sessions.execute(id, { kind: 'reserve', holder: 'k' });
  sessions.execute(id, { kind: 'settle', attempt, trigger: 'cancel' });
  sessions.execute(id, { kind: 'finish-settlement', attempt, candidate: null });
};

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'escrow-sessions-'));
  store = openStore({ home, now: () => 1000 });
  sessions = new Sessions(store, () => 0);
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

describe('sessions on a real store', () => {
  it('a later Kernel folds the same state from the events', () => {
    const id = create();
    sessions.execute(id, { kind: 'queue', attempt: ids.attempt, feedback: 'words', token: null });
    sessions.execute(id, { kind: 'reserve', holder: 'k' });
    sessions.execute(id, { kind: 'provision', attempt: ids.attempt, container: 'c' });
    sessions.execute(id, { kind: 'limits', attempt: ids.attempt, limits: [limit] });
    const before = sessions.get(id);
    store.close();
    store = openStore({ home, now: () => 2000 });
    sessions = new Sessions(store, () => 0);
    expect(sessions.get(id)).toEqual(before);
    expect(sessions.open()).toEqual([id]);
  });

  it('counts attempts over sessions: opening another one resets nothing, a recorded decision extends', () => {
    const first = create();
    runToEnd(first);
    const second = create();
    runToEnd(second);
    const third = create();
    const queue = { kind: 'queue', attempt: ids.other, feedback: null, token: null } as const;
    expect(() => sessions.execute(third, queue)).toThrow(expect.objectContaining({ code: 'BudgetSpent' }));
    sessions.execute(third, { kind: 'extend-budget', attempts: 1, by: 'reviewer', channel: 'tty' });
    expect(sessions.execute(third, queue).queued?.number).toBe(3);
  });

  it('rows that another version made are made anew from the events, a damaged session keeps nobody from the others', () => {
    const done = create();
    runToEnd(done);
    const open = create();
    sessions.execute(open, { kind: 'queue', attempt: ids.other, feedback: null, token: null });
    sessions.execute(open, { kind: 'extend-budget', attempts: 3, by: 'reviewer', channel: 'tty' });
    store.append(`session:ses_${'0'.repeat(20)}`, 0, [{ type: 'session.closed', data: { reason: 'no beginning' } }]);
    const rows = (): unknown => (['session', 'open', 'ledger'] as const).map((kind) => store.views(kind));
    const before = rows();
    store.close();
    const raw = new Database(join(home, 'escrow.db'));
    raw.exec("DELETE FROM view; UPDATE meta SET value = 0 WHERE key = 'projection:session'");
    raw.close();
    store = openStore({ home, now: () => 1000 });
    sessions = new Sessions(store, () => 0);
    expect(rows()).toEqual(before);
    expect(sessions.open()).toEqual([open]);
  });

  it('lists from the projection and knows what is open', () => {
    const done = create();
    runToEnd(done);
    expect(sessions.open()).toEqual([]);
    expect(sessions.summaries({ root: '/repo' })).toMatchObject([{ id: done, outcome: 'cancelled', state: 'waiting' }]);
    expect(sessions.summaries({ root: '/elsewhere' })).toEqual([]);
  });

  it('an unknown session is a typed error', () => {
    expect(() => sessions.get('ses_ffffffffffffffffffff' as SessionId)).toThrow(
      expect.objectContaining({ code: 'NotFound' }),
    );
  });
});

describe('control', () => {
  let settled: [SessionId, SettlementTrigger][];
  let control: Control;
  let connection = 0;
  const client = (id: string, patch: Partial<ConnectedClient['hello']> = {}): ConnectedClient => {
    connection += 1;
    return {
      connection,
      clientId: id as ClientId,
      hello: { kind: 'window', name: id, version: '0', clientId: id, onClose: 'settle', graceMs: 20_000, ...patch },
      protocol: 1,
      notify: () => undefined,
      ask: () => Promise.resolve(undefined),
    };
  };
  const running = (): SessionId => {
    const id = create();
    sessions.execute(id, { kind: 'queue', attempt: ids.attempt, feedback: null, token: null });
    sessions.execute(id, { kind: 'reserve', holder: 'k' });
    return id;
  };

  beforeEach(() => {
    vi.useFakeTimers();
    settled = [];
    control = new Control({
      log: () => undefined,
      sessions,
      settle: (id, trigger) => settled.push([id, trigger]),
      controlChanged: () => undefined,
      expectationsChanged: () => undefined,
      uiUnreachableMs: 300_000,
      now: () => 1000,
    });
  });
  afterEach(() => {
    control.dispose();
    vi.useRealTimers();
  });

  it('settles when the grace has passed, not before, and frees control', () => {
    const id = running();
    const window = client('window-a');
    control.connected(window);
    control.attach(window, id, 'control', false);
    control.gone(window);
    vi.advanceTimersByTime(19_999);
    expect(settled).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(settled).toEqual([[id, 'window_close']]);
    expect(sessions.get(id).controller).toBeNull();
  });

  it('a reload comes back under the same client id: the end of the older connection means nothing', () => {
    const id = running();
    const older = client('window-a');
    control.connected(older);
    const token = control.attach(older, id, 'control', false);
    control.closing(older);
    const newer = client('window-a');
    control.connected(newer);
    expect(control.attach(newer, id, 'control', false)).toBe((token ?? 0) + 1);
    control.closing(older);
    control.gone(older);
    vi.advanceTimersByTime(60_000);
    expect(settled).toEqual([]);
    expect(control.view(sessions.get(id))).toMatchObject({ connected: true });
  });

  it('a second window observes; it gets control only by taking over or after the first has gone', () => {
    const id = running();
    const first = client('window-a');
    const second = client('window-b');
    control.connected(first);
    control.connected(second);
    const token = control.attach(first, id, 'control', false) as FencingToken;
    expect(() => control.attach(second, id, 'control', false)).toThrow(
      expect.objectContaining({ code: 'NotController' }),
    );
    control.attach(second, id, 'observe', false);
    expect(control.observers(id)).toBe(1);
    control.attach(second, id, 'control', true);
    expect(() => control.check(first, sessions.get(id), token, 'cancel')).toThrow(EscrowError);
    expect(store.load(`session:${id}`).at(-1)?.type).toBe('request.refused');
  });

  it('a client that goes on with a stale token is refused each time and recorded a bounded number of times', () => {
    const id = create();
    for (let n = 0; n < 250; n += 1) sessions.recordRefusal(id, 'session/cancel', 'a client', 'Stale.');
    const refusals = (): string[] =>
      store
        .load(`session:${id}`)
        .flatMap((e) => (e.type === 'request.refused' ? [(e.data as { reason: string }).reason] : []));
    expect(refusals()).toHaveLength(100);
    expect(refusals().slice(-2)).toEqual(['Stale.', 'Stale. No further refusal of this session is recorded.']);
    // A later Kernel counts on from the record.
    sessions = new Sessions(store, () => 0);
    sessions.recordRefusal(id, 'session/cancel', 'a client', 'Stale.');
    expect(refusals()).toHaveLength(100);
    // Everything else goes on being recorded.
    sessions.execute(id, { kind: 'queue', attempt: ids.attempt, feedback: null, token: null });
    expect(sessions.get(id).queued?.attempt).toBe(ids.attempt);
  });

  it('a window that cannot be proven settles under its own name', () => {
    const id = running();
    const window = client('window-a');
    control.connected(window);
    control.attach(window, id, 'control', false);
    control.presence(window, 'unreachable', 299_999);
    expect(settled).toEqual([]);
    control.presence(window, 'unreachable', 300_000);
    expect(settled).toEqual([[id, 'ui_unreachable']]);
  });

  it('finishAttempt lets the running attempt go on', () => {
    const id = running();
    const window = client('window-a', { onClose: 'finishAttempt' });
    control.connected(window);
    control.attach(window, id, 'control', false);
    control.gone(window);
    vi.advanceTimersByTime(20_000);
    expect(settled).toEqual([]);
    expect(sessions.get(id).controller).toBeNull();
  });
});
