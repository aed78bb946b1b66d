import { open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect as connectTo } from 'node:net';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { findKernel, findOrStartKernel } from '../../../src/client/find-kernel.ts';
import { KernelConnection } from '../../../src/client/kernel-connection.ts';
import { endpointFile, publishEndpoint, readEndpoint } from '../../../src/protocol/endpoint.ts';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { processState } from '../../../src/protocol/process-identity.ts';
import { reportStart, runtimeFault } from '../../../src/server/kernel-process.ts';
import {
  bareKernelEntry,
  compileCache,
  endKernel,
  eventually,
  makeHome,
  startTestKernel,
  testHello,
  type TestKernelOptions,
} from '../../fixtures/kernel.ts';

const owned: { dispose(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of owned.splice(0).reverse()) await each.dispose();
});

const start = async (options: TestKernelOptions = {}) => {
  const kernel = await startTestKernel({ entry: bareKernelEntry, ...options });
  owned.push(kernel);
  return kernel;
};

const ownHome = async (): Promise<string> => {
  const home = await makeHome();
  owned.push({
    async dispose() {
      await endKernel(home);
      await rm(home, { recursive: true, force: true });
    },
  });
  return home;
};

/** The fixture only toggles between busy and idle. */
const sessionId = 'ses_0123456789';
const startOptions = {
  kernelPath: bareKernelEntry,
  nodePath: process.execPath,
  autostart: true,
  environment: compileCache,
} as const;

/** Each may spawn a process before it learns that another has the lock: on a small machine fifty take a while. */
const starters = process.env['ESCROW_TEST_FULL'] === '1' ? 50 : 16;

test(`${starters} clients that start at once end with one Kernel`, { timeout: 600_000 }, async () => {
  const home = await ownHome();
  const sockets = await Promise.all(
    Array.from({ length: starters }, () =>
      findOrStartKernel({ home, hello: testHello(), ...startOptions, deadlineMs: 150_000 }),
    ),
  );
  expect(new Set(sockets.map((s) => s.welcome.instanceId)).size).toBe(1);
  expect(new Set(sockets.map((s) => s.welcome.epoch))).toEqual(new Set([1]));
  for (const { socket } of sockets) socket.destroy();
});

test('the endpoint file, the sockets and the logs are closed to others', async () => {
  const { home } = await start();
  const endpoint = await readEndpoint(home);
  for (const file of [endpointFile(home), path.join(home, 'kernel.log'), path.join(home, 'escrow.db')]) {
    expect((await stat(file)).mode & 0o077, file).toBe(0);
  }
  expect((await stat(path.dirname(endpoint!.path))).mode & 0o077).toBe(0);
});

test('a Kernel that was killed is replaced, with a higher epoch', async () => {
  const first = await start();
  const ended = first.kernel.closed;
  await first.kill();
  await ended;
  const second = await first.connect();
  expect(second.welcome.epoch).toBe(2);
  expect(second.welcome.instanceId).not.toBe(first.kernel.welcome.instanceId);
});

test('a stale endpoint whose pid now belongs to another process counts as none', async () => {
  const home = await ownHome();
  const stale = {
    pid: process.pid, // alive, but not what was recorded
    processStart: 'another boot:1',
    instanceId: 'deadbeefdead',
    protocol: { min: 1, max: 1 },
    path: path.join(home, 'run/gone.sock'),
    token: '0'.repeat(64),
    version: '0.1.0',
  };
  await publishEndpoint(home, stale);
  const found = await findOrStartKernel({ home, hello: testHello(), ...startOptions });
  expect(found.welcome.instanceId).not.toBe(stale.instanceId);
  found.socket.destroy();
});

test('a Kernel that is stuck is waited for, never replaced and never taken for a stranger', async () => {
  const { home, pid, kernel } = await start();
  process.kill(pid, 'SIGSTOP');
  try {
    await expect(
      findOrStartKernel({ home, hello: testHello(), ...startOptions, deadlineMs: 700 }),
    ).rejects.toMatchObject({ code: 'NoKernel' });
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  const later = await findOrStartKernel({ home, hello: testHello(), ...startOptions });
  expect(later.welcome.instanceId).toBe(kernel.welcome.instanceId);
  later.socket.destroy();
});

test('without autostart a missing Kernel is an error, and none is started', async () => {
  const home = await ownHome();
  await expect(
    findOrStartKernel({ home, hello: testHello(), ...startOptions, autostart: false }),
  ).rejects.toMatchObject({ code: 'NoKernel' });
  expect(await findKernel({ home, hello: testHello() })).toBeUndefined();
  expect(await readEndpoint(home)).toBeUndefined();
  const absent = path.join(home, 'absent');
  expect(await findKernel({ home: absent, hello: testHello() })).toBeUndefined();
  await expect(stat(absent)).rejects.toThrow('ENOENT');
});

test('a caller that gives up while it waits gets its own reason', async () => {
  const home = await ownHome();
  const reason = new Error('window closed');
  const options = { home, hello: testHello(), ...startOptions, signal: AbortSignal.abort(reason) };
  await expect(findOrStartKernel(options)).rejects.toBe(reason);
});

test('a Kernel that does not come up in time is an error that says where to look', async () => {
  const home = await ownHome();
  const silent = path.join(home, 'silent.mjs');
  await writeFile(silent, 'setTimeout(() => {}, 2000)');
  await expect(
    findOrStartKernel({ home, hello: testHello(), ...startOptions, kernelPath: silent, deadlineMs: 300 }),
  ).rejects.toMatchObject({ code: 'NoKernel', next: expect.stringContaining('kernel.log') });
});

test('a program that ends without a word is not started over and over', async () => {
  const home = await ownHome();
  const dead = path.join(home, 'dead.mjs');
  await writeFile(dead, 'process.exit(3)');
  await expect(
    findOrStartKernel({ home, hello: testHello(), ...startOptions, kernelPath: dead }),
  ).rejects.toMatchObject({ code: 'NoKernel', details: { exit: 3 } });
});

test('a report on the start goes to a pipe only, never into a file that got its number', async () => {
  const home = await ownHome();
  const file = path.join(home, 'database');
  const handle = await open(file, 'w');
  reportStart({ ESCROW_READY_FD: String(handle.fd) }, { kind: 'ready', instanceId: 'x' });
  await handle.close();
  expect(await readFile(file, 'utf8')).toBe('');
});

test('a runtime that is too old is refused by name', () => {
  expect(runtimeFault('20.20.2')).toMatchObject({ code: 'RuntimeTooOld', details: { have: '20.20.2' } });
  expect(runtimeFault('22.0.0')).toBeUndefined();
});

test('a second Kernel of the same home says who has it and ends with its own code', async () => {
  const { home, pid } = await start();
  const { spawnSync } = await import('node:child_process');
  const second = spawnSync(process.execPath, [bareKernelEntry], {
    env: { ...process.env, ESCROW_HOME: home },
    encoding: 'utf8',
  });
  expect(second.status).toBe(75);
  expect(second.stderr).toContain(`pid ${pid}`);
});

test('a crowd of strangers that says nothing, or garbage, keeps no client out', async () => {
  const { home, connect, kernel } = await start();
  const { path: socketPath } = (await readEndpoint(home))!;
  const strangers = Array.from({ length: 100 }, (_, i) => {
    const socket = connectTo(socketPath);
    socket.on('error', () => undefined);
    if (i % 3 === 0) socket.write('garbage\n');
    return socket;
  });
  try {
    await Promise.all(strangers.map((socket) => once(socket, 'connect')));
    const late = await connect();
    await late.call('kernel/status', {});
    await kernel.call('kernel/status', {});
  } finally {
    for (const socket of strangers) socket.destroy();
  }
});

test('kernel/stop answers, drains, removes the endpoint and ends', async () => {
  const { home, pid, kernel, log } = await start();
  const endpoint = await readEndpoint(home);
  await expect(kernel.call('kernel/stop', { settle: true })).resolves.toEqual({ stopping: true });
  await kernel.closed;
  await eventually('the process ends', async () => (await processState(pid, endpoint!.processStart)) === 'dead');
  expect(await readEndpoint(home)).toBeUndefined();
  expect(await log()).toContain('"reason":"stop"');
});

test('without clients and work the Kernel ends by itself; work keeps it', async () => {
  const { home, pid, kernel, connect } = await start({ environment: { ESCROW_IDLE_EXIT_MS: '50' } });
  const { processStart } = (await readEndpoint(home))!;
  await kernel.call('session/detach', { session: sessionId }); // busy in this fixture
  kernel.dispose();
  await kernel.closed;
  const again = await connect();
  expect(again.welcome.epoch).toBe(1);
  await again.call('session/detach', { session: sessionId }); // idle again
  again.dispose();
  await eventually('the Kernel ends', async () => (await processState(pid, processStart)) === 'dead');
  expect(await readEndpoint(home)).toBeUndefined();
});

test('a signal drains', async () => {
  const { pid, home, kernel, log } = await start();
  const { processStart } = (await readEndpoint(home))!;
  process.kill(pid, 'SIGTERM');
  await kernel.closed;
  await eventually('the Kernel ends', async () => (await processState(pid, processStart)) === 'dead');
  expect(await log()).toContain('"reason":"signal"');
});

test('a defect ends the process with its stack in the log, and the next client gets a new Kernel', async () => {
  const { kernel, log, connect } = await start();
  await kernel.call('window/away', { since: null }).catch(() => undefined);
  await kernel.closed;
  expect(await log()).toContain('an uncaught defect');
  expect((await connect()).welcome.epoch).toBe(2);
});

test('the Kernel inherits nothing of the window that started it', async () => {
  process.env['VSCODE_SECRET'] = 'x';
  process.env['NODE_OPTIONS'] = '';
  owned.push({
    dispose: () => {
      delete process.env['VSCODE_SECRET'];
      delete process.env['NODE_OPTIONS'];
      return Promise.resolve();
    },
  });
  const { kernel } = await start();
  const status = (await kernel.call('kernel/status', {})) as unknown as { env: Record<string, string> };
  const foreign = Object.keys(status.env).filter((name) => /^(VSCODE|ELECTRON|NODE_)/.test(name));
  expect(foreign.filter((name) => !(name in compileCache))).toEqual([]);
});

test('a newer client replaces an idle older Kernel', async () => {
  const { home, kernel } = await start({ environment: { ESCROW_TEST_VERSION: '0.0.9' }, hello: { version: '0.0.9' } });
  kernel.dispose();
  await kernel.closed;
  const newer = await findOrStartKernel({ home, hello: testHello({ version: '0.1.0' }), ...startOptions });
  expect(newer.welcome).toMatchObject({ version: '0.1.0', epoch: 2 });
  newer.socket.destroy();
});

test('a newer client uses an older Kernel that others need, and says that an update is pending', async () => {
  const { home } = await start({ environment: { ESCROW_TEST_VERSION: '0.0.9' }, hello: { version: '0.0.9' } });
  const newer = await findOrStartKernel({ home, hello: testHello({ version: '0.1.0' }), ...startOptions });
  expect(newer).toMatchObject({ updatePending: true, welcome: { version: '0.0.9', epoch: 1 } });
  newer.socket.destroy();
});

test('an older client never ends a newer Kernel', async () => {
  const { home, kernel } = await start({ environment: { ESCROW_TEST_VERSION: '9.0.0' }, hello: { version: '9.0.0' } });
  kernel.dispose();
  await kernel.closed;
  const older = await findOrStartKernel({ home, hello: testHello({ version: '0.1.0' }), ...startOptions });
  expect(older).toMatchObject({ updatePending: false, welcome: { version: '9.0.0', epoch: 1 } });
  older.socket.destroy();
});

test('bad settings keep the Kernel from starting, and the client learns why', async () => {
  const home = await ownHome();
  const failure = findOrStartKernel({
    home,
    hello: testHello(),
    ...startOptions,
    environment: { ...compileCache, ESCROW_INFERENCE_HOST: 'http://models.example.com:11434' },
  });
  await expect(failure).rejects.toSatisfy((e) => EscrowError.is(e, 'InvalidSettings'));
});

test('a program that is not there is told by name', async () => {
  const home = await ownHome();
  await expect(
    findOrStartKernel({ home, hello: testHello(), ...startOptions, nodePath: '/nonexistent/node' }),
  ).rejects.toMatchObject({ code: 'NoKernel', details: { nodePath: '/nonexistent/node' } });
});

test('where the home is too deep for a socket, a private folder is used and removed', async () => {
  const outer = await ownHome();
  const home = path.join(outer, 'd'.repeat(60), 'e'.repeat(60));
  const socket = await findOrStartKernel({ home, hello: testHello(), ...startOptions });
  const connection = new KernelConnection(socket);
  const folder = path.dirname(socket.endpoint.path);
  expect(socket.endpoint.path.startsWith(home)).toBe(false);
  expect((await stat(folder)).mode & 0o777).toBe(0o700);
  await connection.call('kernel/stop', { settle: true });
  await connection.closed;
  await eventually('the folder goes', () =>
    stat(folder).then(
      () => false,
      () => true,
    ),
  );
  const { pid, processStart } = socket.endpoint;
  await eventually('the process ends', async () => (await processState(pid, processStart)) === 'dead');
});
