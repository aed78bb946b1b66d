import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TextDocument } from 'vscode-languageserver-textdocument';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { checkContract, freezeContract } from '../../../src/server/contract/freeze-contract.ts';
import { createLanguageService } from '../../../src/server/contract/language.ts';
import type { ScopeChecker } from '../../../src/server/scope/port.ts';
import { gitRepository, type GitRepository } from '../../fixtures/git-repository.ts';
import { scope, scopeDesk } from '../../fixtures/scope.ts';

const usage = `import os


def timestamp(text):
    return parse(text)


class Meter:
    def read(self):
        return 1
`;

describe('a contract that names symbols', () => {
  let repo: GitRepository;
  let file: string;
  beforeAll(async () => {
    repo = await gitRepository({
      'src/usage.py': usage,
      'src/broken.py': 'def f(:\n',
      'src/latin.py': '# coding: latin-1\nx = 1\n',
      'src/odd.js': 'let a = 1; // \u2028let b = 2;\n',
      'src/large.py': 'x = 1\n'.repeat(100_000),
      'src/main.rs': 'fn main() {}\n',
      'tests/test_usage.py': 'x = 1\n',
    });
    file = path.join(repo.root, 'change.contract.jsonc');
  });
  afterAll(() => repo.dispose());

  const text = (writable: unknown): string =>
    JSON.stringify({
      title: 'T',
      instruction: 'Do it.',
      writable: [writable],
      acceptance: [{ id: 'unit', argv: ['python3', '-m', 'unittest', 'tests.test_usage'] }],
    });
  /** `code: what it stands on: message` of each error, which is what freezing refuses with, too. */
  async function refusals(writable: unknown): Promise<string[]> {
    const source = text(writable);
    await writeFile(file, source);
    const { diagnostics } = await checkContract(file, scope);
    const errors = diagnostics.filter(({ severity }) => severity === 'error');
    const refusal: unknown = await freezeContract(file, scope).catch((error: unknown) => error);
    expect(EscrowError.is(refusal, 'InvalidContract')).toBe(errors.length > 0);
    return errors.map((d) => `${d.code}: ${source.slice(d.offset, d.offset + d.length)}: ${d.message}`);
  }
  async function frozen(writable: unknown): Promise<Awaited<ReturnType<typeof freezeContract>>> {
    await writeFile(file, text(writable));
    return freezeContract(file, scope);
  }

  it('holds them, those that may be added apart, in an order of their own; the digest is of them', async () => {
    const named = { path: 'src/usage.py', symbols: ['timestamp', 'imports', 'Meter.read'], newSymbols: ['parse'] };
    const one = await frozen(named);
    expect(one.contract.writable).toEqual([
      {
        path: 'src/usage.py',
        exists: true,
        symbols: [
          { name: 'Meter.read', exists: true },
          { name: 'imports', exists: true },
          { name: 'parse', exists: false },
          { name: 'timestamp', exists: true },
        ],
      },
    ]);
    expect((await frozen({ ...named, symbols: named.symbols.toReversed() })).digest).toBe(one.digest);
    expect((await frozen({ ...named, symbols: ['timestamp', 'imports'] })).digest).not.toBe(one.digest);
    expect((await frozen({ path: 'src/usage.py' })).digest).toBe((await frozen('src/usage.py')).digest);
    expect((await frozen({ path: 'src/usage.py' })).contract.writable[0]?.symbols).toBeNull();
  });

  it('may let something be added and nothing be changed', async () => {
    const { contract } = await frozen({ path: 'src/usage.py', newSymbols: ['Meter.half', 'helper'] });
    expect(contract.writable[0]?.symbols?.map(({ name, exists }) => [name, exists])).toEqual([
      ['Meter.half', false],
      ['helper', false],
    ]);
  });

  it.each<[what: string, writable: unknown, expected: string[]]>([
    [
      'a name that is almost one',
      { path: 'src/usage.py', symbols: ['timestmp'] },
      ['unknown-symbol: "timestmp": src/usage.py defines no timestmp. Did you mean timestamp?'],
    ],
    [
      'a name that is none',
      { path: 'src/usage.py', symbols: ['timestamp', 'somethingElse'] },
      [
        'unknown-symbol: "somethingElse": src/usage.py defines no somethingElse. It defines timestamp, Meter, Meter.read. What is to be added is named in "newSymbols".',
      ],
    ],
    [
      'a name twice, in either list',
      { path: 'src/usage.py', symbols: ['timestamp', 'timestamp'], newSymbols: ['a', 'a'] },
      ['duplicate-symbol: "timestamp": timestamp is already named.', 'duplicate-symbol: "a": a is already named.'],
    ],
    [
      'something new that is there',
      { path: 'src/usage.py', newSymbols: ['timestamp', 'imports'] },
      [
        'known-symbol: "timestamp": src/usage.py defines timestamp: name it in "symbols".',
        'known-symbol: "imports": "imports" stands for what is imported: name it in "symbols".',
      ],
    ],
    [
      'something new that no definition can be called, or in a class that is not there',
      { path: 'src/usage.py', newSymbols: ['a b', 'Metre.half'] },
      [
        'unknown-symbol: "a b": a b is no name that a definition can have.',
        'unknown-symbol: "Metre.half": src/usage.py defines no Metre. Did you mean Meter?',
      ],
    ],
    [
      'a language without a grammar',
      { path: 'src/main.rs', symbols: ['main'] },
      [
        'symbols-language: ["main"]: Symbols can\'t be named in src/main.rs, only in .py, .pyi, .js, .mjs, .cjs, .jsx, .ts, .mts, .cts, .tsx.',
      ],
    ],
    [
      'a file that is not there yet',
      { path: 'src/new.py', newSymbols: ['f'] },
      ['symbols-new-file: ["f"]: src/new.py does not exist yet: all of it is new. Leave the symbols out.'],
    ],
    [
      'a file that does not parse',
      { path: 'src/broken.py', symbols: ['f'] },
      [
        'symbols-unreadable: ["f"]: Symbols can\'t be named in src/broken.py: it does not parse, at least not by the grammar that Escrow has (line 1: def f(:).',
      ],
    ],
    [
      'another encoding',
      { path: 'src/latin.py', symbols: ['x'] },
      [
        'symbols-unreadable: ["x"]: Symbols can\'t be named in src/latin.py: it declares another encoding than UTF-8 (line 1: # coding: latin-1).',
      ],
    ],
    [
      'a line that is two for some',
      { path: 'src/odd.js', symbols: ['a'] },
      [
        'symbols-unreadable: ["a"]: Symbols can\'t be named in src/odd.js: it holds a character that ends a line or a text for some programs and not for others (line 1: let a = 1; // \\u{2028}let b = 2;).',
      ],
    ],
    [
      'a file that is too large',
      { path: 'src/large.py', symbols: ['x'] },
      ['symbols-unreadable: ["x"]: Symbols can\'t be named in src/large.py: it has more than 512 KiB.'],
    ],
  ])('is refused: %s', async (_what, writable, expected) => {
    expect(await refusals(writable)).toEqual(expected);
  });

  it.each([
    ['none', [], 'is empty'],
    ['too many', Array.from({ length: 33 }, (_, n) => `f${n}`), 'more than 32 entries'],
    ['an empty one', [''], 'is empty'],
  ])('is refused by its form: %s', async (_what, symbols, message) => {
    expect((await refusals({ path: 'src/usage.py', symbols })).join()).toContain(message);
  });

  it('is told what lies within another, which changes nothing', async () => {
    await writeFile(file, text({ path: 'src/usage.py', symbols: ['Meter', 'Meter.read'] }));
    const { diagnostics } = await checkContract(file, scope);
    expect(diagnostics.map(({ severity, message }) => [severity, message])).toEqual([
      ['warning', 'Meter.read lies within Meter, all of which may change.'],
    ]);
  });

  it('is refused where nothing can be parsed at all', async () => {
    const gone = scopeDesk({ grammars: '/nowhere' });
    await writeFile(file, text({ path: 'src/usage.py', symbols: ['timestamp'] }));
    await expect(freezeContract(file, gone)).rejects.toMatchObject({ code: 'InvalidContract' });
    await gone.dispose();
  });

  it('is refused when the file changes between the look for its symbols and the snapshot', async () => {
    await writeFile(file, text({ path: 'src/usage.py', symbols: ['timestamp'] }));
    const target = path.join(repo.root, 'src/usage.py');
    const late: ScopeChecker = {
      compare: (comparison) => scope.compare(comparison),
      async outline(language, bytes) {
        const found = await scope.outline(language, bytes);
        await writeFile(target, usage.replace('1', '2'));
        return found;
      },
    };
    try {
      await expect(freezeContract(file, late)).rejects.toThrow(/changes while it is read/);
    } finally {
      await writeFile(target, usage);
    }
  });

  describe('in the editor', () => {
    const service = createLanguageService(scope);
    /** `|` marks the cursor. */
    const at = (marked: string): [text: string, position: { line: number; character: number }] => {
      const offset = marked.indexOf('|');
      const source = marked.slice(0, offset) + marked.slice(offset + 1);
      return [source, TextDocument.create('x', 'jsonc', 0, source).positionAt(offset)];
    };

    it('completes what the file of the entry defines, and imports, each with what it is', async () => {
      const items = await service.completion(
        file,
        ...at('{ "writable": [{ "path": "src/usage.py", "symbols": ["|"] }] }'),
      );
      expect(items.map(({ label, detail }) => `${label}: ${detail ?? ''}`)).toEqual([
        'timestamp: function, line 4',
        'Meter: class, line 8',
        'Meter.read: method, line 9',
        'imports: what the file imports',
      ]);
      expect(
        await service.completion(file, ...at('{ "writable": [{ "path": "nowhere.py", "symbols": ["|"] }] }')),
      ).toEqual([]);
      expect(
        await service.completion(file, ...at('{ "writable": [{ "path": "../x.py", "symbols": ["|"] }] }')),
      ).toEqual([]);
    });

    it('completes what may be added: what the instruction names, a name at the top, one in each class', async () => {
      const completed = async (instruction: string, newSymbols: string): Promise<string[]> => {
        const items = await service.completion(
          file,
          ...at(
            `{ "instruction": ${JSON.stringify(instruction)}, "writable": [{ "path": "src/usage.py", "newSymbols": ${newSymbols} }] }`,
          ),
        );
        return items.map(({ detail, textEdit }) => `${textEdit?.newText ?? ''} ${detail ?? ''}`);
      };
      const open = ['"${1:name}" new at the top level of src/usage.py', '"Meter.${1:name}" new in the class, line 8'];
      expect(await completed('', '["|"]')).toEqual(open);
      expect(await completed('', '[|]')).toEqual(open);
      // Marked as code, not there yet, and a name that something could have.
      const instruction =
        'Add `half()` and `Meter.reset(now)` beside `timestamp` and `Meter.read`; not `a b`, `Metre.x`.';
      expect(await completed(instruction, '["|"]')).toEqual([
        '"half" named in the instruction',
        '"Meter.reset" named in the instruction',
        ...open,
      ]);
      expect(await completed(instruction, '["half", "|"]')).toEqual([
        '"Meter.reset" named in the instruction',
        ...open,
      ]);
    });

    it('says on hover where a name that may be added would be; a wrong one has its remark', async () => {
      const hover = async (newSymbols: string): Promise<string> =>
        JSON.stringify(
          await service.hover(file, ...at(`{ "writable": [{ "path": "src/usage.py", "newSymbols": ${newSymbols} }] }`)),
        );
      expect(await hover('["ha|lf"]')).toContain('`half` may be added, at the top level of `src/usage.py`');
      expect(await hover('["Meter.re|set"]')).toContain(
        '`Meter.reset` may be added, in the class `Meter`, line 8 of `src/usage.py`',
      );
      expect(await hover('["Gauge", "Gauge.re|ad"]')).toContain('in `Gauge`, which is new as well');
      for (const wrong of ['["Meter.re|ad"]', '["Metre.re|ad"]', '["a| b"]'])
        expect(await hover(wrong)).toContain('What may be added to the file');
    });

    it('says on hover what a named symbol is', async () => {
      const hover = async (marked: string): Promise<string> => JSON.stringify(await service.hover(file, ...at(marked)));
      expect(await hover('{ "writable": [{ "path": "src/usage.py", "symbols": ["Meter.r|ead"] }] }')).toContain(
        'The method `Meter.read`, line 9 of `src/usage.py`.',
      );
      expect(await hover('{ "writable": [{ "path": "src/usage.py", "symbols": ["imp|orts"] }] }')).toContain('imports');
      expect(await hover('{ "writable": [{ "path": "src/usage.py", "symbols": ["no|ne"] }] }')).toContain(
        'token for token',
      );
      expect(await hover('{ "writable": [{ "path": "src/usage.py", "newSymb|ols": ["x"] }] }')).toContain(
        'may be added',
      );
    });
  });
});
