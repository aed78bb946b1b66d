import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Demux, type DemuxPart } from '../../../src/server/sandbox/demux.ts';

const frame = (type: number, payload: Uint8Array | string, length = Buffer.from(payload).length) => {
  const header = Buffer.alloc(8);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(length, 4);
  return Buffer.concat([header, Buffer.from(payload)]);
};
const joined = (parts: readonly DemuxPart[], stream: DemuxPart['stream']) =>
  Buffer.concat(parts.filter((part) => part.stream === stream).map((part) => part.bytes)).toString('latin1');

describe('Demux', () => {
  it('gives both streams whole however the bytes are cut', () => {
    const frames = fc.array(fc.tuple(fc.constantFrom(1, 2), fc.uint8Array({ maxLength: 40 })));
    fc.assert(
      fc.property(frames, fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }), (list, sizes) => {
        const bytes = Buffer.concat(list.map(([type, payload]) => frame(type, payload)));
        const demux = new Demux();
        const parts: DemuxPart[] = [];
        for (let offset = 0, turn = 0; offset < bytes.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1;
          parts.push(...demux.push(bytes.subarray(offset, offset + size)));
          offset += size;
        }
        for (const [type, stream] of [
          [1, 'stdout'],
          [2, 'stderr'],
        ] as const) {
          const wanted = Buffer.concat(list.filter(([one]) => one === type).map(([, payload]) => Buffer.from(payload)));
          expect(joined(parts, stream)).toBe(wanted.toString('latin1'));
        }
        expect(demux.fault).toBeUndefined();
        expect(demux.atBoundary).toBe(true);
      }),
    );
  });

  it('reads a stream of one-byte chunks', () => {
    const demux = new Demux();
    const bytes = Buffer.concat([frame(1, 'out'), frame(2, 'err'), frame(1, '')]);
    const parts = [...bytes].flatMap((byte) => demux.push(Buffer.of(byte)));
    expect([joined(parts, 'stdout'), joined(parts, 'stderr')]).toEqual(['out', 'err']);
  });

  it('reads five thousand frames of one chunk without recursion', () => {
    const demux = new Demux();
    const parts = demux.push(Buffer.concat(Array.from({ length: 5000 }, () => frame(1, 'x'))));
    expect(joined(parts, 'stdout')).toBe('x'.repeat(5000));
  });

  it('passes a long frame on as it comes and holds none of it', () => {
    const demux = new Demux();
    demux.push(frame(1, '', 8 * 1024 * 1024));
    const parts = demux.push(Buffer.alloc(1024, 'a'));
    expect(parts[0]?.bytes).toHaveLength(1024);
    expect(demux.atBoundary).toBe(false);
  });

  it.each([
    ['an unknown type', frame(3, 'x'), { kind: 'bad-type', type: 3 }],
    ['stdin', frame(0, 'x'), { kind: 'bad-type', type: 0 }],
    ['raw text', Buffer.from('plain text without frames'), { kind: 'bad-type', type: 112 }],
    ['a negative length', frame(1, '', 0xffff_ffff), { kind: 'too-long', length: 0xffff_ffff }],
    ['an oversized frame', frame(2, '', 17 * 1024 * 1024), { kind: 'too-long', length: 17 * 1024 * 1024 }],
  ])('refuses %s and everything after it', (_, bytes, fault) => {
    const demux = new Demux();
    expect(joined(demux.push(frame(1, 'good')), 'stdout')).toBe('good');
    expect(demux.push(bytes)).toEqual([]);
    expect(demux.fault).toEqual(fault);
    expect(demux.push(frame(1, 'late'))).toEqual([]);
  });

  it('knows a truncated frame', () => {
    const demux = new Demux();
    demux.push(frame(1, 'four').subarray(0, 10));
    expect(demux.atBoundary).toBe(false);
  });
});
