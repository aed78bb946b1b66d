import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BoundedLines, type BoundedLine } from '../../../src/protocol/bounded-lines.ts';

const texts = (lines: readonly BoundedLine[]) =>
  lines.map((line) => (line.kind === 'line' ? line.bytes.toString('latin1') : line.kind));
/** Cuts bytes at the given places. */
const cut = (bytes: Buffer, places: readonly number[]) => {
  const ends = [...places.map((place) => place % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  return ends.map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1], end));
};

describe('BoundedLines', () => {
  it('gives the same lines however the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '\0', '\r'), maxLength: 12 })),
        fc.array(fc.nat()),
        (lines, places) => {
          const reader = new BoundedLines(8);
          const got = cut(Buffer.from(lines.map((line) => `${line}\n`).join('')), places).flatMap((part) =>
            texts(reader.push(part)),
          );
          expect(got).toEqual(lines.map((line) => (line.length > 8 ? 'too-long' : line)));
        },
      ),
    );
  });

  it('reads one-byte chunks', () => {
    const reader = new BoundedLines(100);
    const got = [...Buffer.from('one\n\ntwo\nhalf')].flatMap((byte) => texts(reader.push(Buffer.of(byte))));
    expect(got).toEqual(['one', '', 'two']);
    expect(reader.pending).toBe(4);
  });

  it('reads five thousand lines of one chunk', () => {
    expect(new BoundedLines(8).push(Buffer.from('x\n'.repeat(5000)))).toHaveLength(5000);
  });

  it('keeps nothing of an endless line and goes on after it', () => {
    const reader = new BoundedLines(1024);
    const chunk = Buffer.alloc(512, 'a');
    const seen: BoundedLine[] = [];
    for (let index = 0; index < 10_000; index += 1) {
      seen.push(...reader.push(chunk));
      expect(reader.pending).toBeLessThanOrEqual(1024);
    }
    expect(texts(seen)).toEqual(['too-long']);
    expect(texts(reader.push(Buffer.from('\nnext\n')))).toEqual(['next']);
  });

  it('does not keep the caller’s buffer', () => {
    const reader = new BoundedLines(100);
    const chunk = Buffer.from('first');
    reader.push(chunk);
    chunk.fill('z');
    expect(texts(reader.push(Buffer.from('\n')))).toEqual(['first']);
  });
});
