import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  byKind,
  fits,
  flag,
  integer,
  list,
  literal,
  nullable,
  object,
  oneOf,
  optional,
  record,
  text,
} from '../../../src/protocol/shape.ts';
import { executorProtocol, Policy, ToExecutor } from '../../../src/protocol/executor.ts';

const shape = object({
  name: text({ min: 1, max: 3, matches: /^[a-z]*$/ }),
  size: integer(0, 9),
  way: oneOf(['in', 'out']),
  note: optional(nullable(text({ max: 2 }))),
  all: list(flag, { max: 2 }),
  env: record(/^[A-Z]+$/, text({ max: 1 })),
});
const good = { name: 'ab', size: 9, way: 'in', note: null, all: [true], env: { A: 'x' } };

describe('a shape', () => {
  it('takes what fits, with and without what may be left out', () => {
    const { note: _, ...without } = good;
    expect([shape.misfit(good), shape.misfit(without)]).toEqual([undefined, undefined]);
  });

  it.each([
    ['null', null, ''],
    ['a list', [], ''],
    ['a missing member', { ...good, name: undefined }, '.name'],
    ['a text that is too long', { ...good, name: 'abcd' }, '.name'],
    ['a text of other characters', { ...good, name: 'A' }, '.name'],
    ['a fraction', { ...good, size: 1.5 }, '.size'],
    ['a number beyond', { ...good, size: 10 }, '.size'],
    ['not a number', { ...good, size: Number.NaN }, '.size'],
    ['a text for a number', { ...good, size: '1' }, '.size'],
    ['another word', { ...good, way: 'up' }, '.way'],
    ['too many', { ...good, all: [true, true, true] }, '.all'],
    ['a wrong one among many', { ...good, all: [true, 1] }, '.all[1]'],
    ['a wrong name', { ...good, env: { a: 'x' } }, '.env.a'],
    ['a member that nobody named', { ...good, more: 1 }, '.more'],
    ['a member named as the prototype', JSON.parse('{"__proto__":1}') as unknown, '.name'],
  ])('names where %s does not fit', (_, value, where) => {
    expect(shape.misfit(value)).toBe(where);
  });

  it('does not take a member of the prototype for one of the object', () => {
    const kinds = byKind('t', { a: object({ t: literal('a') }) });
    expect(kinds.misfit({ t: 'constructor' })).toBe('.t');
    expect(object({ toString: optional(flag) }).misfit({})).toBeUndefined();
    const extra = JSON.parse('{"t":"a","__proto__":{"t":"a"}}') as unknown;
    expect(kinds.misfit(extra)).toBe('.__proto__');
  });

  it('never throws, and never takes a frame whose members were exchanged for anything else', () => {
    const frame = {
      v: executorProtocol,
      n: 'a'.repeat(32),
      e: 1,
      k: 'b'.repeat(32),
      t: 'write',
      id: 1,
      path: 'src/a.py',
      expected: null,
      size: 3,
      sha256: 'c'.repeat(64),
      p: 3,
    };
    expect(fits(ToExecutor, frame)).toBe(true);
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(frame)), fc.anything(), (name, value) => {
        // What else each of them may be.
        const number = typeof value === 'number' && Number.isInteger(value);
        fc.pre(!number && !(typeof value === 'string') && !(name === 'expected' && value === null));
        fc.pre(!(name === 'p' && value === undefined));
        expect(fits(ToExecutor, { ...frame, [name]: value })).toBe(false);
      }),
    );
    fc.assert(
      fc.property(fc.anything(), (value) => {
        expect([fits(ToExecutor, value), fits(Policy, value)]).toEqual([false, false]);
      }),
    );
  });
});
