import { readFileSync } from 'node:fs';
import { Script } from 'node:vm';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { compare } from '../../../src/server/scope/answer-scope.ts';
import type { ScopeFault, ScopeLanguage } from '../../../src/server/scope/port.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { ScopeUnavailable } from '../../../src/server/scope/port.ts';
import { loadParser } from '../../../src/server/scope/syntax-parser.ts';
import { maxScopeBytes } from '../../../src/server/scope/read-text.ts';
import { grammars, scopeDesk } from '../../fixtures/scope.ts';

const { parserFor } = await loadParser(grammars, 384);

async function fault(
  language: ScopeLanguage,
  before: string | Uint8Array,
  after: string | Uint8Array,
  existing = ['f'],
): Promise<ScopeFault | null> {
  const bytes = (text: string | Uint8Array): Uint8Array => (typeof text === 'string' ? Buffer.from(text) : text);
  const question = { language, before: bytes(before), after: bytes(after), names: { existing, added: [] } };
  return compare(await parserFor(language), question);
}

describe('bytes that are read in different ways', () => {
  const python = '#!/usr/bin/env python3\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n';
  it.each<[what: string, after: string | Uint8Array, reason: string]>([
    ['another encoding, declared in the symbol', '# coding: utf-7\n', 'encoding'],
    [
      'a lone carriage return, which ends a line for CPython',
      python.replace('return 1', 'return 1 #\rimport os'),
      'unreadable',
    ],
    ['NUL, which ends the file for some', python.replace('return 1', 'return 1 # \0'), 'unreadable'],
    ['bytes that are not UTF-8', Buffer.from([...Buffer.from(python), 0xff]), 'not-text'],
    ['an invisible space', python.replace('return 1', 'return\u200B1'), 'ambiguous'],
    ['a line that begins with a continuation', python.replace('return 1', 'x = 1\n\\\n    return x'), 'ambiguous'],
    [
      'a tab behind spaces, which CPython counts from the margin',
      python.replace('    return 1', '    if x:\n       \tpass\n         evil()'),
      'ambiguous',
    ],
    ['a string that is never closed', python.replace('return 1', 'return """'), 'does-not-parse'],
    ['a bracket that is never closed', python.replace('return 1', 'return ('), 'does-not-parse'],
    ['a continuation at the end of the symbol', python.replace('return 1\n', 'return 1 \\\n'), 'changed'],
  ])('Python: %s', async (_what, after, reason) => {
    const before = reason === 'encoding' ? 'def f():\n    return 1\n' : python;
    const now = reason === 'encoding' ? `@x\n# coding: utf-7\n${before}` : after;
    const found = await fault('python', before, now);
    expect(found).not.toBeNull();
    if (reason !== 'changed') expect(found?.reason).toBe(reason);
  });

  it('says the same of a base: nothing is shown to be the same as what is not read in one way', async () => {
    const odd = python.replace('return 2', 'return 2 #\revil()');
    expect((await fault('python', odd, odd))?.reason).toBe('unreadable');
    expect((await fault('python', 'def f(:\n', 'def f(): pass\n'))?.reason).toBe('does-not-parse');
  });

  it('takes a form feed between functions for what it is', async () => {
    const paged = python.replace('\n\n\ndef g', '\n\f\ndef g');
    expect(await fault('python', paged, paged.replace('return 1', 'return 3'))).toBeNull();
    expect((await fault('python', paged, python))?.reason).toBe('layout');
  });

  const script = 'function f(x) {\n  return 1;\n}\nvar seen = 1;\n';
  it.each<[what: string, after: string, reason: string]>([
    ['U+2028, which ends a comment for V8', script.replace('return 1;', 'return 1; // \u2028evil();'), 'unreadable'],
    ['a comment for scripts, operators for modules', script.replace('return 1;', 'return x<!--y;'), 'ambiguous'],
    ['the end of such a comment at the start of a line', script.replace('return 1;', 'x\n-->0'), 'ambiguous'],
    ['a no-break space', script.replace('return 1', 'return\u00A01'), 'ambiguous'],
    ['an open template', script.replace('return 1;', 'return `;'), 'does-not-parse'],
    ['an open comment', script.replace('return 1;', 'return 1; /*'), 'does-not-parse'],
  ])('JavaScript: %s', async (_what, after, reason) => {
    expect((await fault('javascript', script, after))?.reason).toBe(reason);
  });

  it('JavaScript: a field that V8 reads as the modifier of the next member', async () => {
    const before = 'class A {\n  get = 1\n  f() { return 1 }\n}\n';
    const after = 'class A {\n  get\n  f() { return 1 }\n}\n';
    const methodOf = (text: string): unknown =>
      new Script(`${text}; typeof Object.getOwnPropertyDescriptor(A.prototype, 'f').get`).runInNewContext();
    // So it is: the same tokens outside, and another class.
    expect([methodOf(before), methodOf(after)]).toEqual(['undefined', 'function']);
    expect((await fault('javascript', before, after, ['A.get']))?.reason).toBe('ambiguous');
  });

  it.each<[language: ScopeLanguage, before: string, after: string, name: string]>([
    ['javascript', 'function f() {}\n', 'async\nfunction f() {}\n', 'f'],
    ['tsx', 'class A {\n  f = 1\n}\n', 'class A {\n  accessor\n  f = 1\n}\n', 'A.f'],
    ['typescript', 'declare function f(): void;\n', 'declare\nfunction f(): void;\n', 'f'],
    ['typescript', 'type f = 1;\n', 'type\nf = 1;\n', 'f'],
  ])('%s: a word that is a statement of its own where a line ends behind it, from %j', async (...found) => {
    const [language, before, after, name] = found;
    expect(await fault(language, before, after, [name])).not.toBeNull();
  });

  it('JavaScript: what V8 takes for the rest of the symbol is no statement of its own', async () => {
    const before = 'const f = 1;\n(function () { seen = 2; })();\n';
    for (const after of [
      'const f = x\n(function () { seen = 2; })();\n',
      'const f = 1, y = x\n(function () { seen = 2; })();\n',
    ])
      expect(await fault('javascript', before, after)).not.toBeNull();
    const regex = 'let f = 1;\n/x/.test(seen);\n';
    expect(await fault('javascript', regex, 'let f = x\n/x/.test(seen);\n')).not.toBeNull();
  });
});

describe('the thread that parses', () => {
  const good = Buffer.from('def f(): pass\n');
  /** Recovers from fault after fault; 120 KB took 8 s. */
  const slow = Buffer.from('def (\n'.repeat(60_000));

  it.each<[what: string, language: ScopeLanguage, text: string]>([
    ['brackets in brackets', 'python', `x = ${'('.repeat(100_000)}1${')'.repeat(100_000)}\n`],
    ['lists in lists', 'javascript', `x = ${'['.repeat(100_000)}${']'.repeat(100_000)};`],
    ['blocks in blocks', 'typescript', `${'{'.repeat(100_000)}${'}'.repeat(100_000)}`],
    ['namespaces in namespaces', 'typescript', `${'namespace a{'.repeat(15_000)}${'}'.repeat(15_000)}`],
    [
      'classes in classes',
      'python',
      Array.from({ length: 600 }, (_, n) => `${' '.repeat(n)}class A:`).join('\n') + `\n${' '.repeat(600)}x = 1\n`,
    ],
    ['one token of half a million letters', 'python', `${'x'.repeat(500_000)} = 1\n`],
    ['an operator a hundred thousand times', 'python', `x = ${'not '.repeat(100_000)}1\n`],
    ['arrow functions in arrow functions', 'javascript', `x = ${'a=>'.repeat(50_000)}1;`],
    ['many definitions', 'python', 'def f(): pass\n'.repeat(30_000)],
    ['many names', 'javascript', Array.from({ length: 20_000 }, (_, n) => `let a${n};`).join('\n')],
    ['faults and nothing else', 'javascript', ')]}{(['.repeat(10_000)],
    ['generic types that are none', 'tsx', 'a<b,c>(d)'.repeat(5_000)],
    ['nothing', 'python', ''],
  ])('answers: %s', async (_what, language, text) => {
    // Not the deadline is what this is about.
    const desk = scopeDesk({ deadlineMs: 120_000 });
    try {
      const outline = await desk.outline(language, Buffer.from(text));
      // Whatever it says of it, it says something, and goes on.
      expect(outline.ok ? 'named' : outline.fault.reason).toMatch(/^(named|does-not-parse)$/);
      expect((await desk.outline('python', good)).ok).toBe(true);
    } finally {
      await desk.dispose();
    }
  });

  it('refuses what is larger than any file that a person wrote, before it is parsed', async () => {
    const desk = scopeDesk();
    const outline = await desk.outline('python', Buffer.alloc(maxScopeBytes + 1, '\n'));
    expect(outline).toMatchObject({ ok: false, fault: { reason: 'too-large' } });
    await desk.dispose();
  });

  it('has so much memory and no more: a file that needs more is out of scope, and the next one is parsed', async () => {
    const desk = scopeDesk({ memoryMiB: 48, deadlineMs: 120_000 });
    const large = Buffer.from(`x = ${'('.repeat(200_000)}1${')'.repeat(200_000)}\n`);
    expect(await desk.outline('python', large)).toMatchObject({ ok: false, fault: { reason: 'parser-failed' } });
    expect((await desk.outline('python', good)).ok).toBe(true);
    await desk.dispose();
  });

  it('is ended when it does not answer, which is out of scope, while this process goes on; the next question has a new one', async () => {
    const said: string[] = [];
    // Long enough for a machine that stalls; the file takes many times as long.
    const desk = scopeDesk({ deadlineMs: 2_000, log: (_level, message) => said.push(message) });
    let turns = 0;
    const turning = setInterval(() => {
      turns += 1;
    }, 1);
    const found = await desk.compare({
      language: 'python',
      before: good,
      after: slow,
      names: { existing: ['f'], added: [] },
    });
    clearInterval(turning);
    expect(found).toMatchObject({ fault: { reason: 'too-slow' }, grammar: { language: 'python' } });
    expect(turns).toBeGreaterThan(1);
    expect(said).toEqual(['a file could not be parsed']);
    expect((await desk.outline('python', good)).ok).toBe(true);
    await desk.dispose();
  });

  it('says by the hash of what it loaded which grammar compared, whatever came of it', async () => {
    const desk = scopeDesk();
    const names = { existing: ['f'], added: [] };
    const installed = (name: string) => sha256(readFileSync(path.join(grammars, name)));
    const { grammar } = await desk.compare({ language: 'python', before: good, after: good, names });
    expect(grammar).toEqual({
      package: '@vscode/tree-sitter-wasm',
      version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
      language: 'python',
      grammar: installed('tree-sitter-python.wasm'),
      runtime: installed('tree-sitter.wasm'),
    });
    const script = { language: 'tsx', before: Buffer.from('f('), after: Buffer.from('f('), names } as const;
    expect(await desk.compare(script)).toMatchObject({
      fault: { reason: 'does-not-parse' },
      grammar: { language: 'tsx', grammar: installed('tree-sitter-tsx.wasm') },
    });
    await desk.dispose();
  });

  it('answers questions in turn, and none after its end', async () => {
    const desk = scopeDesk();
    const names = { existing: ['f'], added: [] };
    const questions = Array.from({ length: 20 }, (_, n) =>
      desk.compare({
        language: 'python',
        before: good,
        after: Buffer.from(`def f(): ${n}\n${n % 2 === 0 ? '' : 'x'}`),
        names,
      }),
    );
    const answers = await Promise.all(questions);
    expect(answers.map(({ fault }) => fault === null)).toEqual(answers.map((_, n) => n % 2 === 0));
    await desk.dispose();
    await expect(desk.outline('python', good)).rejects.toThrow(ScopeUnavailable);
  });

  it('is unavailable, and says so, where it cannot start or says nothing at its start', async () => {
    const gone = scopeDesk({ grammars: '/nowhere' });
    await expect(gone.outline('python', good)).rejects.toThrow(/did not start: .*ENOENT/);
    await gone.dispose();
    const silent = scopeDesk({
      program: path.join(import.meta.dirname, '../../fixtures/bad-peers/silent-thread.mjs'),
      startMs: 50,
    });
    await expect(silent.outline('python', good)).rejects.toThrow(/did not answer/);
    await silent.dispose();
  });

  it('that dies with a question has answered it: out of scope', async () => {
    const desk = scopeDesk({ program: path.join(import.meta.dirname, '../../fixtures/bad-peers/dying-thread.mjs') });
    const names = { existing: ['f'], added: [] };
    expect(await desk.compare({ language: 'python', before: good, after: good, names })).toMatchObject({
      fault: { reason: 'parser-failed' },
      grammar: null,
    });
    await desk.dispose();
  });

  it('that prints waits for nobody; the beginning of what it printed is in the log, and no more', async () => {
    const said: string[] = [];
    const desk = scopeDesk({
      program: path.join(import.meta.dirname, '../../fixtures/bad-peers/chatty-thread.mjs'),
      log: (_level, _message, facts) => said.push(String(facts?.['said'])),
    });
    // It answers nothing before everything that it printed was read.
    expect(await desk.outline('python', good)).toMatchObject({ fault: { reason: 'parser-failed' } });
    expect(said.map((text) => text.length)).toEqual([4_000]);
    expect(said[0]).toContain('a reason');
    await desk.dispose();
  });
});
