// The Kernel, its containers or both killed at moments that nobody chose, within the main job and while the next Kernels
// clean up: whatever the moment, the same must hold as at the named points (matrix.test.ts). The seed is printed;
// ESCROW_CRASH_SEED repeats who is struck when, in parts of the job's time.
import { randomInt } from 'node:crypto';
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { crashRun, type CrashRun } from '../fixtures/crash-run.ts';
import { victims, type Strike } from '../fixtures/strike.ts';
import { fullRun } from '../fixtures/left-out.ts';

const seed = Number(process.env['ESCROW_CRASH_SEED'] ?? randomInt(2 ** 31));
const rounds = Number(process.env['ESCROW_CRASH_ROUNDS'] ?? (fullRun ? 100 : 8));

/** Parts of the time that the whole job takes, up to this one. */
const upTo = (most: number): fc.Arbitrary<number> =>
  fc.integer({ min: 0, max: most * 1000 }).map((thousandths) => thousandths / 1000);
const strikes: fc.Arbitrary<Strike> = fc.record({
  moment: upTo(1),
  victims: fc.oneof(
    { weight: 2, arbitrary: fc.constant(['kernel'] as const) },
    { weight: 3, arbitrary: fc.shuffledSubarray([...victims], { minLength: 1, maxLength: 2 }) },
  ),
  gapMs: fc.constantFrom(0, 0, 5, 50, 500),
  // A Kernel has cleaned up by then, mostly.
  after: fc.array(upTo(0.5), { maxLength: 2 }),
});

let run: CrashRun;
beforeAll(async () => {
  run = await crashRun();
});
afterAll(() => run.dispose());

it(
  `${rounds} strikes at any moment leave what any other death leaves (seed ${seed})`,
  { timeout: rounds * 60_000 },
  async () => {
    const broken: string[] = [];
    for (const strike of fc.sample(fc.noBias(strikes), { numRuns: rounds, seed })) {
      const verdict = await run.strike(strike, fullRun);
      process.stdout.write(`${verdict.point}: ${verdict.outcome}\n`);
      broken.push(...verdict.broken.map((what) => `${verdict.point}: ${what}`));
    }
    if (!fullRun) broken.push(...(await run.changedSince()));
    expect(broken).toEqual([]);
  },
);
