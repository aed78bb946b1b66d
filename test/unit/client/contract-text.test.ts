import * as fc from 'fast-check';
import { parse, type ParseError } from 'jsonc-parser';
import { describe, expect, test } from 'vitest';
import { ContractSource } from '../../../src/protocol/contract.ts';
import { contractFileName, contractText, splitCommand } from '../../../src/client/contract-text.ts';

describe('splitCommand', () => {
  test.each([
    ['python3 -m unittest', ['python3', '-m', 'unittest']],
    ['  npm   test  ', ['npm', 'test']],
    [`node --test "a b.js" 'c d.js'`, ['node', '--test', 'a b.js', 'c d.js']],
    [String.raw`a\ b "say \"hi\""`, ['a b', 'say "hi"']],
    ['x "" y', ['x', '', 'y']],
    [`pre'fix'"ed"`, ['prefixed']],
    ['', []],
  ])('%s', (line, words) => {
    expect(splitCommand(line)).toEqual(words);
  });

  test('an open quote is no command', () => {
    expect(splitCommand('python3 "x')).toBeNull();
  });

  test('nothing is expanded: what a shell would read stays as it is', () => {
    expect(splitCommand('echo $HOME *.py ; ls | wc')).toEqual(['echo', '$HOME', '*.py', ';', 'ls', '|', 'wc']);
  });
});

test('whatever a person types becomes a contract that the schema takes', () => {
  const words = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 100 }).filter((text) => text.trim() !== '');
  fc.assert(
    fc.property(words, words, fc.array(words, { minLength: 1, maxLength: 4 }), (title, instruction, check) => {
      const text = contractText({
        title: title.trim(),
        instruction: instruction.trim(),
        writable: ['src/a.py'],
        check,
        hints: { scratch: ['.pytest_cache'], npm: 'package-lock.json', python: 'requirements.lock' },
      });
      const errors: ParseError[] = [];
      const value: unknown = parse(text, errors, { allowTrailingComma: true });
      expect(errors).toEqual([]);
      const parsed = ContractSource.safeParse(value);
      expect(parsed.success, JSON.stringify(parsed.error)).toBe(true);
      expect(parsed.data?.acceptance[0]?.argv).toEqual(check);
      expect(parsed.data?.scratch).toEqual(['.pytest_cache']);
      expect(parsed.data?.image.dependencies?.npm).toBe('package-lock.json');
    }),
  );
});

test.each([
  ['UTC for timezone-free timestamps', 'utc-for-timezone-free-timestamps.contract.jsonc'],
  ['Größe & Maß', 'gro-e-ma.contract.jsonc'],
  ['../../etc/passwd', 'etc-passwd.contract.jsonc'],
  ['日本語', 'change.contract.jsonc'],
])('a file name from the title %s', (title, name) => {
  expect(contractFileName(title)).toMatch(/^[a-z0-9-]+\.contract\.jsonc$/);
  if (title !== 'Größe & Maß') expect(contractFileName(title)).toBe(name);
});
