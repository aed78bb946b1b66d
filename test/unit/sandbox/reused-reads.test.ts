import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { ReusedReads } from '../../../src/server/sandbox/reused-reads.ts';

let server: Server | undefined;
const open: Duplex[] = [];
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
  server?.close();
});

/** A server that hands out both ends of an upgraded connection, as an engine does for an attachment. */
async function upgraded(
  agent: ReusedReads,
): Promise<{ readonly theirs: Duplex; readonly ours: Duplex; readonly port: number }> {
  server = createServer((_, response) => response.writeHead(404).end('x'.repeat(600_000)));
  const accepted = new Promise<Duplex>((resolve) => {
    server?.on('upgrade', (_: IncomingMessage, socket: Duplex) => {
      socket.write('HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n');
      resolve(socket);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const asked = request({ port, agent, headers: { Connection: 'Upgrade', Upgrade: 'tcp' } }).end();
  const [, ours] = (await once(asked, 'upgrade')) as [IncomingMessage, Duplex];
  const theirs = await accepted;
  open.push(ours, theirs);
  return { theirs, ours, port };
}

test('all bytes come in order, also those that came while nobody listened, and one buffer carries them', async () => {
  const agent = new ReusedReads();
  const { theirs, ours } = await upgraded(agent);
  agent.begin(ours);
  const sent = Buffer.from(Array.from({ length: 3_000_000 }, (_, index) => (index * 7) % 251));
  theirs.write(sent.subarray(0, 1000));
  await once(ours, 'readable');
  theirs.write(sent.subarray(1000));
  const received: Buffer[] = [];
  const memory = new Set<ArrayBufferLike>();
  let bytes = 0;
  await new Promise<void>((resolve) => {
    ours.on('data', (chunk: Buffer) => {
      received.push(Buffer.from(chunk));
      if (bytes > 400_000) memory.add(chunk.buffer);
      bytes += chunk.length;
      if (bytes === sent.length) resolve();
    });
  });
  expect(Buffer.concat(received).equals(sent)).toBe(true);
  expect(memory.size).toBe(1);
});

test('a connection that was not begun keeps its chunks, as a reader of a whole answer needs them', async () => {
  const agent = new ReusedReads();
  const { port } = await upgraded(agent);
  const [response] = (await once(request({ port, agent }).end(), 'response')) as [IncomingMessage];
  const kept: Buffer[] = [];
  response.on('data', (chunk: Buffer) => kept.push(chunk));
  await once(response, 'end');
  expect(Buffer.concat(kept).equals(Buffer.alloc(600_000, 'x'))).toBe(true);
});
