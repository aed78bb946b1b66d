// Whatever an engine's stream brings, a channel ends once, by name, and keeps nothing unbounded. fast-check prints the
// seed and the shrunk case of a failure.
import { Duplex } from 'node:stream';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AuditChain } from '../../../src/server/sandbox/audit-chain.ts';
import { Channel } from '../../../src/server/sandbox/channel.ts';

const nonce = 'a'.repeat(32);

/** A stream whose other end says what a test wants. */
function peer(): { readonly stream: Duplex; readonly say: (bytes: Buffer) => void } {
  const stream = new Duplex({
    read() {},
    write(_chunk, _encoding, done) {
      done();
    },
  });
  return { stream, say: (bytes) => void stream.push(bytes) };
}
/** As an engine frames it. */
const framed = (bytes: Buffer, type = 1): Buffer => {
  const header = Buffer.alloc(8);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([header, bytes]);
};
const line = (value: unknown): Buffer => framed(Buffer.from(`${JSON.stringify(value)}\n`));
const welcome = {
  v: 1,
  n: nonce,
  e: 1,
  t: 'welcome',
  executor: 'e'.repeat(64),
  node: 'v24',
  phase: 'new',
  entries: 0,
  head: 'f'.repeat(64),
};

const frame = fc.record(
  {
    v: fc.constantFrom(1, 2, null),
    n: fc.constantFrom(nonce, 'b'.repeat(32), ''),
    e: fc.constantFrom(0, 1, 2, -1),
    t: fc.constantFrom('welcome', 'beat', 'data', 'done', 'fail', 'started', 'refused', 'evil'),
    id: fc.constantFrom(1, 2, 99, -1, 'x'),
    seq: fc.constantFrom(0, 1, 7),
    data: fc.constantFrom('', 'AAAA', '!', 'A'.repeat(200_000)),
    result: fc.constantFrom({}, { size: 3, sha256: 'f'.repeat(64), mode: 420 }, null),
    a: fc.constantFrom(null, { n: 1, at: 1, h: 'f'.repeat(64) }, {}),
    code: fc.constantFrom('denied', 'evil'),
    message: fc.constantFrom('', 'no'),
  },
  { requiredKeys: ['t'] },
);
const chunk = fc.oneof(
  frame.map(line),
  fc.uint8Array({ maxLength: 64 }).map((bytes) => framed(Buffer.from(bytes))),
  fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
  fc.constantFrom(
    framed(Buffer.alloc(200_000, 'x')),
    framed(Buffer.from('x'), 2),
    framed(Buffer.from('x'), 9),
    Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]),
  ),
);

describe('a channel', () => {
  it('survives any stream: it is closed by name or goes on, and every request is settled', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(chunk, { maxLength: 12 }),
        fc.array(fc.nat(4096), { maxLength: 6 }),
        async (chunks, cuts) => {
          const { stream, say } = peer();
          const channel = new Channel({
            stream,
            nonce,
            epoch: 1,
            key: 'c'.repeat(32),
            chain: new AuditChain(nonce, true),
            log: () => {},
          });
          const hello = channel.hello().catch((error: unknown) => error);
          say(line(welcome));
          await hello;
          const asked = channel.request('manifest', {}).catch((error: unknown) => error);
          let bytes = Buffer.concat(chunks);
          for (const cut of cuts) {
            say(bytes.subarray(0, cut));
            bytes = bytes.subarray(cut);
          }
          if (bytes.length > 0) say(bytes);
          await new Promise((resolve) => setImmediate(resolve));
          channel.close();
          const end = await channel.ended;
          expect(['closed-by-us', 'protocol', 'stream-ended']).toContain(end.kind);
          await asked;
          expect(channel.diagnostics.length).toBeLessThanOrEqual(16 * 1024);
        },
      ),
      { numRuns: 300 },
    );
  });
});
