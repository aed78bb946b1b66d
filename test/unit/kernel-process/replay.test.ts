// A client that was away, with a history behind it: the composed Kernel, without a container engine.
import { rm } from 'node:fs/promises';
import { afterEach, expect, it } from 'vitest';
import type { EvidenceEvent } from '../../../src/protocol/views.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { endKernel, makeHome, startTestKernel, type TestKernel } from '../../fixtures/kernel.ts';
import { fillStore } from '../../fixtures/session-crowd.ts';

let kernel: TestKernel | undefined;
let home: string | undefined;
afterEach(async () => {
  await kernel?.dispose();
  if (home !== undefined) {
    await endKernel(home);
    await rm(home, { recursive: true, force: true });
  }
});

it('gets what it missed in order, a snapshot where that is too much, and sees every later event once', async () => {
  home = await makeHome();
  const store = openStore({ home, now: Date.now });
  const events = fillStore(store, { sessions: 40, events: 800 });
  store.close();
  kernel = await startTestKernel({ home });
  const client = kernel.kernel;
  const missed = await client.call('evidence/subscribe', { lastSeenSeq: events - 10 });
  expect(missed.snapshot).toBe(false);
  expect(missed.events.map((e) => e.seq)).toEqual(Array.from({ length: 10 }, (_, i) => events - 9 + i));
  const much = await client.call('evidence/subscribe', { lastSeenSeq: 0 });
  expect(much).toMatchObject({ snapshot: true, seq: events, events: [] });
  // A log that is shorter than what the client saw (a restored backup) is another log: start anew.
  const ahead = await client.call('evidence/subscribe', { lastSeenSeq: events + 5 });
  expect(ahead).toMatchObject({ snapshot: true, seq: events });

  const heard: EvidenceEvent[] = [];
  const enough = new Promise<void>((resolve) => {
    client.on('evidence/events', ({ events: some }) => {
      heard.push(...some);
      if (heard.length >= 3) resolve();
    });
  });
  const { sessions } = await client.call('session/list', { limit: 3 });
  for (const { id } of sessions) {
    const { token } = await client.call('session/attach', { session: id, mode: 'control' });
    if (token === null) throw new Error('no token');
  }
  await enough;
  expect(heard.slice(0, 3).map((e) => e.seq)).toEqual([events + 1, events + 2, events + 3]);
  // Another client that comes now gets exactly those.
  const late = await kernel.connect();
  const caught = await late.call('evidence/subscribe', { lastSeenSeq: events });
  expect(caught.events.slice(0, 3)).toEqual(heard.slice(0, 3));
});
