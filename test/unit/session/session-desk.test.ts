// What a desk may begin, over the real record; no attempt runs here: a driver that is asked for says so.
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { SessionId } from '../../../src/protocol/primitives.ts';
import { SessionDesk, type SessionDeskDeps } from '../../../src/server/session/session-desk.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import { Slots } from '../../../src/server/session/slots.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { Tasks } from '../../../src/server/tasks.ts';
import { basis, ids } from '../../fixtures/session.ts';

let home: string;
let store: Store;
let sessions: Sessions;
let id: SessionId;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-desk-'));
  store = openStore({ home, now: () => 1000 });
  sessions = new Sessions(store, () => 0);
  id = sessions.create(basis).id;
  sessions.execute(id, { kind: 'queue', attempt: ids.attempt, feedback: null, token: null });
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

/** Attempts for which a driver was asked for after a start of the Kernel. */
async function begunBy(mayBegin: boolean): Promise<string[]> {
  const begun: string[] = [];
  const tasks = new Tasks(() => undefined);
  const desk = new SessionDesk({
    sessions,
    tasks,
    slots: new Slots(1, () => undefined),
    mayBegin: () => mayBegin,
    changed: () => undefined,
    candidateHeld: () => undefined,
    holder: 'k',
    driver: (_: SessionId, attempt: string) => {
      begun.push(attempt);
      return { drive: () => Promise.resolve(), settle: () => undefined };
    },
  } as unknown as SessionDeskDeps);
  desk.reconcile();
  await tasks.settled(10_000);
  return begun;
}

it('an attempt that waited for nobody goes on at the next start', async () => {
  expect(await begunBy(true)).toEqual([ids.attempt]);
});

it('while execution is turned off it stays waiting; an attempt of an earlier Kernel is settled all the same', async () => {
  expect(await begunBy(false)).toEqual([]);
  expect(sessions.get(id).queued?.attempt).toBe(ids.attempt);
  sessions.execute(id, { kind: 'reserve', holder: 'an earlier Kernel' });
  expect(await begunBy(false)).toEqual([ids.attempt]);
});
