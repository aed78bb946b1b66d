import { setImmediate as settled } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { ClientId } from '../../../src/protocol/primitives.ts';
import type { EvidenceEvent, SessionView } from '../../../src/protocol/views.ts';
import { KernelObserver } from '../../../src/extension/kernel/kernel-observer.ts';
import { StateStore } from '../../../src/extension/window-state.ts';
import { ids } from '../../fixtures/session.ts';
import { kernelStatus, sessionView } from '../../fixtures/window-state.ts';

/** A window's observer on a Kernel that is no more than a record: the sessions that it has, and its head. */
function observe() {
  const store = new StateStore();
  const kernel = { sessions: [] as SessionView[], head: 0, refuses: undefined as string | undefined };
  const asked: string[] = [];
  const errors: string[] = [];
  const find = (session: string | undefined): SessionView => {
    const found = kernel.sessions.find(({ id }) => id === session);
    if (found === undefined) throw new EscrowError('NotFound', 'no such session', '');
    return found;
  };
  const answers: Record<string, (params: { session?: string; lastSeenSeq?: number }) => unknown> = {
    'evidence/subscribe': ({ lastSeenSeq = 0 }) => ({
      seq: kernel.head,
      snapshot: lastSeenSeq > kernel.head,
      events: [],
    }),
    'kernel/status': () => kernelStatus(),
    'kernel/models': () => ({ models: [], silent: [] }),
    'session/list': () => ({ sessions: [] }),
    'contract/get': () => ({}),
    'window/away': () => ({ since: null, items: [] }),
    'workspace/list': ({ session }) => find(session) && { source: { kind: 'snapshot' }, files: [] },
    'session/get': ({ session }) => find(session),
  };
  const link = {
    request: async (method: string, params: object) => {
      asked.push(method);
      await Promise.resolve();
      if (method === kernel.refuses) throw new EscrowError('Internal', 'no such column', '');
      const answer = answers[method];
      if (answer === undefined) throw new Error(`not expected: ${method}`);
      return answer(params);
    },
  };
  const observer = new KernelObserver({
    store,
    link: link as unknown as ConstructorParameters<typeof KernelObserver>[0]['link'],
    clientId: ClientId.parse(`window-${'0'.repeat(24)}`),
    awaySince: null,
    now: () => 0,
    logError: (what, error) => errors.push(`${what}: ${String(error)}`),
    onEvents: () => undefined,
    onAway: () => undefined,
    onControlLost: () => undefined,
  });
  const connect = (): Promise<void> => {
    store.update({ connection: { kind: 'connected', updatePending: false, catchingUp: true, answering: true } });
    return observer.connected();
  };
  return { store, kernel, asked, errors, observer, connect };
}

test('of two answers that cross, the newer one stays', async () => {
  const { store, observer, connect } = observe();
  await connect();
  observer.put(sessionView({ seq: 9, state: 'waiting' }));
  observer.put(sessionView({ seq: 8, state: 'running' }));
  expect(store.state.sessions.get(ids.session)?.value.state).toBe('waiting');
});

test('a Kernel with a restored record is believed, though its record is older than what the window saw', async () => {
  const { store, kernel, errors, observer, connect } = observe();
  kernel.head = 50;
  await connect();
  observer.put(sessionView({ seq: 50, state: 'running' }));
  kernel.head = 20;
  kernel.sessions = [sessionView({ seq: 20, state: 'closed' })];
  await connect();
  expect(store.state.sessions.get(ids.session)?.value.state).toBe('closed');
  expect(errors).toEqual([]);
});

test('a session that the record does not have any more is not shown', async () => {
  const { store, kernel, errors, observer, connect } = observe();
  kernel.sessions = [sessionView({ state: 'running' })];
  await connect();
  await observer.refresh(ids.session);
  await observer.watchWorkspace(ids.session);
  expect([store.state.sessions.size, store.state.workspaces.size]).toEqual([1, 1]);
  kernel.sessions = [];
  await connect();
  expect(store.state.sessions.size).toBe(0);
  expect(store.state.workspaces.size).toBe(0);
  expect(errors).toEqual([]);
});

test('the listing of a workspace is asked for again after a new connection', async () => {
  const { kernel, asked, observer, connect } = observe();
  kernel.sessions = [sessionView()];
  await connect();
  await observer.refresh(ids.session);
  await observer.watchWorkspace(ids.session);
  asked.length = 0;
  await connect();
  expect(asked).toContain('workspace/list');
});

test('what was refused is remembered with why, asked for again, and forgotten once it was answered', async () => {
  const { store, kernel, errors, observer, connect } = observe();
  kernel.sessions = [sessionView()];
  await connect();
  kernel.refuses = 'session/get';
  await observer.refresh(ids.session);
  expect([...store.state.unrefreshed]).toEqual([[ids.session, expect.objectContaining({ code: 'Internal' })]]);
  expect(errors).toHaveLength(1);
  kernel.refuses = undefined;
  observer.retry();
  await observer.refresh(ids.session);
  expect(store.state.unrefreshed.size).toBe(0);
});

test('a connection that ended refuses nothing: what it leaves open is not marked on its own', async () => {
  const { store, observer, kernel, connect } = observe();
  await connect();
  kernel.refuses = 'kernel/status';
  await observer.refresh('status');
  expect(store.state.unrefreshed.has('status')).toBe(true);
  kernel.refuses = undefined;
  await connect();
  expect(store.state.unrefreshed.size).toBe(0);
});

test('missed events whose question was refused are asked for again, and meanwhile nothing is shown as so', async () => {
  const { store, kernel, asked, errors, observer, connect } = observe();
  kernel.head = 5;
  await connect();
  const event = (seq: number): EvidenceEvent =>
    ({ seq, stream: 'kernel', at: seq, type: 'x', data: {} }) as unknown as EvidenceEvent;
  const catchingUp = (): unknown => store.state.connection.kind === 'connected' && store.state.connection.catchingUp;
  kernel.head = 9;
  kernel.refuses = 'evidence/subscribe';
  observer.receive('evidence/events', { events: [event(9)] });
  // This Kernel answers in the same turn.
  await settled();
  expect(errors).toHaveLength(1);
  expect(catchingUp()).toBe(true);
  const before = asked.length;
  kernel.refuses = undefined;
  observer.retry();
  await settled();
  expect(catchingUp()).toBe(false);
  expect(asked.slice(before)).toContain('evidence/subscribe');
  // Caught up: nothing more is asked.
  const after = asked.length;
  observer.retry();
  expect(asked.length).toBe(after);
});

test('events that are missed while the views are brought are asked for, too', async () => {
  const { store, kernel, asked, observer, connect } = observe();
  kernel.head = 5;
  await connect();
  const event = (seq: number): EvidenceEvent =>
    ({ seq, stream: 'kernel', at: seq, type: 'x', data: {} }) as unknown as EvidenceEvent;
  kernel.head = 9;
  asked.length = 0;
  const stop = store.onChange((state, before) => {
    if (state.status === before.status) return;
    stop.dispose();
    kernel.head = 20;
    observer.receive('evidence/events', { events: [event(20)] });
  });
  observer.receive('evidence/events', { events: [event(9)] });
  // This Kernel answers in the same turn.
  await settled();
  expect(kernel.head).toBe(20);
  expect(store.state.connection).toMatchObject({ catchingUp: false });
  observer.retry();
  await settled();
  expect(asked.filter((method) => method === 'evidence/subscribe')).toHaveLength(2);
});
