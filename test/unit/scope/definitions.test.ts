import { describe, expect, it } from 'vitest';
import { outline } from '../../../src/server/scope/answer-scope.ts';
import { scopeLanguageOf } from '../../../src/server/scope/language-of.ts';
import type { ScopeLanguage } from '../../../src/server/scope/port.ts';
import { loadParser } from '../../../src/server/scope/syntax-parser.ts';
import { grammars } from '../../fixtures/scope.ts';

const { parserFor } = await loadParser(grammars, 384);

/** `kind name:line` of everything that can be named. */
async function names(language: ScopeLanguage, text: string): Promise<string[]> {
  const found = outline(await parserFor(language), language, Buffer.from(text));
  if (!found.ok) throw new Error(found.fault.reason);
  const all = found.symbols.map(({ kind, name, line }) => `${kind} ${name}:${line}`);
  return found.imports ? [...all, 'imports'] : all;
}

describe('what can be named in a file', () => {
  it.each<[what: string, language: ScopeLanguage, text: string, expected: string[]]>([
    [
      'Python: functions, decorated and async ones, and those within',
      'python',
      '@dec\nasync def f(x):\n    def inner(): pass\n    local = 1\n    return 1\n',
      ['function f:1', 'function f.inner:3'],
    ],
    [
      'Python: both branches of an if, and what a try assigns',
      'python',
      'if A:\n    def f(): pass\nelse:\n    def f(): pass\ntry:\n    import q\nexcept E:\n    q = None\n',
      ['function f:2', 'variable q:8', 'imports'],
    ],
    [
      'Python: a class with its fields, methods and classes',
      'python',
      'class A:\n    y: int = 3\n    @property\n    def m(self): pass\n    class B:\n        def n(self): pass\n',
      ['class A:1', 'field A.y:2', 'method A.m:3', 'class A.B:5', 'method A.B.n:6'],
    ],
    [
      'Python: what one name is assigned to, and no other assignment',
      'python',
      'X = 1\na, b = 1, 2\nc = d = 3\nX += 1\nx.y = 1\nz: int\ntype T = int\n',
      ['variable X:1', 'variable z:6', 'type T:7'],
    ],
    ['Python: an import of the future is no import', 'python', 'from __future__ import annotations\n', []],
    [
      'JavaScript: functions in each form, exported or not',
      'javascript',
      'function a() { function in1() {} const no = 1 }\nexport const b = () => {};\nexport async function* c() {}\nvar d = function () {};\n',
      ['function a:1', 'function a.in1:1', 'function b:2', 'function c:3', 'function d:4'],
    ],
    [
      'JavaScript: a class with private names, accessors, strings and numbers as keys, but no computed ones',
      'javascript',
      'class A { static #p = 1; get x() { return 1 } set x(v) {} 12() {} "q"() {} [c]() {} static {} }\n',
      ['class A:1', 'field A.#p:1', 'method A.x:1', 'method A.12:1', 'method A.q:1'],
    ],
    [
      'JavaScript: objects, CommonJS and prototypes',
      'javascript',
      'const o = { a() {}, b: 1, "c": { d: 2 } }, p = 1;\nmodule.exports = { e() {} };\nexports.z = function () {};\nFoo.prototype.bar = class { m() {} };\nx[1] = 2;\ny = 3;\n',
      [
        'variable o:1',
        'method o.a:1',
        'member o.b:1',
        'member o.c:1',
        'member o.c.d:1',
        'variable p:1',
        'variable module.exports:2',
        'method module.exports.e:2',
        'function exports.z:3',
        'class Foo.prototype.bar:4',
        'method Foo.prototype.bar.m:4',
      ],
    ],
    [
      'JavaScript: what is required is imported; what a pattern declares has no name',
      'javascript',
      'const { a, b: c } = require("q").r;\nconst { d } = e;\nconst { f = evil() } = require("g");\n',
      ['imports'],
    ],
    [
      'JavaScript: the default export',
      'javascript',
      'export default class { m() {} }\n',
      ['class default:1', 'method default.m:1'],
    ],
    [
      'TypeScript: overloads are one name',
      'typescript',
      'function o(a: string): void;\nfunction o(a: number): void;\nfunction o(a: unknown) {}\n',
      ['function o:1'],
    ],
    [
      'TypeScript: types, interfaces, enums, namespaces, abstract classes and what is in them',
      'typescript',
      'export abstract class B { abstract m(): void; @d() x = 1; @a @b() n() {} }\nnamespace N { export function g(): void {} }\nenum E { A, B = 2 }\ninterface I { a: string; b(): void }\ntype T = 1;\ndeclare const q: number;\nimport fs = require("fs");\n',
      [
        'class B:1',
        'method B.m:1',
        'field B.x:1',
        'method B.n:1',
        'namespace N:2',
        'function N.g:2',
        'enum E:3',
        'member E.A:3',
        'member E.B:3',
        'interface I:4',
        'member I.a:4',
        'method I.b:4',
        'type T:5',
        'variable q:6',
        'imports',
      ],
    ],
    ['TSX', 'tsx', 'export const View = () => <p class="a">{x}</p>;\n', ['function View:1']],
  ])('%s', async (_what, language, text, expected) => {
    expect(await names(language, text)).toEqual(expected);
  });

  it.each([
    ['a.py', 'python'],
    ['a.pyi', 'python'],
    ['a/b.test.MTS', 'typescript'],
    ['a.d.cts', 'typescript'],
    ['a.tsx', 'tsx'],
    ['a.jsx', 'javascript'],
    ['a.cjs', 'javascript'],
    ['a.rs', null],
    ['Makefile', null],
    ['py', null],
    ['a.constructor', null],
  ])('%s is %s', (path, language) => {
    expect(scopeLanguageOf(path)).toBe(language);
  });
});
