import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { createMessageConnection } from 'vscode-jsonrpc/node';
import { BoundedReader, BoundedWriter } from '../../../src/protocol/framing.ts';

test('an answer that comes in the same turn as the end of the connection is heard', async () => {
  // A socket whose events come as a busy process gets them: bytes and hang-up out of one look at the file descriptor.
  const socket = new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() }) as unknown as Socket;
  const rpc = createMessageConnection(new BoundedReader(socket), new BoundedWriter(socket));
  // As every client of ours does: what still waits is given up.
  const closed = new Promise<void>((resolve) =>
    rpc.onClose(() => {
      rpc.dispose();
      resolve();
    }),
  );
  rpc.listen();
  const answer = rpc.sendRequest<string>('kernel/stop', {});
  const body = JSON.stringify({ jsonrpc: '2.0', id: 0, result: 'done' });
  socket.emit('data', Buffer.from(`Content-Length: ${body.length}\r\n\r\n${body}`));
  socket.emit('close', false);
  expect(await answer).toBe('done');
  await closed;
});
