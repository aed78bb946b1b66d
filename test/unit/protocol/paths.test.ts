import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseRelPath, pathKey, type PathFault } from '../../../src/protocol/paths.ts';

describe('parseRelPath', () => {
  it.each([
    'a',
    'src/usage.py',
    '.gitignore',
    '.github/workflows/ci.yml',
    'a b/c d.txt',
    'ünïcode/日本.ts',
    '%s',
    'git',
    'a.git',
    'console.log',
    'com/lpt.txt',
    '-rf',
    'x'.repeat(255),
    '__proto__/constructor',
    '...a',
  ])('accepts %j', (text) => {
    expect(parseRelPath(text)).toEqual({ ok: true, path: text });
  });

  const refused: readonly (readonly [string, PathFault])[] = [
    ['', 'empty'],
    ['/', 'absolute'],
    ['/etc/passwd', 'absolute'],
    ['C:/x', 'absolute'],
    ['c:x', 'absolute'],
    ['.', 'dot-segment'],
    ['..', 'dot-segment'],
    ['a/../b', 'dot-segment'],
    ['a/./b', 'dot-segment'],
    ['a//b', 'empty-segment'],
    ['a/', 'empty-segment'],
    ['a\\b', 'backslash'],
    ['..\\x', 'backslash'],
    ['a\0b', 'control-character'],
    ['a\nb', 'control-character'],
    ['a\u0085b', 'control-character'],
    ['a\u2028b', 'control-character'],
    ['a\u202Eyp.txt', 'invisible-character'],
    ['a\u2066b', 'invisible-character'],
    ['a\u200Bb', 'invisible-character'],
    ['\uFEFFa', 'invisible-character'],
    ['a\u3164b', 'invisible-character'],
    ['e\u0301', 'not-nfc'],
    ['\uD800', 'malformed'],
    ['a'.repeat(1025), 'too-long'],
    [`${'é'.repeat(500)}/${'é'.repeat(20)}`, 'too-long'],
    ['a'.repeat(256), 'segment-too-long'],
    ['é'.repeat(128), 'segment-too-long'],
    ['a.', 'trailing-dot-or-space'],
    ['a /b', 'trailing-dot-or-space'],
    ['a\u00A0', 'trailing-dot-or-space'],
    ['con', 'device-name'],
    ['src/NUL.txt', 'device-name'],
    ['COM1', 'device-name'],
    ['lpt\u00B9.x', 'device-name'],
    ['aux .c', 'device-name'],
    ['nul:x', 'device-name'],
    ['.git', 'git-folder'],
    ['.GIT/hooks/pre-commit', 'git-folder'],
    ['sub/.Git/config', 'git-folder'],
    ['.git::$INDEX_ALLOCATION/config', 'git-folder'],
    ['GIT~1/config', 'git-folder'],
  ];
  it.each(refused)('refuses %j as %s', (text, reason) => {
    expect(parseRelPath(text)).toEqual({ ok: false, reason });
  });

  it('accepts only text that stays inside any root it is joined to', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
        if (!parseRelPath(text).ok) return;
        const url = new URL(`file:///root/${text.split('/').map(encodeURIComponent).join('/')}`);
        expect(decodeURIComponent(url.pathname)).toBe(`/root/${text}`);
        expect(text).toBe(text.normalize('NFC'));
      }),
      { numRuns: 2000 },
    );
  });

  it('accepts every path built of plain segments', () => {
    const segment = fc.stringMatching(/^[a-z][a-z0-9_-]{5,20}\.py$/);
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 8 }), (segments) => {
        expect(parseRelPath(segments.join('/')).ok).toBe(true);
      }),
    );
  });
});

describe('pathKey', () => {
  it.each([
    ['README.md', 'readme.MD'],
    ['caf\u00E9', 'cafe\u0301'],
    ['STRASSE', 'straße'],
    ['ΣΑΣ', 'σας'],
    ['ı', 'I'],
  ])('calls %j and %j one file', (a, b) => {
    expect(pathKey(a)).toBe(pathKey(b));
  });
  it('keeps different names apart', () => {
    expect(pathKey('a/b')).not.toBe(pathKey('a/c'));
  });
  it('is stable under itself', () => {
    fc.assert(fc.property(fc.string({ unit: 'grapheme' }), (text) => pathKey(pathKey(text)) === pathKey(text)));
  });
});
