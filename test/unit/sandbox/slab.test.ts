import { expect, test } from 'vitest';
import { Slab } from '../../../src/server/sandbox/slab.ts';

test('pieces come from one stretch of memory and do not overlap; what is beyond it has its own', () => {
  const slab = new Slab(20_000);
  const pieces = [slab.take(8_000), slab.take(0), slab.take(12_000), slab.take(1), slab.take(30_000)];
  for (const [index, piece] of pieces.entries()) piece.fill(index + 1);
  expect(pieces.map(({ length }) => length)).toEqual([8_000, 0, 12_000, 1, 30_000]);
  for (const [index, piece] of pieces.entries()) expect(piece.every((byte) => byte === index + 1)).toBe(true);
  expect(new Set(pieces.slice(0, 3).map(({ buffer }) => buffer)).size).toBe(1);
  expect(pieces[0]?.buffer).not.toBe(pieces[4]?.buffer);
});
