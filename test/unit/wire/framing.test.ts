import { createServer, connect, type Server, type Socket } from 'node:net';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Message, RequestMessage } from 'vscode-jsonrpc/node';
import {
  BoundedReader,
  BoundedWriter,
  frameLimits,
  nesting,
  parseHeader,
  type FrameLimits,
} from '../../../src/protocol/framing.ts';

let folder: string;
let server: Server;
let near: Socket;
let far: Socket;

/** A real socket pair: framing is about how bytes arrive. */
beforeEach(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'escrow-frame-'));
  server = createServer();
  const accepted = new Promise<Socket>((resolve) => {
    server.once('connection', resolve);
  });
  await new Promise<void>((resolve) => {
    server.listen(path.join(folder, 's'), resolve);
  });
  near = connect(path.join(folder, 's'));
  far = await accepted;
  near.on('error', () => undefined);
  far.on('error', () => undefined);
});
afterEach(() => {
  near.destroy();
  far.destroy();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Read {
  readonly messages: Message[];
  readonly errors: string[];
  /** Resolves when the reader has ended. */
  readonly end: Promise<void>;
  arrived(count: number): Promise<void>;
}

function read(limits: Partial<FrameLimits> = {}): Read {
  const reader = new BoundedReader(near, { ...frameLimits, ...limits });
  const messages: Message[] = [];
  const errors: string[] = [];
  let waiting: { count: number; resolve: () => void } | undefined;
  const end = new Promise<void>((resolve) => {
    reader.onClose(() => resolve());
  });
  reader.onError((error) => errors.push(error.message));
  reader.listen((message) => {
    messages.push(message);
    if (waiting !== undefined && messages.length >= waiting.count) waiting.resolve();
  });
  return {
    messages,
    errors,
    end,
    arrived: (count) =>
      messages.length >= count
        ? Promise.resolve()
        : new Promise((resolve) => {
            waiting = { count, resolve };
          }),
  };
}

const frame = (body: string | Uint8Array): Buffer => {
  const bytes = Buffer.from(body);
  return Buffer.concat([Buffer.from(`Content-Length: ${bytes.length}\r\n\r\n`), bytes]);
};
const note = (n: number): string => JSON.stringify({ jsonrpc: '2.0', method: 'n', params: { n } });

/** Sends pieces so that each arrives by itself. */
async function drip(pieces: readonly Uint8Array[]): Promise<void> {
  far.setNoDelay(true);
  for (const piece of pieces) {
    await new Promise<void>((resolve) => {
      far.write(piece, () => resolve());
    });
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe('a reader', () => {
  test('gives each message once and in order, however the bytes are cut', async () => {
    const bodies = Array.from({ length: 30 }, (_, i) => note(i) + ' '.repeat(i));
    const stream = Buffer.concat(bodies.map(frame));
    const cuts = fc
      .sample(fc.uniqueArray(fc.integer({ min: 1, max: stream.length - 1 }), { minLength: 40, maxLength: 80 }), {
        numRuns: 1,
        seed: 7,
      })[0]!
      .toSorted((a, b) => a - b);
    const seen = read();
    const pieces = [0, ...cuts].map((from, i) => stream.subarray(from, cuts[i] ?? stream.length));
    await drip(pieces);
    await seen.arrived(30);
    expect(seen.messages).toEqual(bodies.map((b) => JSON.parse(b) as unknown));
    expect(seen.errors).toEqual([]);
  });

  test('gives a body of many chunks, with characters cut in the middle', async () => {
    const text = 'ä€😀'.repeat(200_000);
    const seen = read();
    far.write(frame(JSON.stringify({ jsonrpc: '2.0', method: 'n', params: { text } })));
    await seen.arrived(1);
    expect((seen.messages[0] as RequestMessage).params).toEqual({ text });
  });

  test('gives what was sent before the end, then ends', async () => {
    const seen = read();
    far.end(Buffer.concat(Array.from({ length: 50 }, (_, i) => frame(note(i)))));
    await seen.end;
    expect(seen.messages).toHaveLength(50);
    expect(seen.errors).toEqual([]);
  });

  test('takes one message a turn and leaves a flood in the socket', async () => {
    const seen = read();
    const flood = Buffer.concat(Array.from({ length: 2000 }, (_, i) => frame(note(i))));
    far.write(flood);
    let most = 0;
    let before = 0;
    while (seen.messages.length < 2000) {
      await new Promise((resolve) => setImmediate(resolve));
      most = Math.max(most, seen.messages.length - before);
      before = seen.messages.length;
    }
    expect(most).toBeLessThanOrEqual(2);
  });

  const attacks: readonly (readonly [name: string, bytes: Uint8Array | string, error: RegExp])[] = [
    ['a length of 1 GiB', 'Content-Length: 999999999\r\n\r\n', /out of bounds/],
    ['a length just above the limit', `Content-Length: ${frameLimits.bodyBytes + 1}\r\n\r\n`, /out of bounds/],
    ['a length of nothing', 'Content-Length: 0\r\n\r\n', /out of bounds/],
    ['a negative length', 'Content-Length: -5\r\n\r\n', /unknown header/],
    ['a length that is no number', 'Content-Length: 1e3\r\n\r\n', /unknown header/],
    ['two lengths', 'Content-Length: 2\r\nContent-Length: 3\r\n\r\n', /two lengths/],
    ['no length', 'Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n', /without length/],
    ['a header of another protocol', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', /unknown header/],
    ['a header that does not end', 'X'.repeat(5000), /header too long/],
    ['nesting', frame('['.repeat(2_000_000)), /nested too deeply/],
    [
      'nesting just above the limit',
      frame(`{"jsonrpc":"2.0","method":"n","params":${'['.repeat(64)}${']'.repeat(64)}}`),
      /nested/,
    ],
    ['what is not JSON', frame('{"jsonrpc":'), /not JSON/],
    ['bytes that are not UTF-8', frame(Buffer.from([0x22, 0xff, 0x22])), /not JSON/],
    ['JSON that is no message', frame('[1,2]'), /not a JSON-RPC/],
    ['another version of JSON-RPC', frame('{"jsonrpc":"1.0"}'), /not a JSON-RPC/],
    ['an object as id', frame('{"jsonrpc":"2.0","id":{},"method":"n"}'), /id is neither/],
    ['a number as method', frame('{"jsonrpc":"2.0","id":1,"method":5}'), /method is not/],
  ];
  test.for(attacks)('ends the connection at %s', async ([, bytes, error]) => {
    const seen = read();
    const gone = new Promise((resolve) => {
      far.once('close', resolve);
    });
    far.resume();
    far.write(bytes);
    await seen.end;
    await gone;
    expect(seen.errors[0]).toMatch(error);
    expect(seen.messages).toEqual([]);
  });

  test('ends the connection when a frame takes too long', async () => {
    const seen = read({ frameMs: 50 });
    far.write('Content-Length: 10\r\n\r\n{"a"');
    await seen.end;
    expect(seen.errors).toEqual(['a frame took too long']);
  });

  test('does not count the time between frames', async () => {
    const seen = read({ frameMs: 40 });
    far.write(frame(note(1)));
    await seen.arrived(1);
    await new Promise((resolve) => setTimeout(resolve, 80)); // this very time is what the test is about
    far.write(frame(note(2)));
    await seen.arrived(2);
    expect(seen.errors).toEqual([]);
  });

  test('survives any bytes: messages that are whole, or an end with a reason', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            fc.uint8Array({ maxLength: 200 }),
            fc.jsonValue().map((v) => frame(JSON.stringify(v))),
          ),
          {
            maxLength: 6,
          },
        ),
        async (pieces) => {
          const socketPath = path.join(folder, 's');
          const accepted = new Promise<Socket>((resolve) => {
            server.once('connection', resolve);
          });
          const peer = connect(socketPath);
          const mine = await accepted;
          for (const s of [peer, mine]) s.on('error', () => undefined);
          const reader = new BoundedReader(mine);
          const seen: Message[] = [];
          const ended = new Promise<void>((resolve) => {
            reader.onClose(() => resolve());
          });
          reader.listen((m) => seen.push(m));
          peer.resume();
          peer.end(Buffer.concat(pieces));
          await ended;
          for (const message of seen) expect(message.jsonrpc).toBe('2.0');
          peer.destroy();
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('a writer', () => {
  test('turns an answer that is too large into an error answer', async () => {
    const writer = new BoundedWriter(far, { ...frameLimits, bodyBytes: 1000 });
    const seen = read();
    await writer.write({ jsonrpc: '2.0', id: 7, result: 'x'.repeat(2000) } as Message);
    await seen.arrived(1);
    expect(seen.messages[0]).toMatchObject({ id: 7, error: { data: { code: 'Internal' } } });
  });

  test('refuses a notification that is too large, and the connection goes on', async () => {
    const writer = new BoundedWriter(far, { ...frameLimits, bodyBytes: 1000 });
    await expect(writer.write({ jsonrpc: '2.0', method: 'n', params: ['x'.repeat(2000)] } as Message)).rejects.toThrow(
      /2[0-9]{3} bytes/,
    );
    const seen = read();
    await writer.write({ jsonrpc: '2.0', method: 'n' } as Message);
    await seen.arrived(1);
  });

  test('cuts off a peer that does not read', async () => {
    const writer = new BoundedWriter(far, { ...frameLimits, unsentBytes: 1_000_000 });
    const ended = new Promise<void>((resolve) => {
      writer.onClose(() => resolve());
    });
    const results = await Promise.allSettled(
      Array.from({ length: 100 }, () =>
        writer.write({ jsonrpc: '2.0', method: 'n', params: ['x'.repeat(50_000)] } as Message),
      ),
    );
    await ended;
    expect(results.some((r) => r.status === 'rejected')).toBe(true);
    expect(far.destroyed).toBe(true);
  });
});

test('nesting counts brackets outside strings only', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
      const depthOf = (v: unknown): number =>
        typeof v === 'object' && v !== null ? 1 + Math.max(0, ...Object.values(v).map(depthOf)) : 0;
      expect(nesting(Buffer.from(JSON.stringify(value)))).toBe(depthOf(value));
    }),
  );
});

test('headers are read without regard to case and order', () => {
  expect(parseHeader('content-length:  12', 100)).toBe(12);
  expect(parseHeader('Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: 12', 100)).toBe(12);
});
