// The Kernel killed at each named point of the main job (fsync, rename, commit, engine call, frame), restarted, restarted
// again. ESCROW_TEST_FULL=1 goes through all of them, and restarts twice after each (ESCROW_MATRIX_PART=2/8: the second
// eighth of them, for somebody who has no hour at once); without it a few of each kind, and one second restart for them
// all.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { crashRun, type CrashRun, type Verdict } from '../fixtures/crash-run.ts';
import { fullRun } from '../fixtures/left-out.ts';

const [part = 1, parts = 1] = (process.env['ESCROW_MATRIX_PART'] ?? '1/1').split('/').map(Number);

/** One or two of each kind of effect, at the places where most is at stake. kernel-death.test.ts has the steps between. */
const core = [
  'published',
  'append-in-transaction:4',
  'append-committed:6',
  'artefact-synced',
  'artefact-renamed:2',
  'artefact-before-row:3',
  'engine-after-create',
  'engine-before-kill',
  'engine-after-remove',
  'frame-sent-write',
  'frame-answered-quiesce',
  'frame-sent-collect',
  'accepted',
  'integration-applied',
  'journal-lasting',
  'tree-after-replace',
  'undo-intended',
] as const;

let run: CrashRun;
const table: Verdict[] = [];

beforeAll(async () => {
  run = await crashRun();
});

afterAll(async () => {
  await run.dispose();
  const width = Math.max(...table.map((v) => v.point.length));
  const lines = table.map(
    (v) => `${v.point.padEnd(width)}  ${v.broken.length === 0 ? v.outcome : `BROKEN: ${v.broken.join('; ')}`}`,
  );
  const held = table.filter((v) => v.broken.length === 0).length;
  process.stdout.write(`\n${lines.join('\n')}\nkill matrix: ${table.length} points, all invariants held at ${held}\n`);
});

/** All passages of a point that is passed seldom; of one that is passed often the first, some between and the last. */
function occurrences(count: number): readonly number[] {
  if (count <= 6) return Array.from({ length: count }, (_, i) => i + 1);
  return [1, 2, 3, Math.ceil(count / 3), Math.ceil(count / 2), Math.ceil((2 * count) / 3), count - 1, count];
}

async function killAt(point: string): Promise<void> {
  const verdict = await run.kill(point, false);
  table.push(verdict);
  expect(verdict.broken).toEqual([]);
}

if (fullRun) {
  it('every point that the main job passes', { timeout: 3_600_000 }, async () => {
    const points = [...run.passages]
      .flatMap(([name, count]) => occurrences(count).map((n) => `${name}:${n}`))
      .filter((_, index) => index % parts === part - 1);
    expect(points).not.toEqual([]);
    const failed: Verdict[] = [];
    for (const point of points) {
      const verdict = await run.kill(point, true);
      table.push(verdict);
      process.stdout.write(`${point} ${verdict.broken.length === 0 ? 'held' : 'BROKEN'}\n`);
      if (verdict.broken.length > 0) failed.push(verdict);
    }
    expect(failed).toEqual([]);
  });
} else {
  for (const point of core) it(point, () => killAt(point));

  it('one more restart adds nothing to any of it', async () => {
    expect(await run.changedSince()).toEqual([]);
  });
}

it('the points are of every kind', () => {
  const names = [...run.passages.keys()].join(' ');
  for (const kind of [
    'append-',
    'artefact-synced',
    'artefact-renamed',
    'engine-before-create',
    'frame-sent-',
    'journal-',
  ]) {
    expect(names).toContain(kind);
  }
});
