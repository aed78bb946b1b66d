import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { insertLines, strReplace, viewFile } from '../../../src/server/agent/editor.ts';
import type { TextFile } from '../../../src/server/agent/text-file.ts';
import { decodeText, encodeText, linesOf, splice, withText } from '../../../src/server/agent/text-file.ts';

function file(text: string): TextFile {
  const decoded = decodeText(Buffer.from(text, 'utf8'));
  if (decoded === null) throw new Error('not text');
  return decoded;
}
const after = (result: ReturnType<typeof strReplace>): string =>
  result.ok ? Buffer.from(encodeText(result.file)).toString('utf8') : `REFUSED ${result.text}`;
const replace = (text: string, old: string, next: string): string =>
  after(strReplace(file(text), '/workspace/a', old, next, { nearest: true }));
const insert = (text: string, line: number, next: string): string =>
  after(insertLines(file(text), '/workspace/a', line, next));

describe('view', () => {
  const shown = (text: string, range: readonly [number, number] | null): string =>
    viewFile(file(text), '/workspace/a', range).text;

  test('number and tab before each line', () => {
    expect(shown('one\ntwo\n', null)).toBe('/workspace/a, 2 lines:\n1\tone\n2\ttwo');
    expect(shown('one\n', null)).toBe('/workspace/a, 1 line:\n1\tone');
    expect(shown('one\ntwo\n', [2, 2])).toBe('/workspace/a, lines 2-2 of 2:\n2\ttwo');
  });
  test('an empty line between others has no number; white space is never taken for nothing', () => {
    expect(shown('a\n\n\nb\n  \nc\n', null)).toBe('/workspace/a, 6 lines:\n1\ta\n\n\n4\tb\n5\t  \n6\tc');
    expect(shown('a\n\n\nb\n', [2, 3])).toBe('/workspace/a, lines 2-3 of 4:\n2\t\n3\t');
  });
  test('each line of a view stands at its place, whatever the lines are', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('', ' ', 'x', '7\ty'), { minLength: 1, maxLength: 30 }), (lines) => {
        const out = shown(`${lines.join('\n')}\n`, null)
          .split('\n')
          .slice(1);
        expect(out).toHaveLength(lines.length);
        for (const [i, line] of lines.entries())
          expect([line === '' ? '' : null, `${i + 1}\t${line}`]).toContain(out[i]);
      }),
    );
  });
  test.each([
    [[2, 3], '2\tb\n3\tc'],
    [[3, -1], '3\tc\n4\td'],
    [[4, 9], '4\td\n(the file ends at line 4)'],
  ] as const)('range %j', (range, text) => {
    expect(shown('a\nb\nc\nd', range)).toContain(`\n${text}`);
  });
  test.each([[[0, 2]], [[5, 6]], [[3, 2]], [[-1, 2]]] as const)('bad range %j', (range) => {
    expect(viewFile(file('a\nb\nc\nd'), '/workspace/a', range).ok).toBe(false);
  });
  test('CRLF is shown as LF, a BOM not at all, an empty file is said', () => {
    expect(shown('\uFEFFa\r\nb\r\n', null)).toBe('/workspace/a, 2 lines:\n1\ta\n2\tb');
    expect(shown('', null)).toBe('/workspace/a is empty.');
  });
  test('a long file is clipped in the middle, and the numbers after the gap are right', () => {
    const text = Array.from({ length: 3000 }, (_, i) => `line number ${i + 1}`).join('\n');
    const out = shown(text, null);
    expect(out.length).toBeLessThan(17_000);
    for (const line of out.split('\n')) {
      const match = /^(\d+)\tline number (\d+)$/.exec(line);
      if (match !== null) expect(match[1]).toBe(match[2]);
    }
    expect(out).toContain('3000\tline number 3000');
    expect(out).toMatch(/lines \d+-\d+ are not shown/);
  });
  test('one endless line is cut', () => {
    expect(shown('x'.repeat(100_000), null)).toContain('… (98000 more characters)');
  });
});

describe('str_replace', () => {
  test.each([
    ['a\nb\nc\n', 'b', 'B', 'a\nB\nc\n'],
    ['a\nb\nc', 'b\nc', 'x', 'a\nx'],
    ['a\nb\n', 'b\n', '', 'a\n'],
    ['a\r\nb\r\nc\r\n', 'a\nb', 'a\nx\nb', 'a\r\nx\r\nb\r\nc\r\n'],
    ['a\r\nb\r\n', 'a\r\nb', 'z\r\ny', 'z\r\ny\r\n'],
    ['\uFEFFa\nb\n', 'a', 'z', '\uFEFFz\nb\n'],
    ['a\r\nb\nc\r\n', 'a\nb\nc', 'a\nB\nc', 'a\r\nB\nc\r\n'],
    ['x  = 1\n', '  x  = 1  ', '  x  = 2  ', 'x  = 2\n'],
    ['$& $1\n', '$1', '$&$&', '$& $&$&\n'],
    ['no newline', 'line', 'end', 'no newend'],
  ])('%j: %j by %j', (text, old, next, expected) => {
    expect(replace(text, old, next)).toBe(expected);
  });

  test.each([
    ['twice', 'a\nb\na\n', 'a', 'z', 'occurs 2 times in /workspace/a, at lines 1, 3'],
    ['overlapping', 'aaa', 'aa', 'b', 'occurs 2 times'],
    ['nothing', 'a', '', 'b', 'old_str is empty'],
    ['the same', 'a', 'a', 'a', 'are the same'],
    ['not there', 'alpha\n', 'omega and more', 'x', 'does not occur verbatim'],
    ['lone surrogate', 'a', 'a', '\uD83D', 'not valid Unicode'],
  ])('%s is refused', (_name, text, old, next, reason) => {
    expect(replace(text, old, next)).toContain(reason);
  });

  test('a file too large to be compared line by line is not: the answer comes at once, without lines', () => {
    const large = Array.from({ length: 300_000 }, (_, n) => `  "key${n}": "value ${(n * 7919) % 100_003}",`).join('\n');
    const wrong = strReplace(file(large), '/workspace/a', '"key299999": "value x"', 'y', { nearest: true });
    expect(wrong.ok).toBe(false);
    expect(wrong.text).toMatch(/does not occur verbatim.*copy the text exactly/);
  });

  test('the nearest lines are shown where a text is not found', () => {
    const text = 'import os\n\ndef f(a):\n    return a + 1\n\ndef g(b):\n    return b\n';
    const wrong = strReplace(file(text), '/workspace/a', 'def f(a):\n  return a+1', 'x', { nearest: true });
    expect(wrong.text).toContain('Only white space differs from lines 3-4');
    expect(wrong.text).toContain('4\t    return a + 1');
    const close = strReplace(file(text), '/workspace/a', 'def f(a):\n    return a + 2', 'x', { nearest: true });
    expect(close.text).toContain('most similar lines are lines 3-4');
    const off = strReplace(file(text), '/workspace/a', 'def f(a):\n    return a + 2', 'x', { nearest: false });
    expect(off.text).not.toContain('similar');
  });

  test('the numbers of a view that were copied along are named', () => {
    const text = 'def f(a):\n    return a + 1\n\n';
    const copied = (old: string): string => strReplace(file(text), '/workspace/a', old, 'x', { nearest: true }).text;
    expect(copied('1\tdef f(a):\n2\t    return a + 1')).toContain('has the line numbers of the view');
    expect(copied('     2\t    return a + 1\n')).toContain('has the line numbers of the view');
    expect(copied('1\tdef g(a):')).toContain('does not occur verbatim');
  });

  test('the snippet has two lines on each side, without empty ones at its ends', () => {
    const text = 'a\nb\nc\nd\n\n\ne\n';
    const result = strReplace(file(text), '/workspace/a', 'd', 'D', { nearest: true });
    expect(result.text).toBe('Changed. Lines 2-4 now:\n2\tb\n3\tc\n4\tD');
  });

  test('the snippet carries the new numbers', () => {
    const result = strReplace(file('a\nb\nc\n'), '/workspace/a', 'b', 'b1\nb2', { nearest: true });
    expect(result.text).toContain('4\tc');
  });
});

describe('insert', () => {
  test.each([
    ['a\nb\n', 0, 'x', 'x\na\nb\n'],
    ['a\nb\n', 1, 'x\n', 'a\nx\nb\n'],
    ['a\nb\n', 2, 'x', 'a\nb\nx\n'],
    ['a\nb', 2, 'x', 'a\nb\nx'],
    ['a\nb', 1, 'x', 'a\nx\nb'],
    ['', 0, 'x', 'x\n'],
    ['a\r\nb\r\n', 1, 'x\ny', 'a\r\nx\r\ny\r\nb\r\n'],
    ['a\r\nb', 2, 'x', 'a\r\nb\r\nx'],
    ['\uFEFFa\n', 0, 'x', '\uFEFFx\na\n'],
  ])('%j after %i: %j', (text, line, next, expected) => {
    expect(insert(text, line, next)).toBe(expected);
  });
  test.each([-1, 3, 1.5, Number.NaN])('line %d does not exist', (line) => {
    expect(insert('a\nb\n', line, 'x')).toContain('REFUSED');
  });
});

describe('bytes outside an edit', () => {
  const eols = fc.constantFrom('\n', '\r\n');
  const anyFile = fc
    .tuple(
      fc.array(
        fc.tuple(
          fc.string({ maxLength: 8 }).map((s) => s.replaceAll(/[\r\n\0\uFEFF]/g, '')),
          eols,
        ),
        { maxLength: 12 },
      ),
      fc.boolean(),
    )
    .map(([lines, bom]) => (bom ? '\uFEFF' : '') + lines.map(([t, e]) => t + e).join(''));

  test('stay as they are, whatever the line ends are mixed like', () => {
    fc.assert(
      fc.property(anyFile, fc.nat(100), fc.nat(20), fc.string({ maxLength: 10 }), (text, a, b, next) => {
        const before = file(text);
        const from = Math.min(a, before.lf.length);
        const to = Math.min(from + b, before.lf.length);
        const added = next.replaceAll(/[\r\0]/g, '');
        const changed = splice(before, from, to, added);
        expect(changed.lf).toBe(before.lf.slice(0, from) + added + before.lf.slice(to));
        expect(changed.bom).toBe(before.bom);
        const head = before.lf.slice(0, from);
        const rawHead = before.raw.slice(0, head.length + countCrlf(before.raw, head));
        expect(changed.raw.startsWith(rawHead)).toBe(true);
      }),
    );
  });

  test('writing the same text whole changes nothing', () => {
    fc.assert(
      fc.property(anyFile, (text) => {
        const before = file(text);
        expect(encodeText(withText(before, before.lf))).toEqual(encodeText(before));
        expect(Buffer.from(encodeText(before)).toString('utf8')).toBe(text);
      }),
    );
  });
});

/** CRLFs that the first `head.length` characters of the LF text stand for. */
function countCrlf(raw: string, head: string): number {
  let lf = 0;
  let crlf = 0;
  for (let i = 0; lf < head.length; i += 1) {
    if (raw.startsWith('\r\n', i)) {
      crlf += 1;
      i += 1;
    }
    lf += 1;
  }
  return crlf;
}

test('binary and non-UTF-8 files are not text', () => {
  expect(decodeText(Buffer.from([0x61, 0, 0x62]))).toBeNull();
  expect(decodeText(Buffer.from([0xff, 0xfe, 0x61]))).toBeNull();
  expect(linesOf('a\n\n')).toEqual(['a', '']);
});
