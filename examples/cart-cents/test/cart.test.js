import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lineCents, total } from '../src/cart.js';

test('an empty cart', () => assert.equal(total([]), '0.00'));
test('pieces count', () => assert.equal(lineCents({ name: 'tea', price: '2.50', pieces: 3 }), 750));
test('a discount is rounded once, on the whole cart', () => {
  const lines = [
    { name: 'pen', price: '0.25' },
    { name: 'pad', price: '0.25' },
    { name: 'ink', price: '0.25' },
  ];
  // 75 cents less 10 percent are 67.5 cents.
  assert.equal(total(lines, 10), '0.68');
});
test('a discount of more than all is refused', () => assert.throws(() => total([], 101), RangeError));
