import { expect, test } from 'vitest';
import { KernelHeartbeat } from '../../../src/extension/kernel/kernel-heartbeat.ts';

/** A heartbeat whose clock and Kernel are in the test's hands. */
function heart() {
  let clock = 0;
  const asked: { ui: string; answer: () => void; refuse: () => void }[] = [];
  const said: boolean[] = [];
  const heartbeat = new KernelHeartbeat({
    monotonic: () => clock,
    silentAfterMs: 15_000,
    onAnswering: (answering) => said.push(answering),
    ask: (ui) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      asked.push({ ui, answer: resolve, refuse: () => reject(new Error('refused')) });
      return promise;
    },
  });
  return {
    asked,
    said,
    beatAt: async (ms: number, ui: 'present' | 'unreachable' = 'present') => {
      clock = ms;
      heartbeat.beat(ui, 0);
      await Promise.resolve();
    },
  };
}

test('a Kernel that leaves a question open is silent, and no further question is put to it', async () => {
  const { asked, said, beatAt } = heart();
  for (const ms of [0, 5000, 10_000]) await beatAt(ms);
  expect(said).toEqual([]);
  for (const ms of [15_000, 20_000]) await beatAt(ms);
  expect(said).toEqual([false]);
  expect(asked).toHaveLength(1);
});

test.each(['answer', 'refuse'] as const)('a late %s ends the silence, and it is asked again', async (how) => {
  const { asked, said, beatAt } = heart();
  await beatAt(0);
  await beatAt(15_000);
  asked[0]?.[how]();
  await beatAt(15_001);
  expect(said).toEqual([false, true]);
  await beatAt(20_000, 'unreachable');
  expect(asked.map(({ ui }) => ui)).toEqual(['present', 'unreachable']);
});

test('one that answers each time is never said to be silent', async () => {
  const { asked, said, beatAt } = heart();
  for (let n = 0; n < 10; n++) {
    await beatAt(n * 5000);
    asked[n]?.answer();
    await Promise.resolve();
  }
  expect(said).toEqual([]);
  expect(asked).toHaveLength(10);
});
