import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cleanOutput, headAndTail } from '../../../src/server/agent/command-output.ts';

describe('output for a model', () => {
  test('terminal sequences go, control characters are spelled out, bad bytes are marked', () => {
    expect(cleanOutput(Buffer.from('\u001B[31mred\u001B[0m \u001B]8;;http://x\u0007link\u001B]8;;\u0007'))).toBe(
      'red link',
    );
    expect(cleanOutput(Buffer.from('a\u0000b\u202Ec\r\nd\re'))).toBe('a\\x00b\\x202ec\nd\ne');
    expect(cleanOutput(Buffer.from([0x61, 0xff, 0x62]))).toBe('a\uFFFDb');
  });

  test('any bytes become well-formed text without control characters', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) => {
        const text = cleanOutput(bytes);
        expect(text.isWellFormed()).toBe(true);
        // oxlint-disable-next-line no-control-regex
        expect(text).not.toMatch(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/);
      }),
    );
  });

  test('head and tail stay within the limit, and the count of what is left out is right', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 100, maxLength: 2000 }),
        fc.integer({ min: 20, max: 400 }),
        (text, limit) => {
          const out = headAndTail(text, limit);
          const total = Buffer.byteLength(text);
          if (total <= limit) {
            expect(out).toBe(text);
            return;
          }
          const parts = /^([\s\S]*)\n\[… (\d+) bytes left out here …\]\n([\s\S]*)$/.exec(out);
          expect(parts).not.toBeNull();
          const [, head = '', left = '', tail = ''] = parts ?? [];
          expect(text.startsWith(head)).toBe(true);
          expect(text.endsWith(tail)).toBe(true);
          expect(Buffer.byteLength(head) + Buffer.byteLength(tail) + Number(left)).toBe(total);
          expect(Buffer.byteLength(head) + Buffer.byteLength(tail)).toBeLessThanOrEqual(limit);
        },
      ),
    );
  });
});
