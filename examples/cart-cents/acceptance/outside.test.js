// Calls the program from outside: what runs in its own process cannot speak for it. Only the verifier sees this file.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

/** @param {unknown} input */
function run(input) {
  const done = spawnSync(process.execPath, ['src/cli.js'], {
    input: JSON.stringify(input),
    encoding: 'utf8',
    timeout: 60_000,
  });
  return [done.status, done.stdout];
}
const lines = (/** @type {string[]} */ ...prices) => prices.map((price) => ({ name: 'x', price }));

test('every price of two digits keeps its cents', () => {
  const prices = Array.from({ length: 100 }, (_, n) => `8.${String(n).padStart(2, '0')}`);
  assert.deepEqual(run({ lines: lines(...prices) }), [0, '849.50\n']);
});
test('a returned piece counts as it was paid', () =>
  assert.deepEqual(run({ lines: lines('19.99', '-19.99') }), [0, '0.00\n']));
test('half a cent goes up', () =>
  assert.deepEqual(run({ lines: lines('0.05', '0.10'), discountPercent: 50 }), [0, '0.08\n']));
test('many small lines', () =>
  assert.deepEqual(run({ lines: Array.from({ length: 7 }, () => lines('0.33')[0]), discountPercent: 5 }), [
    0,
    '2.19\n',
  ]));
test('large carts', () =>
  assert.deepEqual(run({ lines: [{ name: 'x', price: '4.35', pieces: 1000 }] }), [0, '4350.00\n']));
test('an invalid price is refused', () => assert.deepEqual(run({ lines: lines('1e3') }), [2, '']));
test('an invalid discount is refused', () => assert.deepEqual(run({ lines: [], discountPercent: 2.5 }), [2, '']));
