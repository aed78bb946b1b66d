import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LineReader, StreamFault } from '../../../src/server/inference/stream-reader.ts';

const limits = { lineBytes: 1000, totalBytes: 100_000, lines: 1000 };

function readAll(chunks: readonly Uint8Array[], within = limits): unknown[] {
  const values: unknown[] = [];
  const reader = new LineReader((value) => values.push(value), within);
  for (const chunk of chunks) reader.push(chunk);
  reader.end();
  return values;
}

const faultOf = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (error instanceof StreamFault) return error.code;
    throw error;
  }
  return 'none';
};

describe('LineReader', () => {
  test('gives the same values however the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.jsonValue({ maxDepth: 3 }), { maxLength: 8 }),
        fc.array(fc.nat(400), { maxLength: 12 }),
        fc.boolean(),
        (values, cuts, finalNewline) => {
          const text =
            values.map((v) => JSON.stringify(v)).join('\n') + (finalNewline && values.length > 0 ? '\n' : '');
          const bytes = Buffer.from(text);
          const at = [0, ...cuts.map((c) => Math.min(c, bytes.length)), bytes.length].toSorted((a, b) => a - b);
          const chunks = at.slice(1).map((to, i) => bytes.subarray(at[i], to));
          const wide = { lineBytes: 1_000_000, totalBytes: 1_000_000, lines: 1000 };
          expect(readAll(chunks, wide)).toEqual(values.map((v) => JSON.parse(JSON.stringify(v))));
        },
      ),
    );
  });

  test('any bytes end in values or in one named fault, in bounded memory', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 20 }), (chunks) => {
        expect([
          'none',
          'line_too_long',
          'response_too_long',
          'invalid_utf8',
          'malformed_line',
          'too_many_lines',
        ]).toContain(faultOf(() => readAll(chunks)));
      }),
    );
  });

  test.each([
    ['a line over the limit, in one chunk', [`"${'x'.repeat(1200)}"\n`], 'line_too_long'],
    ['a line over the limit, in many', Array.from({ length: 60 }, () => 'x'.repeat(20)), 'line_too_long'],
    ['many short lines', ['1\n'.repeat(1001)], 'too_many_lines'],
    ['more bytes than allowed', Array.from({ length: 120 }, () => `"${'x'.repeat(900)}"\n`), 'response_too_long'],
    ['a blank line', ['1\n\n2\n'], 'malformed_line'],
    ['carriage returns alone', ['1\r2\r'], 'malformed_line'],
    ['a byte-order mark', ['\uFEFF1\n'], 'malformed_line'],
  ])('%s', (_name, chunks, code) => {
    expect(faultOf(() => readAll(chunks.map((c) => Buffer.from(c))))).toBe(code);
  });
});
