import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { caseTable, type RanTest } from './adversarial-cases.ts';
import { runShown } from './run.ts';
import { root } from './root.ts';

/** The layers of tests, lowest first; each is a vitest project (docs/testing.md). */
export const layers = ['unit', 'sandbox', 'crash', 'e2e'] as const;
/** What runs a second time against Podman; what attaches twice or needs an engine in between is left out (docs/sandbox.md). */
export const podmanFiles = [
  'lifecycle',
  'isolation',
  'commands',
  'limits',
  'attacks',
  'accounting',
  'standard-profile',
  'image-preparation',
  'image-steps',
].map((name) => `test/sandbox/${name}.test.ts`);
export type Layer = (typeof layers)[number];

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** What a layer did: the counts, and of each failure where it is and how it begins. */
export interface LayerResult extends Counts {
  readonly failures: readonly string[];
}

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message?: string;
    readonly assertionResults: readonly (RanTest & { readonly failureMessages?: readonly string[] | null })[];
  }[];
}

/** How many lines of a failure's message are repeated at the end of a run. */
const repeatedLines = 6;

/** Each failure as a place, a title and the beginning of its message, so that the end of a long log says what is wrong. */
export function failuresOf(report: Pick<Report, 'testResults'>): string[] {
  const begin = (message: string | undefined): string =>
    (message ?? '')
      .split('\n')
      .slice(0, repeatedLines)
      .map((line) => `\n    ${line}`)
      .join('');
  return report.testResults.flatMap((file) => {
    const place = path.relative(root, file.name);
    const failed = file.assertionResults.filter((test) => test.status === 'failed');
    if (file.status === 'failed' && failed.length === 0) return [`${place}${begin(file.message)}`];
    return failed.map((test) => `${place} › ${test.fullName}${begin(test.failureMessages?.[0])}`);
  });
}

/**
 * Runs one layer and counts. What did not run can't have passed: a file that could not be loaded, a layer without a
 * test, an unhandled error and a runner that died each count as a failure.
 */
export async function runLayer(
  layer: Layer,
  options: {
    readonly full: boolean;
    readonly filters: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
  },
): Promise<LayerResult> {
  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-test-'));
  try {
    const file = path.join(folder, 'report.json');
    const code = await runShown(
      process.execPath,
      [
        path.join(root, 'node_modules', 'vitest', 'vitest.mjs'),
        'run',
        '--project',
        layer,
        '--reporter=default',
        '--reporter=json',
        `--outputFile.json=${file}`,
        ...options.filters,
      ],
      { cwd: root, env: { ...process.env, ...(options.full ? { ESCROW_TEST_FULL: '1' } : {}), ...options.env } },
    );
    const text = await readFile(file, 'utf8').catch(() => undefined);
    if (text === undefined)
      return { passed: 0, failed: 1, skipped: 0, failures: [`${layer}: vitest ended with ${code} and left no report`] };
    const report = JSON.parse(text) as Report;
    const unloadable = report.testResults.filter(
      (each) => each.status === 'failed' && each.assertionResults.length === 0,
    );
    const failed = report.numFailedTests + unloadable.length;
    const passed = report.numPassedTests;
    const cases =
      layer === 'sandbox' && options.filters.length === 0
        ? caseTable(report.testResults.flatMap((file) => file.assertionResults))
        : undefined;
    if (cases !== undefined) process.stderr.write(`adversarial cases\n${cases.lines.join('\n')}\n`);
    const withoutCase = cases?.missing ?? 0;
    const quietFailure = failed === 0 && withoutCase === 0 && (code !== 0 || passed === 0);
    return {
      passed,
      failed: quietFailure ? 1 : failed + withoutCase,
      skipped: report.numPendingTests + report.numTodoTests,
      failures: [
        ...failuresOf(report),
        ...(withoutCase > 0
          ? [`${layer}: ${withoutCase} adversarial cases lack an attack or a control (table above)`]
          : []),
        ...(quietFailure
          ? [`${layer}: ${passed} tests passed, but vitest ended with ${code}: see its errors above`]
          : []),
      ],
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
