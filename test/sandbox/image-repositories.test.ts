// Real projects from contract to verified candidate: some hundred npm packages with vitest, compiled wheels with pytest,
// and a repository of some thousand files. Minutes, and the network: only with ESCROW_TEST_FULL=1.
import { writeFile, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImageRecord } from '../../src/protocol/images.ts';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { plainGit } from '../fixtures/git-repository.ts';
import { imageRepository, replacement, type ImageRepository } from '../fixtures/image-repository.ts';
import { sessionAt, settled, startSession, verified, writeScript } from '../fixtures/journey.ts';
import { startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { fullRun, leftOut } from '../fixtures/left-out.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

const minutes = 60_000;
let kernel: TestKernel;
const repos: ImageRepository[] = [];

/** Freezes, says yes, prepares; then everything that follows must work without a network. */
async function prepared(
  repo: ImageRepository,
): Promise<{ readonly digest: ContractDigest; readonly record: ImageRecord | null }> {
  repos.push(repo);
  const { digest } = await kernel.kernel.call('contract/freeze', { path: repo.contract });
  const { plan } = await kernel.kernel.call('image/plan', { digest });
  const approval = { reviewer: { name: 'test', channel: 'script' as const }, standing: false };
  const { record } = await kernel.kernel.call('image/prepare', { digest, plan, approval });
  return { digest, record };
}

/** Baseline, one rehearsed replacement, settlement, verification. */
async function journey(digest: ContractDigest, turns: readonly unknown[]): Promise<SessionView> {
  const baseline = await kernel.kernel.call('contract/baseline', { digest });
  expect(baseline.problems).toEqual([]);
  expect(baseline.result).toBe('discriminates');
  const { session } = await startSession(
    kernel.kernel,
    digest,
    await writeScript(kernel.home, digest.slice(0, 8), turns),
  );
  await sessionAt(kernel.kernel, session.id, 'settled', settled, 5 * minutes);
  const view = await sessionAt(kernel.kernel, session.id, 'verified', verified, 5 * minutes);
  expect(view.attempts[0]).toMatchObject({
    outcome: { kind: 'candidate' },
    collection: { state: 'complete' },
    settlement: { confirmed: true },
  });
  expect(view.candidates[0]?.verdict).toBe('passed');
  return view;
}

describe.runIf(fullRun)(`from contract to verified candidate${leftOut.fullRun}`, () => {
  beforeAll(async () => {
    await ensureSandboxImage();
    kernel = await startTestKernel();
  }, 2 * minutes);
  afterAll(async () => {
    const { sessions } = await kernel.kernel.call('session/list', {});
    for (const { id } of sessions) {
      const { token } = await kernel.kernel.call('session/attach', { session: id, mode: 'control', takeOver: true });
      if (token !== null) await kernel.kernel.call('session/close', { session: id, token });
    }
    await kernel.kernel.call('image/prune', { preview: false, all: true });
    await kernel.dispose();
    for (const repo of repos) await repo.dispose();
  }, 2 * minutes);

  it(
    'a TypeScript project with 321 packages, vitest and a type check',
    async () => {
      const repo = await imageRepository(
        'ledger',
        {
          'src/total.ts':
            'export const total = (cents: readonly number[]): number => cents.reduce((a, b) => a + b, 1);\n',
          'vitest.config.ts':
            "import { defineConfig } from 'vitest/config';\nexport default defineConfig({ test: { include: ['test/**/*.test.ts'] } });\n",
          'tsconfig.json': JSON.stringify({
            compilerOptions: {
              strict: true,
              module: 'nodenext',
              target: 'es2022',
              noEmit: true,
              skipLibCheck: true,
              allowImportingTsExtensions: true,
              incremental: true,
              tsBuildInfoFile: 'build/types.tsbuildinfo',
            },
            include: ['src', 'test'],
          }),
          'test/total.test.ts': `import { format } from 'date-fns';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { total } from '../src/total.ts';

it('adds', () => {
  expect(z.number().int().parse(total([1, 2]))).toBe(3);
});
it('is nothing of nothing', () => {
  expect(total([])).toBe(0);
});
it('has its packages', () => {
  expect(format(new Date(2026, 0, 2), 'yyyy-MM-dd')).toBe('2026-01-02');
});
`,
        },
        {
          title: 'Totals start at nothing',
          instruction: 'A total of no cents is 0.',
          writable: ['src/total.ts'],
          // Where vite bundles its configuration, where vitest keeps results, where tsc keeps its state.
          scratch: ['node_modules/.vite-temp', 'node_modules/.vite', 'build'],
          profile: 'standard',
          acceptance: [
            { id: 'tests', argv: ['vitest', 'run', '--reporter=verbose'], baseline: 'fail' },
            { id: 'types', argv: ['tsc', '-p', '.'], baseline: 'pass' },
            { id: 'build-info', argv: ['test', '-s', 'build/types.tsbuildinfo'], baseline: 'pass' },
          ],
          image: { dependencies: { npm: 'package-lock.json' } },
        },
      );
      const { digest, record } = await prepared(repo);
      const npm = record?.steps.find(({ kind }) => kind === 'npm');
      expect(npm?.files).toBeGreaterThan(5_000);
      const view = await journey(digest, replacement('src/total.ts', 'a + b, 1', 'a + b, 0'));
      const tests = view.candidates[0]?.verifications[0]?.checks.find(({ id }) => id === 'tests');
      expect(tests?.summary).toMatchObject({ runner: 'vitest', total: 3, passed: 3 });
      process.stderr.write(`figures: npm ${JSON.stringify(npm)} image ${record?.sizeBytes} in ${record?.ms} ms\n`);
    },
    15 * minutes,
  );

  it(
    'a Python project with pytest, numpy and hypothesis as compiled wheels',
    async () => {
      const repo = await imageRepository(
        'stats',
        {
          'src/stats/__init__.py':
            'import numpy as np\n\n\ndef spread(values):\n    return float(np.max(values) - np.min(values)) + 1\n',
          'tests/test_stats.py': `import numpy as np
from hypothesis import given, strategies as st

from stats import spread


def test_spread():
    assert spread([1.0, 4.0]) == 3.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_never_negative(values):
    assert spread(values) >= 0


def test_compiled_code_runs():
    assert float(np.linalg.det(np.eye(3))) == 1.0
`,
        },
        {
          title: 'Spread without an offset',
          instruction: 'The spread is the largest value less the smallest.',
          writable: ['src/stats/__init__.py'],
          scratch: ['.pytest_cache', '.hypothesis'],
          acceptance: [
            { id: 'tests', argv: ['pytest', '-v'], baseline: 'fail' },
            { id: 'cache', argv: ['test', '-e', '.pytest_cache/v/cache/nodeids'], baseline: 'pass' },
          ],
          image: { dependencies: { python: 'requirements.lock' } },
        },
      );
      const { digest, record } = await prepared(repo);
      const python = record?.steps.find(({ kind }) => kind === 'python');
      expect(python).toMatchObject({ artefacts: 8 });
      const view = await journey(digest, replacement('src/stats/__init__.py', '(values)) + 1', '(values))'));
      const tests = view.candidates[0]?.verifications[0]?.checks.find(({ id }) => id === 'tests');
      expect(tests?.summary).toMatchObject({ runner: 'pytest', total: 3, passed: 3 });
      process.stderr.write(
        `figures: python ${JSON.stringify(python)} image ${record?.sizeBytes} in ${record?.ms} ms\n`,
      );
    },
    15 * minutes,
  );

  it(
    'a repository of 6,000 files and 156 MB, which bounded has no room for, nor a session’s allowance',
    async () => {
      const contract = {
        title: 'One',
        instruction: 'One is 1.',
        writable: ['src/one.py'],
        scratch: ['.cache'],
        acceptance: [
          {
            id: 'one',
            argv: ['python3', '-c', 'import sys; sys.path.insert(0, "src"); import one; assert one.one == 1, one.one'],
            baseline: 'fail' as const,
          },
          {
            id: 'all-there',
            argv: [
              'python3',
              '-c',
              'import os; n = sum(len(f) for _, _, f in os.walk("data")); assert n == 6000, n; open(".cache/x", "w")',
            ],
            baseline: 'pass' as const,
          },
        ],
      };
      const repo = await imageRepository(null, { 'src/one.py': 'one = 2\n' }, { ...contract, profile: 'bounded' });
      repos.push(repo);
      for (let n = 0; n < 6000; n += 1) {
        const folder = path.join(repo.root, 'data', String(n % 100));
        if (n < 100) await mkdir(folder, { recursive: true });
        await writeFile(path.join(folder, `${n}.txt`), `${n}\n`.padEnd(26_000, 'x'));
      }
      await plainGit(repo.root, 'add', '-A');
      const bounded = kernel.kernel.call('contract/freeze', { path: repo.contract });
      await expect(bounded).rejects.toMatchObject({
        code: 'InvalidContract',
        message: expect.stringContaining('standard'),
      });
      await writeFile(repo.contract, JSON.stringify({ ...contract, profile: 'standard' }));
      const started = performance.now();
      const { digest } = await kernel.kernel.call('contract/freeze', { path: repo.contract });
      const frozen = performance.now();
      const view = await journey(digest, replacement('src/one.py', 'one = 2', 'one = 1'));
      expect(view.binding.profile.name).toBe('standard');
      process.stderr.write(
        `figures: 6,000 files frozen in ${Math.round(frozen - started)} ms, baseline to verified in ${Math.round(performance.now() - frozen)} ms\n`,
      );
    },
    15 * minutes,
  );
});
