import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  visible,
  visibleLines,
  withoutIcons,
  withoutLinks,
  notificationText,
} from '../../../src/extension/visible-text.ts';

describe('visible', () => {
  test.each([
    ['a right-to-left override', 'evil\u202egpj.exe', 'evil⟨U+202E⟩gpj.exe'],
    ['a zero-width space', 'pass\u200bword', 'pass⟨U+200B⟩word'],
    ['a terminal escape', '\u001b[31mred', '⟨U+001B⟩[31mred'],
    ['a line end', 'one\ntwo', 'one⏎two'],
    ['a Windows line end', 'one\r\ntwo', 'one⏎two'],
    ['a lone carriage return', 'safe\rhidden', 'safe⟨U+000D⟩hidden'],
    ['tag characters', 'a\u{e0041}b', 'a⟨U+E0041⟩b'],
    ['a filler that renders as nothing', 'a\u3164b', 'a⟨U+3164⟩b'],
    ['a lone surrogate', 'a\ud800b', 'a⟨U+D800⟩b'],
    ['a space that only looks like one', 'rm\u00a0-rf', 'rm⟨U+00A0⟩-rf'],
    ['a stack of marks', 'z\u0301\u0301\u0301\u0301\u0301\u0301', 'z\u0301\u0301\u0301⟨…⟩'],
  ])('shows %s', (_, text, shown) => {
    expect(visible(text)).toBe(shown);
  });

  test('leaves ordinary words of any script as they are', () => {
    for (const text of ['src/usage.py', 'größer', '日本語', 'שלום', 'naïve café', '😀'])
      expect(visible(text)).toBe(text);
  });

  test('whatever comes in, nothing comes out that hides, reorders or breaks a line', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        const shown = visible(text);
        expect(shown).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
        expect(shown).not.toMatch(/\p{M}{4}/u);
      }),
    );
  });

  test('a long text is cut, and the cut is marked', () => {
    expect(visible('x'.repeat(1_000_000), 10)).toBe(`${'x'.repeat(10)}…`);
  });
});

test('visibleLines keeps line ends and nothing else', () => {
  expect(visibleLines('a\u202e\nb\r\nc')).toBe('a⟨U+202E⟩\nb\nc');
});

test('no icon and no link can be smuggled in', () => {
  expect(withoutIcons('$(verified) trusted')).not.toMatch(/\$\(/);
  expect(withoutLinks('[ok](command:escrow.candidate.accept)')).not.toMatch(/\]\(/);
});

test('a title in a notification is no link to a command', () => {
  const title = '[Show](command:workbench.action.terminal.sendSequence)\u202e';
  expect(notificationText(`While no window was open: "${title}"`)).toBe(
    'While no window was open: "[Show] (command:workbench.action.terminal.sendSequence)⟨U+202E⟩"',
  );
});

test('only words of our own reach a notification without that', async () => {
  const folder = path.resolve(import.meta.dirname, '../../../src/extension');
  const files = (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.ts'));
  expect(files).toContain('messages.ts');
  const wild: string[] = [];
  for (const file of files.filter((name) => name !== 'messages.ts')) {
    const text = await readFile(path.join(folder, file), 'utf8');
    for (const call of text.matchAll(/show(?:Information|Warning|Error)Message\(\s*(.{0,40})/gs))
      if (!/^(?:vscode\.l10n\.t\('[^']*'?|notificationText\()/.test(call[1] ?? '')) wild.push(`${file}: ${call[0]}`);
    for (const [call, literal = ''] of text.matchAll(
      /show(?:Information|Warning|Error)Message\(\s*vscode\.l10n\.t\('([^']*)'/g,
    ))
      if (literal.includes('{0}')) wild.push(`${file}: ${call}`);
  }
  expect(wild).toEqual([]);
});
