import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compare } from '../../../src/server/scope/answer-scope.ts';
import type { ScopeLanguage, ScopeNames } from '../../../src/server/scope/port.ts';
import { loadParser } from '../../../src/server/scope/syntax-parser.ts';
import { unless } from '../../fixtures/left-out.ts';
import { pythonHere, startOracle, type PythonOracle } from '../../fixtures/python-oracle.ts';
import { grammars } from '../../fixtures/scope.ts';
import { askScriptOracle } from '../../fixtures/script-oracle.ts';

/** Where an edit is made: anywhere, or near a word that the tests care for; and whether it goes to the end of the line. */
interface Edit {
  readonly near: string | null;
  readonly offset: number;
  readonly snap: 'none' | 'end' | 'next';
  readonly removed: number;
  readonly text: string;
}

const edits = (words: readonly string[], texts: readonly string[]): fc.Arbitrary<readonly Edit[]> =>
  fc.array(
    fc.record({
      near: fc.option(fc.constantFrom(...words)),
      offset: fc.nat(),
      snap: fc.constantFrom('none', 'none', 'end', 'next'),
      removed: fc.oneof(fc.constant(0), fc.nat(8)),
      text: fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...texts) }, { weight: 1, arbitrary: fc.constant('') }),
    }),
    { minLength: 1, maxLength: 3 },
  );

function edited(text: string, { near, offset, snap, removed, text: added }: Edit): string {
  const word = near === null ? -1 : text.indexOf(near);
  let at = word === -1 ? offset % (text.length + 1) : Math.min(text.length, word + (offset % 120));
  const line = text.indexOf('\n', at);
  if (snap !== 'none' && line !== -1) at = snap === 'end' ? line : line + 1;
  return text.slice(0, at) + added + text.slice(at + removed);
}

const names: fc.Arbitrary<ScopeNames> = fc.constantFrom(
  { existing: ['target'], added: [] },
  { existing: ['target', 'imports'], added: [] },
  { existing: ['K.m'], added: [] },
  { existing: ['K'], added: ['added'] },
  { existing: ['target'], added: ['added'] },
  { existing: ['imports'], added: ['K.added'] },
  { existing: ['other', 'K.x'], added: [] },
);

/** Said of a file that is not read at all: allowed for any input, wanted for none. */
const unread = new Set(['does-not-parse', 'ambiguous', 'unreadable', 'encoding']);

const { parserFor } = await loadParser(grammars, 384);
const judge = async (language: ScopeLanguage, before: string, after: string, wanted: ScopeNames): Promise<string> => {
  const question = { language, before: Buffer.from(before), after: Buffer.from(after), names: wanted };
  const fault = compare(await parserFor(language), question);
  return fault === null ? 'inside' : unread.has(fault.reason) ? 'unread' : 'outside';
};

const pythonFiles = [
  `"""Doc."""
import os
from a import (b,
  c)

X = 1


@dec(1)
def target(a, b=2):
    """Doc of it."""
    # inner
    if a:
        return b  # tail
    return f"{a!r:>{b}} {{x}}"


# about other
def other(x):
    return x + \\
        1


class K:
    x = 2

    def m(self):
        return [1,
                2]

    def n(self): pass

if __name__ == "__main__":
    other(1)
`,
  `def other():
    return """
  text
"""
def target():
  x = 'a'
  return x
other()
class K:
  def m(self):
    return 1
  x = 3
`,
  `if D:
    def target(): return 1
else:
    def target():
        return 2

    def other(): pass
X = 3
try:
    import x
except E:
    x = None
class K:
    m = 1
`,
];
const pythonTexts = [
  ['"""', "'''", '"', "'", 'f"{', '}"', "f'", 'r"', 'rb"', 'b"""', 'f"{x!r', '"{', '}', '\\{', 'f"\\{'],
  ['#', '# c', '# type: ignore', '\n#x\n', '\n    # y\n', '\n', '\n\n\n', '\n  ', '\n    ', '\n        ', '\t'],
  ['\\\n', '\\', '\n\\\n', '\x0c', '\r', '\u00a0', ' ', '(', ')', '[', ']', '{', ':', ';', ',', '.', '=', '==', '*'],
  ['x', '1', '0x', 'x = 1', 'return', 'return 1', 'pass', 'lambda: 0', '->int', 'async ', '@d\n', 'global x'],
  ['if x:\n', '\nif x:', 'else:', 'match x:\n', '  case 1: pass\n', 'with a: pass\n', 'print "x"', 'class K:\n'],
  ['import re', '\nimport re\n', '; import q', 'from __future__ import annotations\n', 'target', '\ntarget = 2\n'],
  ['\ndef g(): pass\n', '\ndef target(): pass\n', '    def added(): pass\n', '\ndef added(): pass\n', '\nadded = 1'],
].flat();

const scripts = [
  `#!/usr/bin/env node
"use strict";
import a from "a"; // first
import { b } from "b";

/** Doc. */
export function target(x, y = 2) {
  // inner
  if (x) return \`a\${x + y} b\`; // tail
  return /[/]x/g.test(x) ? y : { x };
}

// other
function other(x) {
  return x +
    1;
}

class K {
  #p = 1;
  x = 2
  m() { return this.x }
  get v() { return 1 }
  static s = 3;
}

other(target(1));
`,
  `const target = (x) => x
let other = 2
other++
class K {
  m = 1
  x = 3
  n() {}
}
export default K
`,
];
const typed = `import type { T } from "t";
export const target = <A,>(x: A): A => {
  return x as A;
};
interface I { a: string; m(): void }
abstract class K<T> extends B {
  private readonly x: number = 1;
  m(): T | null { return null! }
  abstract q(): void;
}
type U = { [k in keyof I]?: I[k] };
enum E { A, B = 2 }
function other(x: string): x is "a" { return x === "a" }
`;
const scriptTexts = [
  ['"', "'", '`', '${', '}', '{', '(', ')', '[', ']', ';', ',', '.', '=', '==', '=>', '+', '-', '*', '++', '/'],
  ['//', '// c', '/*', '*/', '/* c */', '<!--', '\n-->', '\n', '\n\n', ' ', '\\', '\\\n', '\r', '\u00a0', '\u2028'],
  ['x', '1', '0x1n', '`x`', '/x/g', '?.', '&&', '??', '...', '#x', 'in ', 'of', 'new ', 'return\n', 'return '],
  ['let ', 'yield ', 'await ', 'async ', 'async\n', 'get ', 'get\n', 'set', 'static\n', 'type\n', 'accessor '],
  ['\n(1)', '\n[1]', '\n`t`', '\n/r/g', '\n+1', '\n++x', '\n.y', '\nin x', 'if (x) ', 'else ', 'for (;;) ', 'l: '],
  ['var y = 1', '"use strict";\n', '\nimport q from "q";\n', 'const {a} = require("a")\n', 'export ', '@d '],
  ['\nfunction g() {}\n', '\nclass Z {}\n', 'function target() {}\n', '\nlet target = () => {}\n', '*gen() {}\n'],
  ['\nfunction added() {}\n', 'export const added = 1;\n', '  m() {}\n', 'm = 2\n', '<div>', '</div>'],
  ['<T>', 'as any', '?: number', '!', 'satisfies T', '\ntype T = 1;\n', 'declare ', 'abstract '],
].flat();

describe('random edits, judged a second time by a parser that has nothing to do with the first', () => {
  const python = pythonHere();
  describe.runIf(python)(`CPython${unless(python, 'python3 is not there')}`, () => {
    let oracle: PythonOracle;
    beforeAll(() => {
      oracle = startOracle();
    });
    afterAll(() => oracle.end());

    it('what is in scope is so for CPython, and what is the same for CPython is in scope', async () => {
      const cases = fc.tuple(fc.constantFrom(...pythonFiles), names, edits(['target', 'm(self', 'other'], pythonTexts));
      await fc.assert(
        fc.asyncProperty(cases, async ([before, wanted, made]) => {
          const after = made.reduce(edited, before);
          const said = await judge('python', before, after, wanted);
          const truth = await oracle.ask({ before, after, ...wanted });
          if (said === 'inside') expect(truth).not.toBe('outside');
          // What is no plain white space counts here as it is, and CPython does not care.
          const plain = !/[\r\f]/.test(after) && after.split('\\').length === before.split('\\').length;
          if (truth === 'inside' && plain) expect(said).not.toBe('outside');
        }),
        { numRuns: 1500 },
      );
    });
  });

  it('what is in scope is so for oxc, and what nobody touched is in scope: JavaScript and TypeScript', async () => {
    const languages = fc.constantFrom<readonly [ScopeLanguage, string, string]>(
      ...scripts.flatMap((text) => [
        ['javascript', 'a.js', text] as const,
        ['typescript', 'a.ts', text] as const,
        ['tsx', 'a.tsx', text] as const,
      ]),
      ['typescript', 'a.ts', typed],
      ['tsx', 'a.tsx', typed],
    );
    const cases = fc.tuple(languages, names, edits(['target', 'm()', 'm():', 'x = ', 'other'], scriptTexts));
    await fc.assert(
      fc.asyncProperty(cases, async ([[language, file, before], wanted, made]) => {
        const after = made.reduce(edited, before);
        const said = await judge(language, before, after, wanted);
        const { answer, sameText } = askScriptOracle(file, before, after, wanted.existing, wanted.added);
        if (said === 'inside') expect(answer).not.toBe('outside');
        if (answer === 'inside' && sameText) expect(said).not.toBe('outside');
      }),
      { numRuns: 1500 },
    );
  });
});
