import { expect, test } from 'vitest';
import { Presence } from '../../../src/extension/presence.ts';

/** A presence whose timer, clock and renderer are in the test's hands. */
function probe() {
  const reports: [string, number][] = [];
  const waiting: { resolve: () => void; reject: (error: Error) => void }[] = [];
  let clock = 0;
  const presence = new Presence({
    intervalMs: 5000,
    unreachableAfterMs: 15_000,
    monotonic: () => clock,
    report: (ui, stalledMs) => reports.push([ui, stalledMs]),
    roundTrip: () => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      waiting.push({ resolve, reject });
      return promise;
    },
  });
  return {
    reports,
    waiting,
    tick: async (elapsedMs: number) => {
      clock += elapsedMs;
      presence.tick();
      await Promise.resolve();
    },
    settle: async () => {
      await Promise.resolve();
      await Promise.resolve();
    },
  };
}

test('an answer is presence', async () => {
  const { tick, waiting, settle, reports } = probe();
  await tick(0);
  waiting[0]?.resolve();
  await settle();
  expect(reports).toEqual([['present', 0]]);
});

test('one question is in flight at a time, and its silence grows', async () => {
  const { tick, waiting, reports } = probe();
  await tick(0);
  for (let n = 0; n < 4; n++) await tick(5000);
  expect(waiting).toHaveLength(1);
  expect(reports).toEqual([
    ['unreachable', 15_000],
    ['unreachable', 20_000],
  ]);
});

test('a machine that slept is not a window that is gone', async () => {
  const { tick, reports } = probe();
  await tick(0);
  await tick(3_600_000);
  expect(reports).toEqual([]);
});

test('a refusal is not presence', async () => {
  const { tick, waiting, settle, reports } = probe();
  for (let n = 0; n < 4; n++) {
    await tick(5000);
    waiting[n]?.reject(new Error('Canceled'));
    await settle();
  }
  expect(reports.map(([ui]) => ui)).not.toContain('present');
  expect(reports.at(-1)?.[0]).toBe('unreachable');
});

test('a window that thaws is present again, and the count begins anew', async () => {
  const { tick, waiting, settle, reports } = probe();
  await tick(0);
  for (let n = 0; n < 4; n++) await tick(5000);
  waiting[0]?.resolve();
  await settle();
  expect(reports.at(-1)).toEqual(['present', 0]);
  await tick(5000);
  await tick(5000);
  expect(reports.at(-1)).toEqual(['present', 0]);
});
