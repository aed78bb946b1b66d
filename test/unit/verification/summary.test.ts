import { readFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readSummary } from '../../../src/server/verification/summary.ts';
import { testRunnerOf } from '../../../src/server/verification/test-runner.ts';
import type { TestRunner } from '../../../src/server/verification/test-runner.ts';

const golden = (name: string): string =>
  readFileSync(path.resolve(import.meta.dirname, '../../fixtures/golden/test-runners', `${name}.txt`), 'utf8');
const tapEnd = '# tests 1\n# suites 0\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 1.5\n';
const read = (runner: TestRunner, text: string) => readSummary(runner, Buffer.from(text));

describe('which runner a command starts', () => {
  it.each<[string, TestRunner | null]>([
    ['python3 -m unittest tests.test_usage', 'unittest'],
    ['/usr/bin/python3.13 -B -W error -m unittest -v', 'unittest'],
    ['python -Im unittest', 'unittest'],
    ['python3 -m pytest -q', 'pytest'],
    ['pytest tests', 'pytest'],
    ['.venv/bin/pytest', 'pytest'],
    ['python3 .venv/bin/pytest', 'pytest'],
    ['python3 tests/test_usage.py', null],
    ['python3 -c unittest', null],
    ['python3 script.py -m unittest', null],
    ['node --test test/a.test.js', 'node'],
    ['node --import ./hook.mjs --test', 'node'],
    ['node test/a.test.js --test', null],
    ['node node_modules/vitest/vitest.mjs run', 'vitest'],
    ['npx vitest run', 'vitest'],
    ['npx --no-install jest@29', 'jest'],
    ['node_modules/.bin/jest', 'jest'],
    ['npm test', null],
    ['go test -v ./...', 'go'],
    ['go test -json ./...', 'go'],
    ['go test ./...', null],
    ['cargo +nightly test --offline', 'cargo'],
    ['cargo build', null],
    ['make test', null],
  ])('%s', (command, runner) => {
    expect(testRunnerOf(command.split(' '))).toBe(runner);
  });
});

describe('the closing summary', () => {
  it.each<[string, TestRunner, [total: number, passed: number, failed: number, skipped: number], number | null]>([
    ['unittest-passed', 'unittest', [7, 7, 0, 0], 7],
    ['unittest-failed', 'unittest', [4, 2, 2, 0], 2],
    ['unittest-verbose', 'unittest', [7, 4, 2, 2], 4],
    ['unittest-quiet', 'unittest', [7, 3, 2, 2], null],
    ['pytest-quiet', 'pytest', [7, 7, 0, 0], null],
    ['pytest-listed', 'pytest', [7, 7, 0, 0], 7],
    ['pytest-verbose', 'pytest', [9, 5, 2, 2], 5],
    ['node-tap', 'node', [8, 5, 1, 2], 5],
    ['node-spec', 'node', [8, 5, 1, 2], null],
    ['vitest-pass', 'vitest', [1, 1, 0, 0], null],
    ['vitest-default', 'vitest', [5, 2, 1, 2], null],
    ['vitest-verbose', 'vitest', [5, 2, 1, 2], 2],
    ['go-v', 'go', [4, 2, 1, 1], 2],
    ['go-pass', 'go', [3, 2, 0, 1], 2],
    ['go-json', 'go', [3, 2, 0, 1], 2],
    ['cargo-pass', 'cargo', [3, 2, 0, 1], 2],
    ['cargo-fail', 'cargo', [3, 1, 1, 1], 1],
  ])('of %s', (name, runner, [total, passed, failed, skipped], names) => {
    const summary = read(runner, golden(name));
    expect(summary).toMatchObject({ runner, total, passed, failed, skipped });
    expect(summary?.passing?.length ?? null).toBe(names);
  });

  const passing: readonly (readonly [string, TestRunner])[] = [
    ['unittest-passed', 'unittest'],
    ['pytest-quiet', 'pytest'],
    ['pytest-listed', 'pytest'],
    ['node-tap', 'node'],
    ['vitest-pass', 'vitest'],
    ['go-pass', 'go'],
    ['go-json', 'go'],
    ['cargo-pass', 'cargo'],
  ];
  it.each(passing)('of %s does not count when anything but blank lines follows it', (name, runner) => {
    expect(read(runner, `${golden(name)}\n\n`)).not.toBeNull();
    expect(read(runner, `${golden(name)}one more line\n`)).toBeNull();
  });
  it.each(passing)('of %s does not count when the end is missing', (name, runner) => {
    const lines = golden(name).trimEnd().split('\n');
    expect(read(runner, lines.slice(0, -1).join('\n'))).toBeNull();
  });
  it.each(passing)('of %s is read through colours and Windows line ends', (name, runner) => {
    const plain = golden(name);
    const coloured = plain
      .split('\n')
      .map((line) => (line === '' ? line : `\u001B[32m${line}\u001B[39m\u001B]8;;x\u0007`))
      .join('\r\n');
    expect(read(runner, coloured)).toEqual(read(runner, plain));
  });

  it('is not the one that a program printed before it left', () => {
    const forged = golden('unittest-passed');
    expect(read('unittest', `${forged}test_b (tests.test_b.B.test_b) ... `)).toBeNull();
    // The real one, after the forged one, is what counts.
    expect(read('unittest', forged + golden('unittest-failed'))).toMatchObject({ failed: 2 });
  });

  it('of jest is read in its documented form', () => {
    const text = (tests: string): string =>
      `PASS test/a.test.js\n  math\n    ✓ adds (2 ms)\n    ✓ takes away\n\nTest Suites: 1 passed, 1 total\nTests:       ${tests}\nSnapshots:   0 total\nTime:        0.312 s\nRan all test suites.\n`;
    expect(read('jest', text('2 passed, 2 total'))).toMatchObject({ total: 2, passed: 2, failed: 0 });
    expect(read('jest', text('2 passed, 2 total'))?.passing).toEqual([
      'test/a.test.js > adds',
      'test/a.test.js > takes away',
    ]);
    expect(read('jest', text('1 failed, 1 skipped, 2 passed, 4 total'))).toMatchObject({
      total: 4,
      failed: 1,
      skipped: 1,
    });
    expect(read('jest', `${text('2 passed, 2 total')}x`)).toBeNull();
  });

  it('of an empty test run names no test', () => {
    const dashes = '-'.repeat(70);
    expect(read('unittest', `\n${dashes}\nRan 0 tests in 0.000s\n\nOK\n`)).toMatchObject({ total: 0, passed: 0 });
    expect(read('unittest', `\n${dashes}\nRan 0 tests in 0.000s\n\nNO TESTS RAN\n`)).toMatchObject({ total: 0 });
    expect(read('pytest', '\nno tests ran in 0.01s\n')).toMatchObject({ total: 0 });
  });

  it('that contradicts itself is none', () => {
    const dashes = '-'.repeat(70);
    expect(read('unittest', `${dashes}\nRan 2 tests in 0.1s\n\nOK (failures=1)\n`)).toBeNull();
    expect(read('unittest', `${dashes}\nRan 2 tests in 0.1s\n\nFAILED\n`)).toBeNull();
    expect(read('unittest', `${dashes}\nRan 99999999 tests in 0.1s\n\nOK\n`)).toBeNull();
    expect(read('pytest', '== 3 passed, 3 passed in 0.1s ==')).toBeNull();
    expect(read('pytest', '== 3 passed, 1 broken in 0.1s ==')).toBeNull();
    expect(
      read('cargo', 'test result: ok. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'),
    ).toBeNull();
  });

  it('of node counts a file that left early as one test, whatever it promised', () => {
    // What `node --test` 20 prints for a file that calls process.exit(0).
    const text = `TAP version 13\n# Subtest: /workspace/x.test.mjs\nok 1 - /workspace/x.test.mjs\n  ---\n  duration_ms: 73.0\n  ...\n1..1\n# tests 1\n# suites 0\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 77.4\n`;
    expect(read('node', text)).toMatchObject({ total: 1, passed: 1 });
  });

  it('keeps no list of names that does not agree with the count', () => {
    const text = golden('unittest-passed').replace('... ok', '... something else');
    expect(read('unittest', text)).toMatchObject({ passed: 7, passing: null });
  });

  it('tells two tests of one name apart', () => {
    const text = '=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- PASS: TestA (0.00s)\nPASS\nok  \tx\t0.003s\n';
    expect(read('go', text)?.passing).toEqual(['x TestA', 'x TestA (2)']);
  });

  it('never throws and never invents passed tests, whatever the output', () => {
    const runners: TestRunner[] = ['unittest', 'pytest', 'node', 'vitest', 'jest', 'go', 'cargo'];
    fc.assert(
      fc.property(fc.constantFrom(...runners), fc.uint8Array({ maxLength: 400 }), (runner, bytes) => {
        const summary = readSummary(runner, bytes);
        if (summary !== null) expect(summary.passed).toBeLessThanOrEqual(summary.total);
      }),
    );
    const pieces = passing.flatMap(([name]) => golden(name).split('\n'));
    let summaries = 0;
    // Lines of other runs put into a real one, and lines of it left out: what a program under test may print.
    fc.assert(
      fc.property(
        fc.constantFrom(...passing),
        fc.array(fc.tuple(fc.nat(200), fc.nat(3), fc.array(fc.constantFrom(...pieces), { maxLength: 4 })), {
          maxLength: 4,
        }),
        ([name, runner], edits) => {
          const lines = golden(name).split('\n');
          for (const [at, left, put] of edits) lines.splice(at % lines.length, left, ...put);
          const summary = read(runner, lines.join('\n'));
          if (summary === null) return;
          summaries += 1;
          expect(summary.passed).toBeLessThanOrEqual(summary.total);
          if (summary.passing !== null) expect(summary.passing).toHaveLength(summary.passed);
        },
      ),
      { numRuns: 1000 },
    );
    // Where none was read, nothing was looked at.
    expect(summaries).toBeGreaterThan(100);
  });

  it.each<[string, string]>([
    ['one endless line', 'a'.repeat(4_000_000)],
    ['only line ends', '\n'.repeat(4_000_000)],
    ['lines that all begin like a test', 'test_a (a.A.test_a) ... \n'.repeat(150_000)],
    ['open escapes', '\u001B]'.repeat(2_000_000)],
    ['almost verdicts', ' ... skipped '.repeat(300_000)],
    ['almost TAP', `${' '.repeat(80)}ok 1 - `.repeat(40_000)],
    ['braces', '{"a":'.repeat(800_000)],
    // Each test below would hold a copy of the heading: two hundred gigabytes.
    ['a long TAP heading', `# Subtest: ${'x'.repeat(2_000_000)}\n${'    ok 1 - a\n'.repeat(90_000)}${tapEnd}`],
    ['a long suite', `▶ ${'x'.repeat(2_000_000)}\n${'  ✔ a\n'.repeat(90_000)}${tapEnd.replaceAll('# ', 'ℹ ')}`],
  ])(
    'is looked for in bounded time in %s',
    (_, text) => {
      const bytes = Buffer.from(text);
      for (const runner of ['unittest', 'pytest', 'node', 'vitest', 'jest', 'go', 'cargo'] as const) {
        const started = performance.now();
        readSummary(runner, bytes);
        // A quadratic pattern would take minutes here, on any machine.
        expect(performance.now() - started).toBeLessThan(30_000);
      }
    },
    240_000,
  );
});
