// The modules offer what they offered before, and nothing more.
import assert from 'node:assert/strict';
import { test } from 'node:test';

test('money', async () => assert.deepEqual(Object.keys(await import('../src/money.js')), ['fromCents', 'toCents']));
test('cart', async () => assert.deepEqual(Object.keys(await import('../src/cart.js')), ['lineCents', 'total']));
