// The ends of a window that window-end.test.ts leaves out, with the time each took: frozen browser, server ended and
// killed, the setting that lets an attempt finish, two windows and a command line at once. In the browser workbench.
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { root } from '../../scripts/lib/root.ts';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { settled, turns, verified } from '../fixtures/journey.ts';
import { startJourney, startSession, theSession, type Journey, type JourneyOptions } from './harness/journey.ts';
import { descendants, isRunning, processes } from './harness/processes.ts';

let journey: Journey | undefined;
afterEach(async () => {
  await journey?.dispose();
  journey = undefined;
});

type Held = Awaited<ReturnType<typeof held>>;

/** A window with an attempt that is held in the middle, after its edit. */
async function held(options: JourneyOptions & { readonly ownBrowser?: boolean; readonly uiUnreachableMs?: number }) {
  const started = await startJourney(options);
  journey = started;
  if (options.uiUnreachableMs !== undefined) {
    const settings = { uiUnreachableMs: options.uiUnreachableMs };
    await writeFile(path.join(started.home, 'settings.json'), JSON.stringify(settings));
  }
  const gate = started.gate('hold');
  await started.script([turns.view, turns.edit, { ...turns.test, holdUntilFile: gate.file }, turns.finish]);
  const window = await started.workbench.open(started.repo, { ownBrowser: options.ownBrowser === true });
  await startSession(window);
  const kernel = await started.observe();
  await theSession(kernel, 'the attempt is held', (s) => (s.attempts[0]?.requests ?? 0) >= 3);
  const endpoint = await readEndpoint(started.home);
  if (endpoint === undefined) throw new Error('no endpoint');
  return { ...started, gate, window, kernel, kernelPid: endpoint.pid };
}

/** Waits for the settlement and prints how long after the event it was recorded. */
async function settledAfter(what: string, from: number, { kernel, kernelPid }: Held): Promise<SessionView> {
  const session = await theSession(kernel, 'it is settled', settled, 90_000);
  const at = session.attempts[0]?.settlement?.settledAt ?? 0;
  process.stdout.write(`window end: ${what}: settled and confirmed after ${((at - from) / 1000).toFixed(1)} s\n`);
  expect(session.attempts[0]?.settlement?.confirmed).toBe(true);
  expect(await isRunning(kernelPid)).toBe(true);
  expect((await kernel.call('kernel/probe', {})).containers).toBe(0);
  return session;
}

test('a frozen browser: the window cannot prove itself, and after the set time the attempt is settled as that', async () => {
  const all = await held({ graceS: 60, ownBrowser: true, uiUnreachableMs: 6_000 });
  const before = await processes();
  const browser = before.filter((p) => /chrom/i.test(p.command) && /--user-data-dir|--type=/.test(p.command));
  const from = Date.now();
  for (const { pid } of browser) process.kill(pid, 'SIGSTOP');
  try {
    const session = await settledAfter('browser frozen (unreachable after 6 s)', from, all);
    expect(session.attempts[0]?.settlement?.trigger).toBe('ui_unreachable');
    // Nothing was closed: the extension host is there and connected.
    expect(await all.workbench.extensionHosts()).not.toEqual([]);
  } finally {
    for (const { pid } of browser) process.kill(pid, 'SIGCONT');
  }
  await all.window.row('Sessions', /Settlement.*confirmed/).waitFor();
});

test('the server of the window ended: settled; the Kernel lives', async () => {
  const all = await held({ graceS: 1 });
  const from = Date.now();
  all.workbench.server.kill('SIGTERM');
  const session = await settledAfter('server ended (grace 1 s)', from, all);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
});

test('the server and all its processes killed: settled; the Kernel is none of them', async () => {
  const all = await held({ graceS: 1 });
  const server = all.workbench.server.pid;
  if (server === undefined) throw new Error('no server');
  const family = (await descendants(server)).filter((p) => p.pid !== all.kernelPid);
  const from = Date.now();
  for (const pid of [server, ...family.map((p) => p.pid)]) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Gone with its parent.
    }
  }
  const session = await settledAfter('server and its processes killed (grace 1 s)', from, all);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
});

test('escrow.onWindowClose = finishAttempt: the attempt comes to its own end after the window has gone', async () => {
  const all = await held({ graceS: 1, settings: { 'escrow.onWindowClose': 'finishAttempt' } });
  await all.window.close();
  await theSession(all.kernel, 'nobody controls it', (s) => s.controller === null);
  const running = await theSession(all.kernel, 'it still runs', (s) => s.attempts.length === 1);
  expect(running.attempts[0]?.settlement).toBeNull();
  await all.gate.release();
  const done = await theSession(all.kernel, 'it is verified', verified);
  expect(done.attempts[0]?.settlement?.trigger).toBe('finish');
  expect(done.attempts).toHaveLength(1);
});

test('two windows and a command line at once: one Kernel, one controller, everybody sees the same', async () => {
  const all = await held({ graceS: 30 });
  const second = await all.workbench.open(all.repo);
  await second.openEscrow();
  await second.row('Sessions', /^UTC for/).waitFor();
  const cli = async (...args: string[]): Promise<unknown> => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [path.join(root, 'dist/cli.cjs'), ...args, '--json'],
      {
        env: { ...process.env, ESCROW_HOME: all.home },
      },
    );
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  };
  const status = (await cli('kernel', 'status')) as { pid: number; clients: { kind: string }[] };
  expect(status.pid).toBe(all.kernelPid);
  expect(status.clients.filter((c) => c.kind === 'window')).toHaveLength(2);
  const before = await theSession(all.kernel, 'it runs', (s) => s.state === 'running');
  await expect(cli('session', 'cancel', before.id)).rejects.toThrow();
  const cancelled = (await cli('session', 'cancel', before.id, '--take-over')) as SessionView;
  expect(cancelled.attempts[0]?.settlement).toMatchObject({ trigger: 'cancel', confirmed: true });
  for (const window of [all.window, second]) await window.row('Sessions', /Settlement.*confirmed/).waitFor();
});
