import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  cleanOutput,
  failureExcerpt,
  headAndTail,
  passingEnd,
  plainer,
  withoutPassed,
} from '../../../src/server/agent/command-output.ts';

describe('output for a model', () => {
  test('terminal sequences go, control characters are spelled out, bad bytes are marked', () => {
    expect(cleanOutput(Buffer.from('\u001B[31mred\u001B[0m \u001B]8;;http://x\u0007link\u001B]8;;\u0007'))).toBe(
      'red link',
    );
    expect(cleanOutput(Buffer.from('a\u0000b\u202Ec\r\nd\re'))).toBe('a\\x00b\\x202ec\nd\ne');
    expect(cleanOutput(Buffer.from([0x61, 0xff, 0x62]))).toBe('a\uFFFDb');
  });

  test('any bytes become well-formed text without control characters', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) => {
        const text = cleanOutput(bytes);
        expect(text.isWellFormed()).toBe(true);
        // oxlint-disable-next-line no-control-regex
        expect(text).not.toMatch(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/);
      }),
    );
  });

  test('head and tail stay within the limit, and the count of what is left out is right', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 100, maxLength: 2000 }),
        fc.integer({ min: 20, max: 400 }),
        (text, limit) => {
          const out = headAndTail(text, limit);
          const total = Buffer.byteLength(text);
          if (total <= limit) {
            expect(out).toBe(text);
            return;
          }
          const parts = /^([\s\S]*)\n\[… (\d+) bytes left out here …\]\n([\s\S]*)$/.exec(out);
          expect(parts).not.toBeNull();
          const [, head = '', left = '', tail = ''] = parts ?? [];
          expect(text.startsWith(head)).toBe(true);
          expect(text.endsWith(tail)).toBe(true);
          expect(Buffer.byteLength(head) + Buffer.byteLength(tail) + Number(left)).toBe(total);
          expect(Buffer.byteLength(head) + Buffer.byteLength(tail)).toBeLessThanOrEqual(limit);
        },
      ),
    );
  });
});

describe('a passing check', () => {
  test('shows its end; short output stays whole', () => {
    const long = Array.from({ length: 40 }, (_, n) => `test_${n} ... ok`).join('\n') + '\n\nRan 40 tests\n\nOK';
    expect(passingEnd(long)).toBe(
      '[38 lines of a passing check left out]\ntest_38 ... ok\ntest_39 ... ok\n\nRan 40 tests\n\nOK',
    );
    expect(passingEnd('a\nb\nc')).toBe('a\nb\nc');
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
    expect(withoutPassed(text)).toBe('[2 tests that passed are left out]\ntest_c (t.A.test_c) ... FAIL');
  });

  test('keeps what says nothing of a passed test', () => {
    const text = 'not ok 1 - a\nok\nall is ok\nFAILED (failures=1)\n    assert x ... ok\ntest_a ... ok';
    expect(withoutPassed(text)).toBe(text);
  });
});

describe('output without decoration', () => {
  test('leaves out underlines and shortens rules, and nothing else', () => {
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
      '===',
      'FAIL: test_a (tests.A.test_a)',
      '---',
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
  });
});
