import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CompletionItem } from 'vscode-languageserver-protocol';
import { TextDocument } from 'vscode-languageserver-textdocument';
import { contractJsonSchema } from '../../../src/server/contract/contract-json-schema.ts';
import { createLanguageService } from '../../../src/server/contract/language.ts';
import { knownKeys } from '../../../src/server/contract/parse-contract.ts';
import { fieldHelp } from '../../../src/server/contract/field-help.ts';
import { gitRepository } from '../../fixtures/git-repository.ts';
import type { GitRepository } from '../../fixtures/git-repository.ts';
import { scope } from '../../fixtures/scope.ts';

const service = createLanguageService(scope);

describe('language features of a contract', () => {
  let repo: GitRepository;
  let file: string;
  beforeAll(async () => {
    repo = await gitRepository({ 'src/a.py': 'x = 1\n', 'tests/test_a.py': 'x = 1\n' });
    file = path.join(repo.root, 'é #1.contract.jsonc');
  });
  afterAll(() => repo.dispose());

  /** `|` marks the cursor. */
  const at = (marked: string): [text: string, position: { line: number; character: number }] => {
    const offset = marked.indexOf('|');
    const text = marked.slice(0, offset) + marked.slice(offset + 1);
    return [text, TextDocument.create('x', 'jsonc', 0, text).positionAt(offset)];
  };
  const complete = (marked: string): Promise<readonly CompletionItem[]> => service.completion(file, ...at(marked));
  const labels = async (marked: string): Promise<string[]> => (await complete(marked)).map((item) => item.label);
  /** The text after the item was chosen. */
  async function choose(marked: string, label: string): Promise<string> {
    const [text] = at(marked);
    const item = (await complete(marked)).find((each) => each.label === label);
    if (item?.textEdit === undefined || !('range' in item.textEdit)) throw new Error(`no item ${label}`);
    return TextDocument.applyEdits(TextDocument.create('x', 'jsonc', 0, text), [item.textEdit]);
  }

  it('completes keys that are not there yet', async () => {
    expect(await labels('{ "title": "T", | }')).toEqual(
      expect.arrayContaining(['instruction', 'writable', 'acceptance']),
    );
    expect(await labels('{ "title": "T", | }')).not.toContain('title');
    expect(await labels('{ "acceptance": [{ "id": "a", "| }] }')).toEqual(
      expect.arrayContaining(['argv', 'baseline', 'timeoutS']),
    );
    expect(await labels('{ "budget": { | } }')).toEqual([
      'attempts',
      'requestsPerAttempt',
      'outputTokensPerRequest',
      'wallS',
    ]);
  });

  it('writes a key with the form of its value, and replaces what was typed of it', async () => {
    expect(await choose('{ "wri|" }', 'writable')).toBe('{ "writable": [$1] }');
    expect(await choose('{ "budget": { | } }', 'attempts')).toBe('{ "budget": { "attempts": ${1:2} } }');
    expect(await choose('{ "pro|": "bounded" }', 'profile')).toBe('{ "profile": "bounded" }');
  });

  it('completes choices', async () => {
    expect(await labels('{ "acceptance": [{ "baseline": | }] }')).toEqual(['fail', 'pass']);
    expect(await choose('{ "tools": ["|"] }', 'search')).toBe('{ "tools": ["search"] }');
    expect(await choose('{ "acceptance": [{ "baseline": "f|" }] }', 'pass')).toBe(
      '{ "acceptance": [{ "baseline": "pass" }] }',
    );
  });

  it('completes tracked paths, with folders where a glob may stand', async () => {
    expect(await labels('{ "writable": [|] }')).toEqual(['src/a.py', 'tests/test_a.py']);
    expect(await labels('{ "writable": [{ "path": "|" }] }')).toEqual(['src/a.py', 'tests/test_a.py']);
    expect(await labels('{ "protected": ["|"] }')).toEqual(['src/**', 'tests/**', 'src/a.py', 'tests/test_a.py']);
    expect(await choose('{ "writable": ["sr|"] }', 'src/a.py')).toBe('{ "writable": ["src/a.py"] }');
    expect(await labels('{ "acceptance": [{ "argv": ["python3", "|"] }] }')).toContain('tests/test_a.py');
    expect(await labels('{ "acceptance": [{ "argv": ["|"] }] }')).toEqual([]);
    expect(await labels('{ "title": "|" }')).toEqual([]);
  });

  it('explains a field on its key and on its value', async () => {
    const hover = async (marked: string): Promise<unknown> => (await service.hover(file, ...at(marked)))?.contents;
    expect(await hover('{ "writ|able": [] }')).toMatchObject({ kind: 'markdown', value: fieldHelp['writable'] });
    expect(await hover('{ "acceptance": [{ "timeoutS": 1|5 }] }')).toMatchObject({
      value: fieldHelp['acceptance/*/timeoutS'],
    });
    expect(await hover('{ "readable": ["src/|a.py"] }')).toMatchObject({ value: fieldHelp['readable'] });
    expect(await hover('{ "tools": ["sea|rch"] }')).toMatchObject({ value: fieldHelp['tools'] });
    expect(await hover('{ | }')).toBeUndefined();
  });

  it('has help for every key that it knows, and for no other', () => {
    const places = [
      '',
      'snapshot',
      'writable/*',
      'acceptance/*',
      'supplemental/*',
      'budget',
      'image',
      'image/dependencies',
      'image/dependencies/python',
      'image/steps/*',
    ];
    const keys = places.flatMap((place) =>
      knownKeys(place === '' ? [] : place.split('/').map((part) => (part === '*' ? 0 : part))).map((key) =>
        place === '' ? key : `${place}/${key}`,
      ),
    );
    const unexplained = new Set([
      '$schema',
      'supplemental/*/id',
      'supplemental/*/timeoutS',
      'supplemental/*/captureKiB',
      'supplemental/*/env',
    ]);
    expect(Object.keys(fieldHelp).toSorted()).toEqual(keys.filter((key) => !unexplained.has(key)).toSorted());
  });

  it('offers its commands at the top, with the file’s URI', async () => {
    const lenses = await service.codeLenses(file, '// first\n{ "title": "T" }');
    expect(lenses.map((lens) => lens.command?.command)).toEqual([
      'escrow.contract.freeze',
      'escrow.contract.baseline',
      'escrow.session.start',
    ]);
    expect(lenses[0]?.range.start).toEqual({ line: 1, character: 0 });
    expect(lenses[0]?.command?.arguments).toEqual([
      expect.stringMatching(/^file:\/\/.*\/%C3%A9%20%231\.contract\.jsonc$/),
    ]);
    expect(await service.codeLenses(file, '[]')).toEqual([]);
    expect(await service.codeLenses(file, '')).toEqual([]);
  });

  it('points diagnostics at lines', async () => {
    const found = await service.diagnostics(file, '{\n  "titel": "T"\n}');
    expect(found).toContainEqual({
      range: { start: { line: 1, character: 2 }, end: { line: 1, character: 9 } },
      severity: 1,
      code: 'unknown-key',
      source: 'escrow',
      message: '"titel" is not known here. Did you mean "title"?',
    });
  });

  it('is silent and does not throw in a broken text', async () => {
    for (const marked of ['|', '{|', '{"a": [|', '"|', '[|]', '{"acceptance": {"x": |}}', '{"writable": [[|]]}']) {
      const [text, position] = at(marked);
      await expect(service.completion(file, text, position)).resolves.toBeInstanceOf(Array);
      await expect(service.hover(file, text, position)).resolves.toBeDefined();
      await expect(service.diagnostics(file, text)).resolves.not.toHaveLength(0);
    }
  });
});

describe('the JSON Schema of a contract', () => {
  it('requires what a contract must have and knows no other keys', () => {
    expect(contractJsonSchema()).toMatchObject({
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      required: ['title', 'instruction', 'writable', 'acceptance'],
      additionalProperties: false,
      allowTrailingCommas: true,
    });
  });
});
