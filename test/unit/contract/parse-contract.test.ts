import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseContract } from '../../../src/server/contract/parse-contract.ts';

const good = `{
  "title": "T", // a comment
  "instruction": "Do it.",
  "writable": ["src/a.py", { "path": "src/b.py" }],
  "acceptance": [{ "id": "unit", "argv": ["python3", "-m", "unittest"] }],
}`;

/** The text that each remark stands on. */
function remarks(text: string): readonly (readonly [code: string, text: string])[] {
  return parseContract(text).diagnostics.map((d) => [d.code, text.slice(d.offset, d.offset + d.length)]);
}
const change = (from: string, to: string): string => {
  expect(good).toContain(from);
  return good.replace(from, to);
};

describe('parseContract', () => {
  it('reads comments and trailing commas, and spells defaults out', () => {
    const { source, diagnostics } = parseContract(good);
    expect(diagnostics).toEqual([]);
    expect(source).toMatchObject({
      writable: [{ path: 'src/a.py' }, { path: 'src/b.py' }],
      acceptance: [{ baseline: 'fail', timeoutS: 120, showKiB: 16, captureKiB: 4096, env: {} }],
      supplemental: [],
      budget: { attempts: 2, requestsPerAttempt: 12, outputTokensPerRequest: 1536, wallS: 600 },
      profile: 'bounded',
      image: {},
    });
  });

  it.each([
    ['an unknown key', change('"title"', '"titel"'), ['unknown-key', '"titel"']],
    ['an unknown key in a list', change('"id": "unit"', '"id": "unit", "timeout": 3'), ['unknown-key', '"timeout"']],
    ['an unknown key in a writable file', change('{ "path"', '{ "paths": 1, "path"'), ['unknown-key', '"paths"']],
    ['a value of another type', change('"T"', '7'), ['schema-invalid-type', '7']],
    ['a value out of bounds', change('"id": "unit"', '"id": "unit", "timeoutS": 0'), ['schema-too-small', '0']],
    [
      'a choice that is none',
      change('"id": "unit"', '"id": "unit", "baseline": "maybe"'),
      ['schema-invalid-value', '"maybe"'],
    ],
    ['an id in capitals', change('"unit"', '"Unit"'), ['schema-invalid-format', '"Unit"']],
    ['an empty list', change('["src/a.py", { "path": "src/b.py" }]', '[]'), ['schema-too-small', '[]']],
    [
      'a forbidden variable',
      change('"id": "unit"', '"id": "unit", "env": { "LD_PRELOAD": "x" }'),
      ['invalid-key', '"LD_PRELOAD"'],
    ],
    ['the search path', change('"id": "unit"', '"id": "unit", "env": { "PATH": "x" }'), ['invalid-key', '"PATH"']],
    ['a key given twice', change('"title": "T"', '"title": "T", "title": "U"'), ['duplicate-key', '"title"']],
    ['a writable entry of no known form', change('"src/a.py", ', '7, '), ['schema-invalid-type', '7']],
  ])('points at %s', (_, text, expected) => {
    expect(remarks(text)).toContainEqual(expected);
    expect(parseContract(text).source).toBeNull();
  });

  it.each([
    ['', 'The file is empty.'],
    ['  // only a comment\n', 'The file is empty.'],
    ['title: yaml\nwritable:\n - a\n', 'A contract begins with "{": it is JSON, with comments if you like.'],
    ['[]', 'A contract begins with "{": it is JSON, with comments if you like.'],
    [change('"T"', '7'), '"title" must be text in double quotes.'],
    [change('"T"', '" "'), '"title" is empty.'],
    [change('["src/a.py", ', '["", '), 'An entry of "writable" is empty.'],
    [change('"T"', `"${'x'.repeat(121)}"`), '"title" has more than 120 characters.'],
    [change('"id": "unit"', '"id": "unit", "timeoutS": 0'), '"timeoutS" must be at least 1.'],
    [change('"id": "unit"', '"id": "unit", "showKiB": 257'), '"showKiB" must be at most 256.'],
    [change('"id": "unit"', '"id": "unit", "baseline": "maybe"'), '"baseline" must be "fail" or "pass".'],
    [change('"unit"', '"Unit"'), '"id": lower-case letters, digits and dashes, at most 40.'],
  ])('says in plain words what is wrong (%#)', (text, message) => {
    expect(parseContract(text).diagnostics.map((d) => d.message)).toEqual([message]);
  });

  it('names what is missing', () => {
    const { diagnostics } = parseContract('{ "title": "T" }');
    expect(diagnostics.map((d) => d.message)).toEqual([
      '"instruction" is missing.',
      '"writable" is missing.',
      '"acceptance" is missing.',
    ]);
  });

  it('suggests the key that was meant', () => {
    const unknown = (text: string) => parseContract(text).diagnostics.find((d) => d.code === 'unknown-key')?.message;
    expect(unknown(change('"acceptance"', '"acceptence"'))).toContain('Did you mean "acceptance"?');
    expect(unknown(change('"title"', '"zzzzzzzz"'))).toContain('Known: $schema, title');
  });

  it.each([
    '',
    '[]',
    'null',
    '7',
    '{',
    '{"title"}',
    '{"title": }',
    '/* open',
    '{"title": "a\nb"}',
    '"\\u00"',
    '\u0000',
  ])('has an error and no contract for %j', (text) => {
    const { source, diagnostics } = parseContract(text);
    expect(source).toBeNull();
    expect(diagnostics.some((d) => d.severity === 'error')).toBe(true);
  });

  it('is not led astray by a key that is a name of the language', () => {
    const { source, diagnostics } = parseContract(
      change('"title": "T"', '"title": "T", "__proto__": { "profile": "none" }'),
    );
    expect(source).toBeNull();
    expect(diagnostics[0]?.code).toBe('unknown-key');
    expect(({} as Record<string, unknown>)['profile']).toBeUndefined();
  });

  it('stops at depth instead of running out of stack', () => {
    const text = '['.repeat(500_000);
    expect(remarks(text)).toEqual([['too-deep', '[']]);
  });

  it('stays inside the text with every remark, whatever the text', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'grapheme' }),
          fc.json(),
          fc
            .tuple(fc.nat(good.length), fc.nat(40), fc.string())
            .map(([at, cut, insert]) => good.slice(0, at) + insert + good.slice(at + cut)),
        ),
        (text) => {
          const { source, diagnostics } = parseContract(text);
          if (source === null) expect(diagnostics.some((d) => d.severity === 'error')).toBe(true);
          for (const d of diagnostics) {
            expect(d.offset).toBeGreaterThanOrEqual(0);
            expect(d.length).toBeGreaterThanOrEqual(0);
            expect(d.offset + d.length).toBeLessThanOrEqual(text.length);
          }
        },
      ),
    );
  });
});
