// @ts-check
import { fromCents, toCents } from './money.js';

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} price for one piece, e.g. "19.99"
 * @property {number} [pieces] one where left out
 */

/**
 * Cents of one line.
 *
 * @param {Line} line
 * @returns {number}
 */
export function lineCents(line) {
  const pieces = line.pieces ?? 1;
  if (!Number.isInteger(pieces) || pieces < 0) throw new RangeError(`not a number of pieces: ${pieces}`);
  return toCents(line.price) * pieces;
}

/**
 * The total of a cart with a discount on the whole of it.
 *
 * @param {readonly Line[]} lines
 * @param {number} [discountPercent] whole percent, 0 to 100
 * @returns {string} e.g. "20.00"
 */
export function total(lines, discountPercent = 0) {
  if (!Number.isInteger(discountPercent) || discountPercent < 0 || discountPercent > 100) {
    throw new RangeError(`not a discount: ${discountPercent}`);
  }
  let cents = 0;
  for (const line of lines) cents += Math.round((lineCents(line) * (100 - discountPercent)) / 100);
  return fromCents(cents);
}
