// @ts-check

/**
 * Cents of a price as people write it, e.g. "19.99". At most two digits after the point.
 *
 * @param {string} text
 * @returns {number} whole cents
 */
export function toCents(text) {
  const match = /^(-?)(\d{1,9})(?:\.(\d{1,2}))?$/.exec(text.trim());
  if (match === null) throw new RangeError(`not a price: ${JSON.stringify(text)}`);
  return Math.floor(parseFloat(match[0]) * 100);
}

/**
 * A price as people write it.
 *
 * @param {number} cents whole cents
 * @returns {string} always with two digits after the point
 */
export function fromCents(cents) {
  if (!Number.isInteger(cents)) throw new RangeError(`not whole cents: ${cents}`);
  const digits = String(Math.abs(cents)).padStart(3, '0');
  return `${cents < 0 ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`;
}
