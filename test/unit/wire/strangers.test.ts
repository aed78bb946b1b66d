// Adversarial 55: who is not a client is refused cheaply, and clients are served meanwhile.
import { once } from 'node:events';
import { readdir, readlink } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { greetKernel } from '../../../src/protocol/handshake.ts';
import { readEndpoint } from '../../../src/protocol/endpoint.ts';
import { bareKernelEntry, eventually, startTestKernel, testHello, type TestKernel } from '../../fixtures/kernel.ts';

let kernel: TestKernel;
let path: string;
const sockets: Socket[] = [];

beforeEach(async () => {
  kernel = await startTestKernel({ entry: bareKernelEntry });
  path = (await readEndpoint(kernel.home))!.path;
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await kernel.dispose();
});

async function stranger(): Promise<Socket> {
  const socket = connect(path);
  socket.on('error', () => undefined);
  sockets.push(socket);
  await once(socket, 'connect');
  return socket;
}

/** Resolves when the Kernel has ended this connection. */
const ended = (socket: Socket): Promise<void> => {
  socket.resume();
  return socket.destroyed || socket.readableEnded
    ? Promise.resolve()
    : new Promise((resolve) => socket.once('close', () => resolve()));
};

/** How many calls of a client, one after the other, are answered while something else goes on. */
async function callsDuring(whileThis: Promise<unknown>): Promise<number> {
  const state = { over: false };
  const over = whileThis.finally(() => {
    state.over = true;
  });
  let calls = 0;
  while (!state.over) {
    await kernel.kernel.call('kernel/status', {});
    if (!state.over) calls += 1;
    await delay(5);
  }
  await over;
  return calls;
}

describe('a stranger', () => {
  it('without the token, or with another one, learns nothing and is told no', async () => {
    const socket = await stranger();
    const wrong = greetKernel(socket, {
      token: 'f'.repeat(64),
      protocol: { min: 1, max: 1 },
      hello: testHello(),
    });
    await expect(wrong).rejects.toMatchObject({ code: 'HandshakeRefused' });
  });

  it('that speaks only older versions is told which side to update', async () => {
    const socket = await stranger();
    const { token } = (await readEndpoint(kernel.home))!;
    const old = greetKernel(socket, { token, protocol: { min: 0, max: 0 }, hello: testHello() });
    await expect(old).rejects.toThrow();
  });

  it.each([
    ['garbage', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['a line that never ends', 'x'.repeat(200_000)],
    ['a frame of one GiB', `Content-Length: ${1024 ** 3}\r\n\r\n{`],
    ['deep JSON', `${'['.repeat(50_000)}\n`],
  ])('that sends %s is ended', async (_, text) => {
    const socket = await stranger();
    socket.write(text);
    await ended(socket);
    await kernel.kernel.call('kernel/status', {});
  });

  it('that drips is ended by the time a handshake may take, while clients are served', async () => {
    const socket = await stranger();
    const drip = setInterval(() => socket.write('{'), 100);
    try {
      // One that a stranger could hold up would answer the first of them when the stranger is gone.
      expect(await callsDuring(ended(socket))).toBeGreaterThan(5);
    } finally {
      clearInterval(drip);
    }
  });

  it('ten thousand times over leaves no socket behind and keeps no client out', async () => {
    const crowd = async (): Promise<void> => {
      for (let n = 0; n < 10_000; n += 100) {
        const some = await Promise.all(
          Array.from({ length: 100 }, async (_, i) => {
            const socket = connect(path);
            socket.on('error', () => undefined);
            // Where the backlog is full, the operating system refuses: cheaper still.
            const connected = await new Promise<boolean>((resolve) => {
              socket.once('connect', () => resolve(true));
              socket.once('close', () => resolve(false));
            });
            if (connected && i % 4 === 0) socket.write('garbage\n');
            return socket;
          }),
        );
        for (const socket of some) socket.destroy();
      }
    };
    expect(await callsDuring(crowd())).toBeGreaterThan(5);
    const late = await kernel.connect();
    expect((await late.call('kernel/status', {})).clients).toBe(2);
    await eventually('no stranger is left', async () => {
      return (await openSockets(kernel.pid)) < 20;
    });
  });
});

async function openSockets(pid: number): Promise<number> {
  const names = await readdir(`/proc/${pid}/fd`);
  const targets = await Promise.all(names.map((name) => readlink(`/proc/${pid}/fd/${name}`).catch(() => '')));
  return targets.filter((target) => target.startsWith('socket:')).length;
}
