import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromCents, toCents } from '../src/money.js';

test('whole prices', () => assert.equal(toCents('5'), 500));
test('a price that binary fractions cannot hold', () => assert.equal(toCents('19.99'), 1999));
test('one digit after the point', () => assert.equal(toCents('0.7'), 70));
test('a price back as text', () => assert.equal(fromCents(1999), '19.99'));
test('less than one', () => assert.equal(fromCents(5), '0.05'));
test('what is no price is refused', () => assert.throws(() => toCents('1,50'), RangeError));
