import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { visibleJson, visibleLine, visibleLines } from '../../../src/cli/visible.ts';

/** What a terminal obeys or does not show, stated without reference to the code under test. */
// oxlint-disable-next-line no-control-regex -- control characters are what this is about
const obeyed = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/u;

describe('hostile text on a terminal', () => {
  it('shows escape sequences by name instead of sending them', () => {
    expect(visibleLine('\u001b[2J\u001b]52;c;aGk=\u0007')).toBe('⟨ESC⟩[2J⟨ESC⟩]52;c;aGk=⟨U+0007⟩');
    expect(visibleLine('\u009b31m')).toBe('⟨U+009B⟩31m');
  });

  it('shows bidirectional, invisible and tag characters by name', () => {
    expect(visibleLine('a\u202eb\u200bc\u{e0041}d\u3164e\ufe0f')).toBe(
      'a⟨U+202E⟩b⟨U+200B⟩c⟨U+E0041⟩d⟨U+3164⟩e⟨U+FE0F⟩',
    );
  });

  it('shows spaces that only look like spaces', () => {
    expect(visibleLine('a\u00a0b c')).toBe('a⟨U+00A0⟩b c');
  });

  it('leaves ordinary text of any script alone', () => {
    const text = 'naïve Größe — 日本語 العربية ελληνικά 👍 {}[]()';
    expect(visibleLine(text)).toBe(text);
  });

  it('splits lines, expands tabs and names a CR that is not a line end', () => {
    expect(visibleLines('a\tb\r\nc\rd')).toEqual(['a       b', 'c⟨CR⟩d']);
  });

  it('never lets anything through that a terminal obeys', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => !obeyed.test(visibleLine(text))));
  });

  it('escapes JSON without changing its value', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const json = visibleJson({ text });
        expect(obeyed.test(json)).toBe(false);
        expect((JSON.parse(json) as { text: string }).text).toBe(text);
      }),
    );
  });
});
