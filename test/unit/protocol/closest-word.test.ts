import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { closestWord } from '../../../src/protocol/closest-word.ts';

/** Changes between two words by the definition, every cell filled in. */
function distance(a: string, b: string): number {
  const cells = Array.from({ length: a.length + 1 }, (_, i) =>
    Array.from({ length: b.length + 1 }, (__, j) => (i === 0 ? j : j === 0 ? i : 0)),
  );
  const at = (i: number, j: number): number => cells[i]?.[j] ?? Infinity;
  for (let i = 1; i <= a.length; i += 1) {
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1];
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      cells[i]![j] = Math.min(
        at(i - 1, j) + 1,
        at(i, j - 1) + 1,
        at(i - 1, j - 1) + (same ? 0 : 1),
        swapped ? at(i - 2, j - 2) + 1 : Infinity,
      );
    }
  }
  return at(a.length, b.length);
}

describe('the closest known word', () => {
  it.each([
    ['acceptence', 'acceptance'],
    ['writeable', 'writable'],
    ['TITLE', 'title'],
    ['src/usgae.py', 'src/usage.py'],
    ['usage.py', 'src/usage.py'],
  ])('%s: %s', (word, meant) => {
    expect(closestWord(word, ['acceptance', 'writable', 'title', 'src/usage.py', 'budget'])).toBe(meant);
  });

  it('is none where too much differs, or the word is no word', () => {
    expect(closestWord('colour', ['title', 'budget', 'profile'])).toBeUndefined();
    expect(closestWord('x'.repeat(201), ['x'.repeat(200)])).toBeUndefined();
    expect(closestWord('src/a/long/name.py', ['other/a/deep/name.py'])).toBeUndefined();
  });

  it('is the first of those with the fewest changes, at most a third and six', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', '/'), minLength: 1, maxLength: 24 });
    fc.assert(
      fc.property(word, fc.array(word, { maxLength: 5 }), (typed, known) => {
        const fit = known
          .map((candidate) => ({ candidate, changes: distance(typed, candidate) }))
          .filter(({ candidate, changes }) => {
            return changes <= Math.min(6, Math.max(1, Math.floor(Math.max(typed.length, candidate.length) / 3)));
          });
        const best = fit.toSorted((a, b) => a.changes - b.changes)[0];
        expect(closestWord(typed, known)).toBe(best?.candidate);
      }),
    );
  });
});
