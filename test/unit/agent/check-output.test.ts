import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { failingOutput, failureExcerpt, passingOutput, plainer } from '../../../src/server/agent/check-output.ts';
import { cleanOutput } from '../../../src/server/agent/command-output.ts';

describe('a passing check', () => {
  test('shows its end; short output stays whole', () => {
    const long = Array.from({ length: 40 }, (_, n) => `built ${n}`).join('\n') + '\n\nall is well';
    expect(passingOutput(long)).toBe(
      '[36 lines of a passing check left out]\nbuilt 36\nbuilt 37\nbuilt 38\nbuilt 39\n\nall is well',
    );
    expect(passingOutput('test_a ... ok\ntest_b ... ok\n\nRan 2 tests\n\nOK')).toBe(
      '[2 tests passed]\n\nRan 2 tests\n\nOK',
    );
    expect(passingOutput('a\nb\nc')).toBe('a\nb\nc');
  });
});

describe('a failing check', () => {
  test.each([
    ['unittest', 'test_a (t.A.test_a) ... ok\ntest_b (t.A.test_b) ... ok\ntest_c (t.A.test_c) ... FAIL'],
    ['pytest', 't.py::test_a PASSED   [ 33%]\nt.py::test_b PASSED [ 66%]\ntest_c (t.A.test_c) ... FAIL'],
    ['go', '--- PASS: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\ntest_c (t.A.test_c) ... FAIL'],
    ['tap', 'ok 1 - a\nok 2 - b\ntest_c (t.A.test_c) ... FAIL'],
    ['ticks', '✔ a (1 ms)\n  ✓ b\ntest_c (t.A.test_c) ... FAIL'],
  ])('is shown without the tests that passed: %s', (_runner, text) => {
    expect(failingOutput(text)).toBe('[2 tests passed]\ntest_c (t.A.test_c) ... FAIL');
  });

  test('a status that a heading repeats is left out, one that none repeats stays', () => {
    expect(
      failingOutput(
        'test_a (t.A.test_a) ... FAIL\n  test_b (t.A.test_b) (i=1) ... ERROR\ntest_c (t.A.test_c) ... FAIL\n\nFAIL: test_a (t.A.test_a)\nERROR: test_b (t.A.test_b) (i=1)',
      ),
    ).toBe('test_c (t.A.test_c) ... FAIL\n\nFAIL: test_a (t.A.test_a)\nERROR: test_b (t.A.test_b) (i=1)');
  });

  test.each([
    [
      'unittest-failed',
      'FAIL: test_without_zone_is_utc',
      'AssertionError: 1767218400.0 != 1767225600',
      'FAILED (failures=2)',
    ],
    ['unittest-verbose', 'AssertionError: 1 != 0', 'AssertionError: 2 != 0', 'FAILED (failures=2, skipped=1'],
    ['pytest-verbose', 'E           AssertionError: 1 != 0', 'T.test_sub_fail (i=2)', '2 failed, 5 passed'],
    ['node-spec', '✖ b', 'actual: 1', 'expected: 2', 'ℹ fail 1', 'm.test.mjs:3:69'],
    ['node-tap', 'not ok 2 - b', "error: '1 == 2'", 'm.test.mjs:3:69', '# fail 1'],
    ['go-v', '--- FAIL: TestB', 'a_test.go:4: no'],
    ['cargo-fail', 'assertion `left == right` failed', '  left: 1', ' right: 2', 'src/lib.rs:5:48'],
    ['vitest-default', 'AssertionError: expected 1 to be 2', 'a.test.ts:2:70'],
  ])('of a real runner is shorter and keeps what failed, where and how: %s', async (runner, ...kept) => {
    const text = cleanOutput(
      await readFile(join(import.meta.dirname, `../../fixtures/golden/test-runners/${runner}.txt`)),
    );
    const shown = failingOutput(text);
    expect(shown.length).toBeLessThan(text.length);
    for (const piece of kept) expect(shown).toContain(piece);
    // Nothing is invented: but for the count of passed tests, each line is one of the output's.
    const lines = new Set(text.split('\n').map((line) => line.trim()));
    for (const line of shown.split('\n'))
      if (!/^\[\d+ tests passed\]$/.test(line)) expect(lines).toContain(line.trim());
  });

  test.each([
    'a::',
    'assert ',
    'ok 1 - a\n  ---\n',
    '# Subtest: a\nok 1 - a\n',
    ' (node:a:1:1',
    "thread '",
    'x ... ok ',
    '~^',
  ])('of a hostile program is read in one pass: %j over and over', (piece) => {
    const text = piece.repeat(Math.floor(1_000_000 / piece.length));
    expect(failingOutput(text).length).toBeLessThanOrEqual(text.length + 30);
    expect(failureExcerpt(text).length).toBeLessThanOrEqual(701);
    expect(passingOutput(text).length).toBeLessThanOrEqual(text.length + 60);
  });

  test('keeps what says nothing of a passed test', () => {
    const text = 'not ok 1 - a\nok\nall is ok\nFAILED (failures=1)\n    assert x ... ok\ntest_a ... ok';
    expect(failingOutput(text)).toBe(text);
  });
});

describe('output without decoration', () => {
  test('leaves out underlines and rules, and nothing else', () => {
    const text = [
      '='.repeat(70),
      'FAIL: test_a (tests.A.test_a)',
      '-'.repeat(70),
      '    self.assertEqual(f(1), 2)',
      '    ~~~~~~~~~~~~~~~~^^^^^^^^^',
      '        ^',
      'AssertionError: 1 != 2',
      '',
      '~~~ kept: no caret',
      '----',
      '2 ^ 3',
    ];
    expect(plainer(text.join('\n')).split('\n')).toEqual([
      'FAIL: test_a (tests.A.test_a)',
      '    self.assertEqual(f(1), 2)',
      '        ^',
      'AssertionError: 1 != 2',
      '',
      '~~~ kept: no caret',
      '----',
      '2 ^ 3',
    ]);
  });
});

describe('the failing assertion', () => {
  test.each([
    [
      'unittest',
      'ok\n====\nFAIL: test_a\n----\nTraceback\n  File "x", line 1\n    self.assertEqual(a, 2)\nAssertionError: 1 != 2\n\n====\nFAIL: b',
      'AssertionError: 1 != 2',
    ],
    ['pytest', 'def test():\n>   assert f() == 2\nE   assert 1 == 2\nE    +  where 1 = f()', 'E   assert 1 == 2'],
    [
      'node',
      'not ok 1\n  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n\n  1 !== 2\n',
      '1 !== 2',
    ],
    [
      'python error',
      'Traceback\n  File "a.py", line 3\nImportError: no module named x',
      'ImportError: no module named x',
    ],
    ['go', 'ok\n--- FAIL: TestA\n    a_test.go:3: got 1', '--- FAIL: TestA'],
    ['nothing known', 'line one\nline two', 'line two'],
  ])('%s', (_name, output, piece) => {
    expect(failureExcerpt(output)).toContain(piece);
  });
  test('is bounded', () => {
    expect(failureExcerpt(`AssertionError: ${'x'.repeat(5000)}`).length).toBeLessThanOrEqual(701);
    // The whole capture on one line, made to be tried again from each word: read in one pass.
    expect(failureExcerpt('assert '.repeat(600_000)).length).toBeLessThanOrEqual(701);
  });
});
