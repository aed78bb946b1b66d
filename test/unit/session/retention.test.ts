import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SessionId } from '../../../src/protocol/primitives.ts';
import { applyRetention, keepReason } from '../../../src/server/session/retention.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { ids } from '../../fixtures/session.ts';
import { fillStore } from '../../fixtures/session-crowd.ts';

let home: string;
let store: Store;
let sessions: Sessions;
let clock = 1_000;
let all: SessionId[];

beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-retention-'));
  clock = 1_000;
  store = openStore({ home, now: () => clock });
  fillStore(store, { sessions: 4, events: 80 });
  sessions = new Sessions(store, () => 0);
  all = sessions.summaries({}).map((s) => s.id);
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

const decide = (id: SessionId, kind: 'accept' | 'reject'): void => {
  const { candidates, verifications } = sessions.get(id);
  const candidate = candidates[0]!.digest;
  const verification = kind === 'accept' ? verifications[0]!.run : null;
  const decision = { kind, candidate, verification, reviewer: 'r', channel: 'tty', comment: '' } as const;
  sessions.execute(id, { kind: 'decide', decision });
};
const by = { name: 'ada', channel: 'tty' } as const;

describe('whose bytes may go', () => {
  it('nobody’s whose candidate waits for a decision, was accepted, or that is newer', () => {
    const [one, two] = all as [SessionId, SessionId];
    expect(keepReason(sessions.get(one), 5_000)).toBe('undecided');
    decide(one, 'accept');
    expect(keepReason(sessions.get(one), 5_000)).toBe('accepted');
    decide(two, 'reject');
    expect(keepReason(sessions.get(two), 5_000)).toBeNull();
    expect(keepReason(sessions.get(two), 1_000)).toBe('recent');
    sessions.execute(two, { kind: 'queue', attempt: ids.other, feedback: null, token: null });
    expect(keepReason(sessions.get(two), 5_000)).toBe('open');
  });
});

describe('retention', () => {
  it('is a preview until somebody decides it; then bytes go, events stay, and one says so', async () => {
    const [accepted, rejected, closed] = all as [SessionId, SessionId, SessionId];
    decide(accepted, 'accept');
    decide(rejected, 'reject');
    sessions.execute(closed, { kind: 'close', reason: 'x' });
    const own = await store.artefacts.put(Buffer.from('own bytes'), rejected);
    const kept = await store.artefacts.put(Buffer.from('accepted bytes'), accepted);
    const shared = await store.artefacts.put(Buffer.from('shared'), rejected);
    await store.artefacts.put(Buffer.from('shared'), accepted);
    clock = 10_000;
    const events = store.head();
    const preview = await applyRetention(sessions, store, { before: 5_000, by: undefined });
    expect(preview).toMatchObject({
      applied: false,
      artefacts: 1,
      bytes: 9,
      kept: { accepted: 1, undecided: 1, open: 0, recent: 0 },
    });
    expect(preview.sessions.map((s) => s.id).toSorted()).toEqual([rejected, closed].toSorted());
    expect(store.head()).toBe(events);
    await store.artefacts.get(own.sha256);

    const applied = await applyRetention(sessions, store, { before: 5_000, by });
    expect(applied).toMatchObject({ applied: true, artefacts: 1, bytes: 9 });
    await expect(store.artefacts.get(own.sha256)).rejects.toMatchObject({ code: 'NotFound' });
    await store.artefacts.get(kept.sha256);
    await store.artefacts.get(shared.sha256);
    expect(store.head()).toBe(events + 1);
    expect(store.load('kernel')[0]).toMatchObject({ type: 'retention.applied', data: { by: 'ada' } });
    expect(sessions.get(rejected).attempts).toHaveLength(1);
    expect(store.verifyChains()).toEqual([]);
  });
});

describe('the session list', () => {
  it('loses no session between pages, also when all have the same time', () => {
    fillStore(store, { sessions: 30, events: 0 });
    for (const root of [undefined, '/home/someone/project-1']) {
      const whole = sessions.summaries(root === undefined ? {} : { root }).map((s) => s.id);
      const paged: SessionId[] = [];
      for (let last: { updatedAt: number; id: SessionId } | undefined; ;) {
        const page = sessions.summaries({
          ...(root === undefined ? {} : { root }),
          ...(last === undefined ? {} : { before: last.updatedAt, beforeKey: last.id }),
          limit: 7,
        });
        paged.push(...page.map((s) => s.id));
        last = page.at(-1);
        if (last === undefined) break;
      }
      expect(paged).toEqual(whole);
      expect(new Set(paged).size).toBe(whole.length);
    }
  });
});
