import { describe, expect, it } from 'vitest';
import { atRest, news, nothingTold } from '../../../src/cli/watch.ts';
import type { SessionView } from '../../../src/protocol/views.ts';

/** A session as far as watching looks at it. */
function session(parts: object): SessionView {
  return { state: 'running', queuePosition: null, attempts: [], candidates: [], ...parts } as unknown as SessionView;
}
const attempt = {
  id: 'att_a',
  number: 1,
  phase: 'running',
  pending: null,
  outcome: null,
  settlement: null,
  activity: [{ n: 0, at: 1, kind: 'tool', title: 'view \u001b[31ma', text: 'view \u001b[31ma', ok: null }],
};
const candidate = { digest: 'ab', attempt: 'att_a', eligible: true, decision: null, verifications: [] };

describe('watching a session', () => {
  it('says each thing once', () => {
    const first = news(nothingTold, session({ attempts: [attempt] }));
    expect(first.lines).toHaveLength(2);
    expect(news(first.told, session({ attempts: [attempt] })).lines).toEqual([]);
    const later = {
      ...attempt,
      activity: [...attempt.activity, { n: 1, at: 2, kind: 'result', title: 'view', text: '', ok: true }],
    };
    expect(news(first.told, session({ attempts: [later] })).lines).toHaveLength(1);
  });

  it('says that it waits, and for what', () => {
    expect(JSON.stringify(news(nothingTold, session({ state: 'queued', queuePosition: 2 })).lines)).toContain(
      'number 2',
    );
    const stuck = {
      ...attempt,
      phase: 'cancellation_pending',
      pending: { since: 1, blockedIn: 'stopping', waitingFor: 'engine' },
    };
    expect(JSON.stringify(news(nothingTold, session({ attempts: [stuck] })).lines)).toContain('waits for engine');
  });

  it('is at rest only when nothing more happens by itself', () => {
    const done = { state: 'done', result: 'passed' };
    expect(atRest(session({ state: 'running' }))).toBe(false);
    expect(atRest(session({ state: 'settling' }))).toBe(false);
    expect(atRest(session({ state: 'waiting', attempts: [attempt] }))).toBe(true);
    // The attempt has settled; its verification is about to be queued.
    expect(atRest(session({ state: 'waiting', attempts: [attempt], candidates: [candidate] }))).toBe(false);
    const verifying = { ...candidate, verifications: [{ state: 'running', result: null }] };
    expect(atRest(session({ state: 'waiting', attempts: [attempt], candidates: [verifying] }))).toBe(false);
    const verified = { ...candidate, verifications: [done] };
    expect(atRest(session({ state: 'waiting', attempts: [attempt], candidates: [verified] }))).toBe(true);
  });
});
