import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { quoteArgv, tokenize } from '../../../src/server/agent/tokenizer.ts';
import { unless } from '../../fixtures/left-out.ts';

describe('plain words', () => {
  test.each([
    ['python3 -m unittest tests.test_usage', ['python3', '-m', 'unittest', 'tests.test_usage']],
    ['  node\t--test   test/a.test.js \n', ['node', '--test', 'test/a.test.js']],
    [`run 'two words' "and two" three\\ four`, ['run', 'two words', 'and two', 'three four']],
    [`x 'a'"b"c ''`, ['x', 'abc', '']],
    ['x "a\\"b\\\\c\\d"', ['x', 'a"b\\c\\d']],
    [`x '$HOME;*' "|&<>"`, ['x', '$HOME;*', '|&<>']],
    ['x --name=value a=b', ['x', '--name=value', 'a=b']],
    [`x a#b 'c~' d~`, ['x', 'a#b', 'c~', 'd~']],
    [`'A=b' c`, ['A=b', 'c']],
    ['pytest tests/größe.py', ['pytest', 'tests/größe.py']],
  ])('%s', (line, argv) => {
    expect(tokenize(line)).toEqual({ ok: true, argv });
  });
});

describe('what only a shell understands is refused', () => {
  test.each([
    ['a; b', 'chaining'],
    ['a && b', 'chaining'],
    ['a || b', 'chaining'],
    ['a | b', 'chaining'],
    ['a &', 'chaining'],
    ['a\nb', 'chaining'],
    ['a\r\nb', 'chaining'],
    ['a \\\nb', 'chaining'],
    ['a "x\\\ny"', 'chaining'],
    ['a > b', 'redirection'],
    ['a 2>&1', 'redirection'],
    ['a < b', 'redirection'],
    ['a <<EOF', 'redirection'],
    ['a <(b)', 'redirection'],
    ['a $(b)', 'substitution'],
    ['a `b`', 'substitution'],
    ['a $B', 'substitution'],
    ['a "$B"', 'substitution'],
    ['a "`b`"', 'substitution'],
    ['a ${B}', 'substitution'],
    ["a $'b'", 'substitution'],
    ['a *.py', 'glob'],
    ['a ?', 'glob'],
    ['a [ab]', 'glob'],
    ['a ~/b', 'expansion'],
    ['~ b', 'expansion'],
    ['a {b,c}', 'expansion'],
    ['! a', 'expansion'],
    ['(a)', 'grouping'],
    ['a # b', 'comment'],
    ['A=b c', 'assignment'],
    ['A= c', 'assignment'],
    ['_x1+=b c', 'assignment'],
    ["A='b c' d", 'assignment'],
    ["a 'b", 'unfinished'],
    ['a "b', 'unfinished'],
    ['a \\', 'unfinished'],
    ['a \u0000b', 'control'],
    ["a 'b\u0000'", 'control'],
    ['a \u001b[0m', 'control'],
    ['', 'empty'],
    [' \n ', 'empty'],
    ['x'.repeat(70_000), 'too_long'],
  ])('%j is %s', (line, code) => {
    const result = tokenize(line);
    expect(result.ok ? result.argv : result.code).toBe(code);
  });
});

test('lines that are drawn out with spaces hold nothing up', () => {
  // A pattern for the space at the end took ten seconds for each of these.
  const drawnOut = ` a${' \t'.repeat(32_000)}b\n `;
  for (let n = 0; n < 20; n += 1) expect(tokenize(drawnOut)).toEqual({ ok: true, argv: ['a', 'b'] });
});

test('every argv that a contract can declare comes back from its own quoting', () => {
  const word = fc.oneof(
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 }),
    fc.constantFrom('', '$x', 'a b', "it's", '"', '\\', '*', 'A=b', '~', '#', 'new\nline', '-x=y', '`', '&&'),
  );
  fc.assert(
    fc.property(
      fc.array(word, { minLength: 1, maxLength: 6 }).filter((argv) => argv.every((w) => !w.includes('\0'))),
      (argv) => {
        expect(tokenize(quoteArgv(argv))).toEqual({ ok: true, argv });
      },
    ),
  );
});

test('any line ends in words or in a named refusal; unquoted metacharacters never in words', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 60 }), (line) => {
      const result = tokenize(line);
      if (result.ok && !/['"\\]/.test(line)) expect(result.argv.join('')).not.toMatch(/[;&|<>$`*?[\]{}!()]/);
    }),
  );
});

const seed = Number(process.env['ESCROW_FUZZ_SEED'] ?? randomInt(2 ** 31));

const shell = existsSync('/bin/sh');

test.runIf(shell)(
  `what is accepted, a real shell reads as the same words (seed ${seed})${unless(shell, 'there is no /bin/sh')}`,
  async () => {
    // Where a pattern would match, with nothing that could be started.
    const folder = await mkdtemp(path.join(tmpdir(), 'escrow-words-'));
    try {
      for (const name of ['a', 'ab', 'b=']) await writeFile(path.join(folder, name), '');
      const character = fc.constantFrom(...'aab=-~#\'"\\ \t\n$`;&|<>*?[]{}()!/.%^+:@'.split(''));
      const inside = fc.string({ unit: character, maxLength: 5 });
      const piece = fc.oneof(
        { weight: 8, arbitrary: fc.constantFrom(...'ab= -./~#'.split('')) },
        { weight: 2, arbitrary: inside.map((text) => `'${text}'`) },
        { weight: 2, arbitrary: inside.map((text) => `"${text}"`) },
        { weight: 2, arbitrary: character.map((one) => `\\${one}`) },
        { weight: 1, arbitrary: character },
      );
      const lines = fc.array(piece, { maxLength: 10 }).map((pieces) => pieces.join(''));
      const accepted = fc.sample(lines, { numRuns: 5_000, seed }).flatMap((line) => {
        const result = tokenize(line);
        return result.ok ? [{ line, argv: result.argv }] : [];
      });
      // Enough of them say something: quotes, escapes, several words.
      expect(accepted.length).toBeGreaterThan(1000);
      expect(accepted.filter(({ line }) => /['"\\]/.test(line)).length).toBeGreaterThan(300);
      expect(accepted.filter(({ argv }) => argv.length > 1).length).toBeGreaterThan(100);
      const script = accepted.map(({ line }) => `set -- ${line.trim()}\nprintf '%s\\0' "$#" "$@"\n`).join('');
      const { stdout, stderr, status } = spawnSync('/bin/sh', ['-s'], { cwd: folder, env: {}, input: script });
      expect([status, stderr.toString()]).toEqual([0, '']);
      const read = stdout.toString().split('\0');
      for (const { line, argv } of accepted) {
        const [count = ''] = read.splice(0, 1);
        expect([line, read.splice(0, Number(count))]).toEqual([line, argv]);
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);
