import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { unseenChanges, unseenOf } from '../../../src/extension/review/unseen-changes.ts';

const defaults = { ignoreTrimWhitespace: true, stopRenderingLineAfter: 10_000 };
const bytes = (text: string): Uint8Array => Buffer.from(text);
const unseen = (before: string | null, after: string | null, settings = defaults) =>
  unseenChanges(before === null ? null : bytes(before), after === null ? null : bytes(after), settings);

describe('what a diff of VS Code does not show', () => {
  test('nothing of an ordinary change (control)', () => {
    expect(unseen('a\nb\n', 'a\nc\nd\n')).toEqual([]);
    expect(unseen(null, 'a\n')).toEqual([]);
    expect(unseen('a\n', null)).toEqual([]);
  });

  test('a statement that moves out of its block by its indentation alone', () => {
    const before = 'if allowed:\n    check()\n    run()\n';
    const after = 'if allowed:\n    check()\nrun()\n';
    expect(unseen(before, after)).toEqual([{ kind: 'white-space', lines: 1 }]);
    expect(unseen(before, after, { ...defaults, ignoreTrimWhitespace: false })).toEqual([]);
  });

  test('white space beside other changes, after lines came and went', () => {
    expect(unseen('x\na\nb\nc\n', 'a\n  b\nnew\nc \n')).toEqual([{ kind: 'white-space', lines: 2 }]);
  });

  test('line ends, a byte order mark, bytes that are no text, binary files', () => {
    expect(unseen('a\nb\n', 'a\r\nb\r\n')).toEqual([{ kind: 'line-ends', before: 'lf', after: 'crlf' }]);
    expect(unseen('a\nb\n', 'a\r\nb\n')).toEqual([{ kind: 'line-ends', before: 'lf', after: 'mixed' }]);
    expect(unseen('a\n', '\ufeffa\n')).toEqual([{ kind: 'byte-order-mark' }]);
    expect(unseenChanges(bytes('a'), Buffer.from([0x61, 0xff]), defaults)).toEqual([{ kind: 'not-text' }]);
    expect(unseenChanges(bytes('a'), Buffer.from([0x61, 0]), defaults)).toEqual([{ kind: 'binary' }]);
  });

  test('line ends of a file that has several kinds, and a lone CR, which is drawn as a line end too', () => {
    expect(unseen('a\r\nb\nc', 'a\nb\r\nc')).toEqual([{ kind: 'line-ends', before: 'mixed', after: 'mixed' }]);
    expect(unseen('a\r\nb\nc', 'a\r\nb\nnew\nc')).toEqual([]);
    expect(unseen('# a\nrun()\n', '# a\rrun()\r')).toEqual([{ kind: 'line-ends', before: 'lf', after: 'cr' }]);
  });

  test('whether a file can be started: it is no part of its text', () => {
    const file = (beforeMode: number | null, afterMode: number | null) =>
      unseenOf({ beforeMode, afterMode }, beforeMode === null ? null : bytes('a'), bytes('a'), defaults);
    expect(file(0o644, 0o755)).toEqual([{ kind: 'executable', now: true }]);
    expect(file(0o755, 0o644)).toEqual([{ kind: 'executable', now: false }]);
    expect(file(null, 0o755)).toEqual([{ kind: 'executable', now: true }]);
    expect(file(null, 0o644)).toEqual([]);
    expect(file(0o644, 0o664)).toEqual([]);
    expect(unseenOf({ beforeMode: 0o755, afterMode: null }, bytes('a'), null, defaults)).toEqual([]);
  });

  test('no two texts that are drawn alike and are not the same bytes are said to hide nothing', () => {
    const end = fc.constantFrom('\n', '\r\n', '\r');
    const side = fc.record({ mark: fc.boolean(), ends: fc.array(end, { minLength: 3, maxLength: 3 }) });
    const line = fc.constantFrom('a', 'b', ' a', 'x = 1');
    fc.assert(
      fc.property(fc.tuple(line, line, line, line), side, side, (lines, before, after) => {
        const text = ({ mark, ends }: typeof before) =>
          `${mark ? '\ufeff' : ''}${lines.map((each, n) => each + (ends[n] ?? '')).join('')}`;
        const [was, is] = [text(before), text(after)];
        expect(unseen(was, is).length > 0).toBe(was !== is);
      }),
    );
  });

  test('what stands in a line behind the last character that is drawn', () => {
    const long = `x = 1 #${' '.repeat(10_000)}\n`;
    expect(unseen('x = 1\n', long)).toEqual([{ kind: 'long-lines', lines: 1, limit: 10_000 }]);
    expect(unseen(long, `${long}y\n`)).toEqual([]);
    expect(unseen('x = 1\n', long, { ...defaults, stopRenderingLineAfter: -1 })).toEqual([]);
  });

  test('characters without a shape in what changed; those that were there before are none of its doing', () => {
    expect(unseen('a\n', 'a\nb\u200bc\u202e\n')).toEqual([
      { kind: 'invisible', lines: 1, names: ['⟨U+200B⟩', '⟨U+202E⟩'] },
    ]);
    expect(unseen('b\u200bc\n', 'b\u200bc\nnew\tline\u001b\n')).toEqual([]);
  });

  test('a file that is too different to compare is not said to hide nothing, and is given up soon', () => {
    const lines = (salt: string) => Array.from({ length: 60_000 }, (_, n) => `${salt}${n}`).join('\n');
    expect(unseen(lines('a'), lines('b'))).toEqual([{ kind: 'white-space', lines: null }]);
  });

  test('with nothing hidden by settings, no change of white space is called hidden; with the default, each one is', () => {
    const line = fc.constantFrom('a', ' a', 'a ', '\ta', 'b', '', ' ');
    fc.assert(
      fc.property(fc.array(line), fc.array(line), (before, after) => {
        const shown = unseen(before.join('\n'), after.join('\n'), { ...defaults, ignoreTrimWhitespace: false });
        expect(shown).toEqual([]);
        const sameTrimmed =
          before.length === after.length && before.every((text, n) => text.trim() === after[n]?.trim());
        if (!sameTrimmed) return;
        const differing = before.filter((text, n) => text !== after[n]).length;
        const found = unseen(before.join('\n'), after.join('\n'));
        expect(found).toEqual(differing === 0 ? [] : [{ kind: 'white-space', lines: differing }]);
      }),
    );
  });
});
