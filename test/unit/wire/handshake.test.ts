import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import {
  greetClient,
  greetKernel,
  negotiate,
  type ClientHandshake,
  type KernelHandshake,
} from '../../../src/protocol/handshake.ts';
import { testHello } from '../../fixtures/kernel.ts';

const token = 'a1'.repeat(32);
let folder: string;
let server: Server;
let client: Socket;
let kernel: Socket;

beforeEach(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'escrow-shake-'));
  server = createServer();
  const accepted = new Promise<Socket>((resolve) => {
    server.once('connection', resolve);
  });
  await new Promise<void>((resolve) => {
    server.listen(path.join(folder, 's'), resolve);
  });
  client = connect(path.join(folder, 's'));
  kernel = await accepted;
  for (const socket of [client, kernel]) socket.on('error', () => undefined);
});
afterEach(() => {
  client.destroy();
  kernel.destroy();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

const asKernel = (overrides: Partial<KernelHandshake> = {}) =>
  greetClient(kernel, {
    token,
    protocol: { min: 1, max: 1 },
    instanceId: 'instance-1',
    epoch: 3,
    version: '0.1.0',
    refusal: () => undefined,
    drainIfIdle: () => false,
    ...overrides,
  });
const asClient = (overrides: Partial<ClientHandshake> = {}) =>
  greetKernel(client, { token, protocol: { min: 1, max: 1 }, hello: testHello({ name: 'me' }), ...overrides });

/** Everything that went over the wire, as a bystander would see it. */
function overhear(): () => string {
  const heard: Buffer[] = [];
  const write = client.write.bind(client);
  client.write = (data: string | Uint8Array, ...rest: []) => {
    heard.push(Buffer.from(data));
    return write(data, ...rest);
  };
  const writeBack = kernel.write.bind(kernel);
  kernel.write = (data: string | Uint8Array, ...rest: []) => {
    heard.push(Buffer.from(data));
    return writeBack(data, ...rest);
  };
  return () => Buffer.concat(heard).toString();
}

/** Reads the Kernel's refusal as a stranger sees it, up to the end of the connection. */
async function rawAnswer(): Promise<string> {
  let text = '';
  client.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  await new Promise((resolve) => {
    client.once('close', resolve);
  });
  return text;
}

describe('both sides know the token', () => {
  test('and get to know each other; the token does not travel', async () => {
    const heard = overhear();
    const [there, here] = await Promise.all([asKernel(), asClient()]);
    expect(there).toMatchObject({ protocol: 1, hello: { name: 'me' } });
    expect(here).toMatchObject({
      welcome: { protocol: 1, instanceId: 'instance-1', epoch: 3, version: '0.1.0' },
      draining: false,
    });
    expect(heard()).toContain('"proof"');
    expect(heard()).not.toContain(token);
    expect(heard()).not.toContain(Buffer.from(token, 'hex').toString('base64'));
  });

  test('what follows the handshake at once is not lost', async () => {
    const there = asKernel();
    await asClient();
    client.write('Content-');
    client.write('Length: 2\r\n\r\n{}');
    await there;
    const text = await new Promise<string>((resolve) => {
      let seen = '';
      kernel.on('data', (chunk: Buffer) => {
        seen += chunk.toString();
        if (seen.endsWith('{}')) resolve(seen);
      });
    });
    expect(text).toBe('Content-Length: 2\r\n\r\n{}');
  });

  test('the highest common version is taken', async () => {
    const [there, here] = await Promise.all([
      asKernel({ protocol: { min: 2, max: 5 } }),
      asClient({ protocol: { min: 1, max: 3 } }),
    ]);
    expect([there?.protocol, here.welcome.protocol]).toEqual([3, 3]);
    expect(negotiate({ min: 1, max: 2 }, { min: 3, max: 4 })).toBeNull();
  });

  test('without a common version the client says so', async () => {
    const there = asKernel({ protocol: { min: 4, max: 5 } });
    await expect(asClient()).rejects.toMatchObject({ code: 'VersionMismatch' });
    client.destroy();
    expect(await there).toBeUndefined();
  });

  test('a newer client without a common version can still ask an idle Kernel to go', async () => {
    const asked: string[] = [];
    const there = asKernel({
      drainIfIdle: (version) => {
        asked.push(version);
        return true;
      },
    });
    const here = await asClient({ protocol: { min: 9, max: 9 }, intent: 'drain-if-idle' });
    expect(here).toMatchObject({ draining: true, welcome: { protocol: null } });
    expect(await there).toBeUndefined();
    expect(asked).toEqual(['0.1.0']);
  });

  test('a refusal reaches the client as the error that it is', async () => {
    const there = asKernel({ refusal: () => new EscrowError('KernelDraining', 'going', 'wait') });
    await expect(asClient()).rejects.toMatchObject({ code: 'KernelDraining', message: 'going', next: 'wait' });
    expect(await there).toBeUndefined();
  });

  test('members that a newer hello has are dropped, not refused', async () => {
    const hello = { ...testHello(), invented: true };
    const [there] = await Promise.all([asKernel(), asClient({ hello })]);
    expect(there?.hello).not.toHaveProperty('invented');
  });
});

describe('a stranger', () => {
  test('with another token learns nothing that the Kernel would sign for it, and is refused', async () => {
    const drained: string[] = [];
    const there = asKernel({
      drainIfIdle: (v) => {
        drained.push(v);
        return true;
      },
    });
    await expect(asClient({ token: 'b2'.repeat(32), intent: 'drain-if-idle' })).rejects.toMatchObject({
      code: 'HandshakeRefused',
    });
    client.destroy();
    expect(await there).toBeUndefined();
    expect(drained).toEqual([]);
  });

  test("that sends the Kernel's own proof back is refused", async () => {
    const there = asKernel();
    const answer = rawAnswer();
    const opening = { nonce: '00'.repeat(32), protocol: { min: 1, max: 1 }, hello: testHello() };
    client.write(`${JSON.stringify(opening)}\n`);
    client.once('data', (chunk: Buffer) => {
      const { proof } = JSON.parse(chunk.toString()) as { proof: string };
      client.write(`${JSON.stringify({ proof })}\n`);
    });
    expect(await there).toBeUndefined();
    expect(await answer).toContain('HandshakeRefused');
  });

  test('that pretends to be the Kernel is found out before the client proves itself', async () => {
    const impostor = asKernel({ token: 'b2'.repeat(32) });
    await expect(asClient()).rejects.toMatchObject({ code: 'HandshakeRefused' });
    client.destroy();
    await impostor;
  });

  test('between both that changes the version is found out', async () => {
    // The Kernel signs what it received: a client that opened otherwise computes another proof.
    const there = asKernel({ protocol: { min: 1, max: 9 } });
    const write = client.write.bind(client);
    client.write = (data: string | Uint8Array) => write(String(data).replace('"max":9', '"max":1'));
    await expect(asClient({ protocol: { min: 1, max: 9 } })).rejects.toMatchObject({ code: 'HandshakeRefused' });
    client.destroy();
    expect(await there).toBeUndefined();
  });

  test.for([
    ['garbage', '\x00\x01\x02\n'],
    ['JSON of another kind', '{"hello":"world"}\n'],
    ['a list', '[]\n'],
    ['an endless line', 'x'.repeat(5000)],
    ['a line that is too long although it ends', `{"a":"${'x'.repeat(5000)}"}\n`],
    ['a request without handshake', 'Content-Length: 2\r\n\r\n{}'],
  ] as const)('with %s is refused', async ([, bytes]) => {
    const there = asKernel();
    const answer = rawAnswer();
    client.write(bytes);
    expect(await there).toBeUndefined();
    expect(await answer).toContain('HandshakeRefused');
  });

  test('that drips is cut off in time', async () => {
    const there = asKernel({ timeoutMs: 100 });
    client.on('data', () => undefined);
    const timer = setInterval(() => client.write('x'), 10);
    try {
      expect(await there).toBeUndefined();
    } finally {
      clearInterval(timer);
    }
  });

  test('that says nothing and goes leaves nothing behind', async () => {
    const there = asKernel();
    client.end();
    client.destroy();
    expect(await there).toBeUndefined();
  });
});

test('a Kernel that is silent is given up by the client, and not taken for one that refused', async () => {
  await expect(asClient({ timeoutMs: 50 })).rejects.toMatchObject({ name: 'ConnectionLost' });
});

test('a connection that breaks in the handshake is not taken for a refusal', async () => {
  kernel.destroy();
  await expect(asClient()).rejects.toMatchObject({ name: 'ConnectionLost' });
});
