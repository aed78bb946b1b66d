import { describe, expect, test } from 'vitest';
import { isEndless, RepetitionWatch } from '../../../src/server/inference/repetition.ts';

describe('an answer that does not find its end', () => {
  test.each(['x', '\n', ' ', 'Wait, let me think. ', 'ab', `${'0123456789'.repeat(15)}\n`])(
    '%j over and over',
    (piece) => {
      expect(isEndless(`A beginning. ${piece.repeat(3000)}`)).toBe(true);
    },
  );

  test.each([
    ['numbered lines', Array.from({ length: 400 }, (_, n) => `line ${n}`).join('\n')],
    ['a table of zeros with other ends', Array.from({ length: 100 }, (_, n) => `[0, 0, 0, ${n}],`).join('\n')],
    ['short', 'aaaa'.repeat(50)],
    ['a loop that ended', `${'a'.repeat(5000)} and then the answer ${'is this one '.repeat(3)} in the end.`],
  ])('%s is none', (_name, text) => {
    expect(isEndless(text)).toBe(false);
  });

  test('is noticed within some hundred characters, however the pieces come', () => {
    for (const size of [1, 7, 400]) {
      const watch = new RepetitionWatch();
      let pushed = 0;
      const text = 'again '.repeat(2000);
      for (let i = 0; i < text.length && !watch.endless; i += size) {
        watch.push(text.slice(i, i + size));
        pushed += size;
      }
      expect(watch.endless).toBe(true);
      expect(pushed).toBeLessThan(2800);
    }
  });
});
