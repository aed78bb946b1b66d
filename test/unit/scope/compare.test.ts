import { describe, expect, it } from 'vitest';
import { compare } from '../../../src/server/scope/answer-scope.ts';
import type { ScopeLanguage } from '../../../src/server/scope/port.ts';
import { loadParser } from '../../../src/server/scope/syntax-parser.ts';
import { grammars } from '../../fixtures/scope.ts';

const { parserFor } = await loadParser(grammars, 384);

/** `inside`, or `reason line: what is there`. */
async function verdict(
  language: ScopeLanguage,
  before: string | Uint8Array,
  after: string | Uint8Array,
  existing: readonly string[],
  added: readonly string[] = [],
): Promise<string> {
  const bytes = (text: string | Uint8Array): Uint8Array => (typeof text === 'string' ? Buffer.from(text) : text);
  const question = { language, before: bytes(before), after: bytes(after), names: { existing, added } };
  const fault = compare(await parserFor(language), question);
  return fault === null ? 'inside' : `${fault.reason} ${fault.line ?? '-'}: ${fault.found ?? '-'}`;
}

const python = `"""Usage."""
import os

LIMIT = 3  # of all


@cache
def timestamp(text):
    """Seconds."""
    return parse(text)  # type: ignore


# what follows
def other(x):
    if x:
        return 1
    return "a b"


class Meter:
    size = 1

    def read(self):
        return self.size

    def reset(self): pass
`;
const replace = (from: string, to: string): string => {
  if (!python.includes(from)) throw new Error(`no ${from}`);
  return python.replace(from, to);
};

describe('a change of Python', () => {
  it.each<[what: string, after: string, names: string[], expected: string, added?: string[]]>([
    ['nothing', python, ['timestamp'], 'inside'],
    ['the body', replace('parse(text)', 'parse(text or "0")'), ['timestamp'], 'inside'],
    [
      'its decorators and its async',
      replace('@cache\ndef timestamp', '@cache(1)\n@more\nasync def timestamp'),
      ['timestamp'],
      'inside',
    ],
    ['the comment on its last line', replace('# type: ignore', '# plain'), ['timestamp'], 'inside'],
    [
      'a comment in it, behind its last statement',
      replace('  # type: ignore', '\n    # more'),
      ['timestamp'],
      'inside',
    ],
    ['blank lines around it', replace('\n\n\n# what', '\n\n# what'), ['timestamp'], 'inside'],
    ['spaces within a line outside', replace('LIMIT = 3', 'LIMIT  =  3'), ['timestamp'], 'inside'],
    ['the final newline', python.trimEnd(), ['timestamp'], 'inside'],
    ['all of it gone', python.replace(/@cache\n(.*\n)*?(?=\n\n# what)/, ''), ['timestamp'], 'inside'],
    [
      'defined twice where it was',
      replace('\n\n# what', '\n@late\ndef timestamp(t): return t\n\n\n# what'),
      ['timestamp'],
      'inside',
    ],
    ['a method', replace('return self.size', 'return 2'), ['Meter.read'], 'inside'],
    ['a constant', replace('LIMIT = 3', 'LIMIT: int = 4'), ['LIMIT'], 'inside'],
    [
      'an import, named',
      replace('import os', 'import os\nfrom re import compile as c'),
      ['timestamp', 'imports'],
      'inside',
    ],
    ['a new function, named', `${python}\n\ndef helper(): pass\n`, ['timestamp'], 'inside', ['helper']],
    [
      'a new method, named',
      replace('    def reset', '    def half(self): pass\n\n    def reset'),
      [],
      'inside',
      ['Meter.half'],
    ],
    ['what is new not added at all', python, ['timestamp'], 'inside', ['helper']],

    ['another function', replace('return 1', 'return 2'), ['timestamp'], 'changed 16: return 2'],
    ['a comment outside', replace('# what follows', '# type: ignore'), ['timestamp'], 'changed 13: # type: ignore'],
    [
      'the comment above it',
      replace('def timestamp', '# fmt: off\ndef timestamp').replace('@cache\n# fmt: off', '# fmt: off\n@cache'),
      ['timestamp'],
      'added 7: # fmt: off',
    ],
    ['a string outside', replace('"a b"', '"a  b"'), ['timestamp'], 'changed 17: return "a  b"'],
    [
      'a new function beside it',
      replace('# what', 'def helper(): pass\n\n\n# what'),
      ['timestamp'],
      'added 13: def helper(): pass',
    ],
    ['its name', replace('def timestamp', 'def timestamps'), ['timestamp'], 'added 7: @cache'],
    ['an import, not named', replace('import os', 'import os, re'), ['timestamp'], 'changed 2: import os, re'],
    ['an import at the end', `${python}import re\n`, ['timestamp', 'imports'], 'moved 27: import re'],
    [
      'an import of the future',
      replace('import os', 'from __future__ import annotations\nimport os'),
      ['imports'],
      'added 2: from __future__ import annotations',
    ],
    ['a function outside gone', python.replace(/def other[^]*?(?=class)/, ''), ['timestamp'], 'removed 14: -'],
    [
      'indentation outside',
      replace('    return "a b"', '        return "a b"'),
      ['timestamp'],
      'layout 17: return "a b"',
    ],
    [
      'a line break outside',
      replace('if x:\n        return 1', 'if x: return 1'),
      ['timestamp'],
      'layout 15: if x: return 1',
    ],
    [
      'a statement of it at the level of the module',
      replace('    return parse(text)', '    pass\nevil()'),
      ['timestamp'],
      'added 11: evil()  # type: ignore',
    ],
    ['the method of another class', replace('return self.size', 'return 2'), ['Meter.reset'], 'changed 24: return 2'],
    [
      'a method moved out of its class',
      replace('    def read(self):\n        return self.size\n\n', '').replace(
        'class Meter',
        'def read(self): pass\n\n\nclass Meter',
      ),
      ['Meter.read'],
      'added 20: def read(self): pass',
    ],
    [
      'the function moved',
      python.replace(/@cache\n(.*\n)*?(?=\n\n# what)/, '') + '\n\n@cache\ndef timestamp(t): pass\n',
      ['timestamp'],
      'moved 25: @cache',
    ],
    [
      'two places of what is new',
      `${replace('LIMIT', 'def helper(): pass\nLIMIT')}\ndef helper(): pass\n`,
      ['timestamp'],
      'moved 29: def helper(): pass',
      ['helper'],
    ],
    [
      'what is new before the docstring',
      `def helper(): pass\n${python}`,
      ['timestamp'],
      'layout 2: """Usage."""',
      ['helper'],
    ],
    ['line ends', python.replaceAll('\n', '\r\n'), ['timestamp'], 'layout 2: import os'],
    ['a byte-order mark', `\uFEFF${python}`, ['timestamp'], 'layout 1: -'],
    [
      'what does not parse',
      replace('return parse(text)', 'return parse(text'),
      ['timestamp'],
      'does-not-parse 8: def timestamp(text):',
    ],
  ])('%s', async (_what, after, names, expected, added = []) => {
    expect(await verdict('python', python, after, names, added)).toBe(expected);
  });

  it('moves a symbol into a block although no token outside is another', async () => {
    const before = 'if D:\n    log()\ndef f(): pass\n';
    expect(await verdict('python', before, 'if D:\n    log()\n    def f(): pass\n', ['f'])).toBe(
      'moved 3: def f(): pass',
    );
    expect(await verdict('python', 'class A:\n    x = 1\n', 'class A: x = 1\n', ['A.x'])).toBe(
      'moved 1: class A: x = 1',
    );
  });

  it('leaves what stands first in a body first: a docstring is none behind a method, a directive is none behind a function', async () => {
    const documented = 'class A:\n    """Doc."""\n    x = 1\n';
    expect(await verdict('python', documented, documented.replace('x', 'def m(self): pass\n    x'), [], ['A.m'])).toBe(
      'inside',
    );
    const before = documented.replace('"""Doc', 'def m(self): pass\n    """Doc');
    expect(await verdict('python', documented, before, [], ['A.m'])).toMatch(/^layout 3/);
    // And the other way round: what is no docstring does not become one.
    expect(await verdict('python', before, documented, ['A.m'])).toMatch(/^layout 2/);
    const strict = "function f() {\n  'use strict';\n  return this;\n}\n";
    const loose = strict.replace("'use", "function g() {}\n  'use");
    expect(await verdict('javascript', strict, loose, [], ['f.g'])).toMatch(/^layout 3/);
  });

  it('lets each branch of an if change its definition', async () => {
    const before = 'if A:\n    def f(): return 1\nelse:\n    def f(): return 2\n    x()\n';
    const after = before.replace('return 1', 'return 3').replace('return 2', 'return 4');
    expect(await verdict('python', before, after, ['f'])).toBe('inside');
    expect(await verdict('python', before, before.replace('else:\n    def f(): return 2\n', 'else:\n'), ['f'])).toBe(
      'inside',
    );
    expect(await verdict('python', before, before.replace('x()', 'y()'), ['f'])).toBe('changed 5: y()');
  });

  it('lets imports change where imports are, in a block too, and come before the first statement where there was none', async () => {
    const before = '"""Doc."""\n# about\nx = 1\nif TYPE_CHECKING:\n    import a\nelse:\n    y = 1\n';
    expect(
      await verdict('python', before, before.replace('import a', 'import a\n    from b import c'), ['imports']),
    ).toBe('inside');
    expect(await verdict('python', before, before.replace('x = 1', 'import z\nx = 1'), ['imports'])).toBe('inside');
    expect(await verdict('python', before, before.replace('    y = 1', '    import z\n    y = 1'), ['imports'])).toBe(
      'moved 7: import z',
    );
    expect(await verdict('python', before, `import z\n${before}`, ['imports'])).toBe('layout 2: """Doc."""');
  });
});

const script = `#!/usr/bin/env node
'use strict';
import a from 'a'; // first

/** Doc. */
export const scale = (x) => x * 2;

function other(x) {
  return \`v\${x}  \`;
}

class Box {
  #w = 1;
  w = 2
  size() { return this.#w }
}

scale(1);
`;
const edit = (from: string, to: string): string => {
  if (!script.includes(from)) throw new Error(`no ${from}`);
  return script.replace(from, to);
};

describe('a change of JavaScript', () => {
  it.each<[what: string, after: string, names: string[], expected: string, added?: string[]]>([
    ['the value', edit('x * 2', 'x * 3'), ['scale'], 'inside'],
    [
      'the form, its export included',
      edit('export const scale = (x) => x * 2;', 'function scale(x) {\n  return x;\n}'),
      ['scale'],
      'inside',
    ],
    ['a private field', edit('#w = 1;', '#w = f()'), ['Box.#w'], 'inside'],
    ['a method into an accessor', edit('size() {', 'get size() {'), ['Box.size'], 'inside'],
    ['an import, named', edit("import a from 'a';", "import a, { b } from 'a';\nimport 'c';"), ['imports'], 'inside'],
    ['blank lines outside', edit('\n\nfunction other', '\n\n\n\nfunction other'), ['scale'], 'inside'],
    ['a new export, named', `${script}export function half() {}\n`, [], 'inside', ['half']],

    ['a template outside', edit('${x}  `', '${x} `'), ['scale'], 'changed 9: return `v${x} `;'],
    ['a comment outside', edit('/** Doc. */', '/** @ts-nocheck */'), ['scale'], 'changed 5: /** @ts-nocheck */'],
    ['a line break after return', edit('return `', 'return\n`'), ['scale'], 'layout 10: `v${x}  `;'],
    ['a public field beside the private one of its name', edit('w = 2', 'w = 3'), ['Box.#w'], 'changed 14: w = 3'],
    [
      'a second declaration in its statement',
      edit('x * 2;', 'x * 2, evil = 1;'),
      ['scale'],
      'added 6: export const scale = (x) => x * 2, evil = 1;',
    ],
    [
      'a statement behind it on its line',
      edit('x * 2;', 'x * 2; evil();'),
      ['scale'],
      'added 6: export const scale = (x) => x * 2; evil();',
    ],
    [
      'what is new before the directive',
      edit("'use strict';", "function half() {}\n'use strict';"),
      [],
      "layout 3: 'use strict';",
      ['half'],
    ],
    [
      'the end of the file swallowed by a comment',
      edit('x * 2;', 'x * 2; /*'),
      ['scale'],
      'does-not-parse 18: scale(1);',
    ],
    [
      'the next statement swallowed by an operator',
      edit('x * 2;\n\nfunction other(x)', 'x *\n\nfunction other(x)'),
      ['scale'],
      'removed 9: return `v${x}  `;',
    ],
  ])('%s', async (_what, after, names, expected, added = []) => {
    const found = await verdict('javascript', script, after, names, added);
    if (expected.startsWith('removed') || expected.startsWith('does-not-parse')) expect(found).not.toBe('inside');
    else expect(found).toBe(expected);
  });

  it('goes by the separator of a member', async () => {
    const before = 'const o = { a: 1, b: 2, c: 3 };\n';
    expect(await verdict('javascript', before, 'const o = { a: 1, b: [4], c: 3 };\n', ['o.b'])).toBe('inside');
    expect(await verdict('javascript', before, 'const o = { a: 1, c: 3 };\n', ['o.b'])).toBe('inside');
    expect(await verdict('javascript', before, 'const o = { a: 1, b: 2, d: 4, c: 3 };\n', ['o.b'])).toMatch(
      /^changed 1/,
    );
    expect(await verdict('javascript', before, 'const o = { a: 1, b: 2, d: 4, c: 3 };\n', [], ['o.d'])).toBe('inside');
  });

  it('lets overloads come and go where they are', async () => {
    const before = 'function o(a: string): void;\nfunction o(a: unknown) {}\nlet x = 1;\n';
    const after =
      'function o(a: number): void;\nfunction o(a: string): void;\nfunction o(a: unknown) { x; }\nlet x = 1;\n';
    expect(await verdict('typescript', before, after, ['o'])).toBe('inside');
    expect(await verdict('typescript', before, `${before}function o(a: 1): void;\n`, ['o'])).toMatch(/^moved 4/);
  });

  it('compares JSX with its white space', async () => {
    const before = 'const A = () => <p>a {x}</p>;\nconst B = 1;\n';
    expect(await verdict('tsx', before, before.replace('B = 1', 'B = 2'), ['B'])).toBe('inside');
    expect(await verdict('tsx', before, before.replace('a {x}', 'a  {x}'), ['B'])).toMatch(/^changed 1/);
  });
});
