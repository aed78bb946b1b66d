// Whatever an engine's stream brings, a channel ends once, by name, and keeps nothing unbounded. fast-check prints the
// seed and the shrunk case of a failure.
import { Duplex } from 'node:stream';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { executorProtocol } from '../../../src/protocol/executor.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { AuditChain } from '../../../src/server/sandbox/audit-chain.ts';
import { Channel } from '../../../src/server/sandbox/channel.ts';
import { HeldFiles } from '../../fixtures/collected.ts';

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
const line = (value: unknown, behind = ''): Buffer =>
  framed(Buffer.from(`${JSON.stringify(value)}\n${behind === '' ? '' : `${behind}\n`}`));
const welcome = {
  v: executorProtocol,
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
    v: fc.constantFrom(executorProtocol, executorProtocol, 1, null),
    n: fc.constantFrom(nonce, 'b'.repeat(32), ''),
    e: fc.constantFrom(0, 1, 2, -1),
    t: fc.constantFrom('welcome', 'beat', 'part', 'data', 'done', 'fail', 'started', 'refused', 'evil'),
    id: fc.constantFrom(1, 2, 99, -1, 'x'),
    seq: fc.constantFrom(0, 1, 7),
    size: fc.constantFrom(0, 3, 600, -1, 2 ** 40),
    file: fc.constantFrom(null, { path: 'a', mode: 420 }, {}),
    p: fc.constantFrom(1, 3, 600, 0, 2 ** 20),
    result: fc.constantFrom({}, { size: 3, sha256: 'f'.repeat(64), mode: 420 }, null),
    a: fc.constantFrom(null, { n: 1, at: 1, h: 'f'.repeat(64) }, {}),
    code: fc.constantFrom('denied', 'evil'),
    message: fc.constantFrom('', 'no'),
  },
  { requiredKeys: ['t'] },
);
const chunk = fc.oneof(
  fc.tuple(frame, fc.constantFrom('', 'abc', 'x'.repeat(600))).map(([value, behind]) => line(value, behind)),
  fc.uint8Array({ maxLength: 64 }).map((bytes) => framed(Buffer.from(bytes))),
  fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
  fc.constantFrom(
    framed(Buffer.alloc(200_000, 'x')),
    framed(Buffer.from('x'), 2),
    framed(Buffer.from('x'), 9),
    Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]),
  ),
);

const channelOver = (stream: Duplex): Channel =>
  new Channel({
    stream,
    nonce,
    epoch: 1,
    key: 'c'.repeat(32),
    chain: new AuditChain(nonce, true),
    log: () => {},
  });

/** Speaks to a supervisor that says what a test wants, from the welcome on. */
async function welcomed(): Promise<{ readonly channel: Channel; readonly say: (bytes: Buffer) => void }> {
  const { stream, say } = peer();
  const channel = channelOver(stream);
  const hello = channel.hello();
  say(line(welcome));
  await hello;
  return { channel, say };
}
const from = (frame: Record<string, unknown>, behind = ''): Buffer =>
  line({ v: executorProtocol, n: nonce, e: 1, id: 1, ...frame }, behind);
const report = Buffer.from('{"files":[],"odd":[],"whole":true}');
const collected = (behind: string): Buffer =>
  from({ t: 'done', result: { size: report.length, sha256: sha256(report) }, a: null, p: report.length }, behind);

describe('a channel', () => {
  it('takes files and what the answer speaks of, in one frame or many', async () => {
    const { channel, say } = await welcomed();
    const into = new HeldFiles();
    const asked = channel.request('collect', {}, { into });
    say(from({ t: 'part', size: 6, file: { path: 'a', mode: 0o644 }, p: 3 }, 'ab\n'));
    say(from({ t: 'data', seq: 0, p: 1 }, '{'));
    say(from({ t: 'data', seq: 1, p: 2 }, '\n}'));
    say(from({ t: 'part', size: 0, file: { path: 'b', mode: 0o755 } }));
    say(collected(report.toString()));
    const { files, bytes } = await asked;
    expect(
      into.with(files).map(({ path, mode, bytes: of, sha256: hash }) => [path, mode, of.toString(), hash]),
    ).toEqual([
      ['a', 0o644, 'ab\n{\n}', sha256('ab\n{\n}')],
      ['b', 0o755, '', sha256('')],
    ]);
    expect(bytes).toEqual(report);
    channel.close();
  });

  const part = { t: 'part', size: 3, file: { path: 'a', mode: 0o644 } };
  const wrong: Record<string, readonly Buffer[]> = {
    'more bytes than were announced': [from({ ...part, p: 4 }, 'abcd')],
    'more bytes than are missing': [from({ ...part, p: 2 }, 'ab'), from({ t: 'data', seq: 0, p: 2 }, 'cd')],
    'a part before the last is whole': [from({ ...part, p: 2 }, 'ab'), from(part)],
    'an answer before a part is whole': [from({ ...part, p: 2 }, 'ab'), collected(report.toString())],
    'bytes without a part': [from({ t: 'data', seq: 0, p: 2 }, 'ab')],
    'bytes in another order': [from({ ...part, p: 1 }, 'a'), from({ t: 'data', seq: 1, p: 1 }, 'b')],
    'other bytes than the answer speaks of': [collected(' '.repeat(report.length))],
    'more than a sandbox can hold': [from({ ...part, size: 512 * 1024 * 1024, file: null }), from(part)],
    'an answer twice': [collected(report.toString()), collected(report.toString())],
    'bytes behind an answer whose bytes have come': [
      from({ ...part, file: null, p: 3 }, 'abc'),
      from({ t: 'done', result: { size: 3, sha256: sha256('abc') }, a: null, p: 1 }, 'x'),
    ],
  };
  it.each(Object.entries(wrong))('is closed by name where %s', async (_, frames) => {
    const { channel, say } = await welcomed();
    const asked = channel.request('collect', {}, { into: new HeldFiles() }).catch((error: unknown) => error);
    for (const frame of frames) say(frame);
    expect(await channel.ended).toMatchObject({ kind: 'protocol' });
    await asked;
  });

  it('takes no file where none was asked for', async () => {
    const { channel, say } = await welcomed();
    const asked = channel.request('manifest', {}).catch((error: unknown) => error);
    say(from(part));
    expect(await channel.ended).toMatchObject({ kind: 'protocol' });
    await asked;
  });

  it('passes over what was said to an earlier client, and the bytes of it, whatever they look like', async () => {
    const { stream, say } = peer();
    const channel = channelOver(stream);
    const hello = channel.hello(true);
    // The rest of something, then a part that an earlier client had asked for.
    say(framed(Buffer.from('rest of a file}\n')));
    const forged = JSON.stringify({ ...welcome, n: 'b'.repeat(32) });
    say(line({ v: executorProtocol, n: nonce, e: 0, t: 'data', id: 7, seq: 3, p: forged.length }, forged));
    say(line(welcome));
    expect(await hello).toMatchObject({ t: 'welcome', n: nonce });
    channel.close();
  });

  it('survives any stream: it is closed by name or goes on, and every request is settled', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(chunk, { maxLength: 12 }),
        fc.array(fc.nat(4096), { maxLength: 6 }),
        async (chunks, cuts) => {
          const { channel, say } = await welcomed();
          const asked = channel.request('collect', {}, { into: new HeldFiles() }).catch((error: unknown) => error);
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
