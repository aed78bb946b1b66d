import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { channelBounds, resync } from '../../../src/protocol/executor.ts';
import { FrameReader } from '../../../src/protocol/frame-reader.ts';

/** A reader that notes what it is given; a line of digits has so many bytes behind it. */
function noting(maxBytes: number): { readonly reader: FrameReader; readonly seen: string[] } {
  const seen: string[] = [];
  let payload = '';
  const reader = new FrameReader(maxBytes, {
    line: (bytes) => {
      const text = bytes.toString('latin1');
      seen.push(text);
      return /^\d+$/.test(text) ? Number(text) : 0;
    },
    payload: (bytes, left) => {
      payload += bytes.toString('latin1');
      if (left > 0) return;
      seen.push(`<${payload}>`);
      payload = '';
    },
    tooLong: () => seen.push('too-long'),
  });
  return { reader, seen };
}
/** Cuts bytes at the given places. */
const cut = (bytes: Buffer, places: readonly number[]) => {
  const ends = [...places.map((place) => place % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  return ends.map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1], end));
};

describe('FrameReader', () => {
  it('gives the same lines and bytes however the stream is cut', () => {
    const line = fc.record({
      kind: fc.constant('line'),
      text: fc.string({ unit: fc.constantFrom('a', 'b', '\0', '\r'), maxLength: 12 }),
    });
    // What belongs to a frame may hold anything, newlines too.
    const payload = fc.record({
      kind: fc.constant('payload'),
      text: fc.string({ unit: fc.constantFrom('a', '\n', '\0', '{', '7'), minLength: 1, maxLength: 40 }),
    });
    fc.assert(
      fc.property(fc.array(fc.oneof(line, payload)), fc.array(fc.nat()), (frames, places) => {
        const { reader, seen } = noting(8);
        const stream = frames.map(({ kind, text }) => (kind === 'line' ? `${text}\n` : `${text.length}\n${text}\n`));
        for (const part of cut(Buffer.from(stream.join(''), 'latin1'), places)) reader.push(part);
        expect(seen).toEqual(
          frames.flatMap(({ kind, text }) =>
            kind === 'line' ? [text.length > 8 ? 'too-long' : text] : [String(text.length), `<${text}>`, ''],
          ),
        );
        expect(reader.pending).toBe(0);
      }),
    );
  });

  it('never keeps more than a line, and throws nothing, whatever comes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
        const { reader } = noting(16);
        for (const chunk of chunks) {
          reader.push(chunk);
          expect(reader.pending).toBeLessThanOrEqual(16);
        }
      }),
    );
  });

  it('reads one-byte chunks', () => {
    const { reader, seen } = noting(100);
    for (const byte of Buffer.from('one\n\n3\nx\ny\ntwo\nhalf')) reader.push(Buffer.of(byte));
    expect(seen).toEqual(['one', '', '3', '<x\ny>', '', 'two']);
    expect(reader.pending).toBe(4);
  });

  it('reads five thousand lines of one chunk', () => {
    const { reader, seen } = noting(8);
    reader.push(Buffer.from('x\n'.repeat(5000)));
    expect(seen).toHaveLength(5000);
  });

  it('keeps nothing of an endless line and goes on after it', () => {
    const { reader, seen } = noting(1024);
    const chunk = Buffer.alloc(512, 'a');
    for (let index = 0; index < 10_000; index += 1) {
      reader.push(chunk);
      expect(reader.pending).toBeLessThanOrEqual(1024);
    }
    reader.push(Buffer.from('\nnext\n'));
    expect(seen).toEqual(['too-long', 'next']);
  });

  it('does not keep the caller’s buffer', () => {
    const { reader, seen } = noting(100);
    const chunk = Buffer.from('first');
    reader.push(chunk);
    chunk.fill('z');
    reader.push(Buffer.from('\n'));
    expect(seen).toEqual(['first']);
  });

  it('is in step again after whatever a dead client left and the newlines that a fresh one begins with', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: fc.constantFrom('a', '{', '7', '\n') }),
          // Half of the bytes that it announced.
          fc.tuple(fc.integer({ min: 1, max: channelBounds.upChunkBytes }), fc.nat()).map(([size, sent]) => {
            return `${size}\n${'x'.repeat(sent % size)}`;
          }),
        ),
        (left) => {
          const { reader, seen } = noting(channelBounds.frameBytes);
          // More than that can't be announced: what is beyond is no frame.
          if (left.split('\n').some((text) => Number(text) > channelBounds.upChunkBytes)) return;
          reader.push(Buffer.from(left));
          reader.push(Buffer.from(`${resync}hello\n`));
          expect(seen.at(-1)).toBe('hello');
        },
      ),
      { numRuns: 20 },
    );
  });
});
