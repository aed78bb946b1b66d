// Every way in which a window can end, with the time each took, in the browser workbench. The tests that end the server
// come last: the next one would start another.
import { rename } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { settled, turns, verified } from '../fixtures/journey.ts';
import { heldAttempt, startJourney, startSession, theSession } from './harness/journey.ts';
import { family, isRunning } from '../fixtures/processes.ts';
import { until } from './harness/until.ts';

type Held = Awaited<ReturnType<typeof heldAttempt>>;

/** Prints how long after an event something was seen; a measurement for people, never a verdict. */
function tell(what: string, from: number, at: number): void {
  process.stdout.write(`window end: ${what} after ${((at - from) / 1000).toFixed(1)} s\n`);
}

/** Waits for the settlement, prints how long after the event it was recorded, and sees that nothing is left. */
async function settledAfter(what: string, from: number, { kernel, home }: Held): Promise<SessionView> {
  const before = await readEndpoint(home);
  const session = await theSession(kernel, 'it is settled', settled);
  tell(`${what}: settled and confirmed`, from, session.attempts[0]?.settlement?.settledAt ?? 0);
  expect(session.attempts[0]?.settlement?.confirmed).toBe(true);
  expect((await kernel.call('kernel/probe', {})).containers).toBe(0);
  expect(await isRunning(before?.pid ?? 0)).toBe(true);
  return session;
}

const frozen: number[] = [];
afterEach(() => {
  for (const pid of frozen.splice(0)) process.kill(pid, 'SIGCONT');
});

test('closing the window settles the attempt, keeps its bytes, and the next window says so', async () => {
  const held = await heldAttempt({ graceS: 1 });
  const from = Date.now();
  await held.window.close();
  const session = await settledAfter('closed (grace 1 s)', from, held);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
  expect(session.attempts[0]?.outcome?.kind).toBe('cancelled');
  expect(session.attempts[0]?.collection?.state).toBe('complete');

  const next = await held.workbench.open(held.repo);
  await next.openEscrow();
  await next.told(/While no window was open.*cancelled.*its window closed/);
  await next.row('Sessions', /Settlement.*confirmed/).waitFor();
  await next.screenshot('after-window-close-dark');
});

test('a reload, then a killed extension host: the same window with the same attempt and the same control', async () => {
  const { window, kernel, gate, workbench } = await heldAttempt({ graceS: 300 });
  const before = await theSession(kernel, 'it runs', (s) => s.state === 'running');
  let from = Date.now();
  await window.reload();
  await window.openEscrow();
  await window.row('Sessions', /Control.*this window/).waitFor();
  tell('reloaded: in control again', from, Date.now());
  const after = await theSession(kernel, 'it still runs', (s) => s.state === 'running');
  expect(after.controller?.clientId).toBe(before.controller?.clientId);

  // The host of before the reload may still be ending.
  const hosts = await workbench.extensionHosts();
  const host = hosts.at(-1);
  if (host === undefined) throw new Error('no extension host');
  from = Date.now();
  process.kill(host, 'SIGKILL');
  await until('the host is gone', 10_000, async () => ((await isRunning(host)) ? undefined : true));
  await until('another host has started', 30_000, async () =>
    (await workbench.extensionHosts()).find((pid) => !hosts.includes(pid)),
  );
  // A view of ours is open, so the new host is activated by itself.
  await theSession(
    kernel,
    'the same client is connected',
    (s) => s.controller?.clientId === before.controller?.clientId && s.controller?.connected === true,
  );
  await window.row('Sessions', /Control.*this window/).waitFor();
  tell('extension host killed: in control again', from, Date.now());
  await gate.release();
  const done = await theSession(kernel, 'it is verified', verified);
  expect(done.attempts).toHaveLength(1);
  expect(done.attempts[0]?.settlement?.trigger).toBe('finish');
  await window.row('Sessions', /Verification.*passed/).waitFor();
});

test('escrow.onWindowClose = finishAttempt: the attempt comes to its own end after the window has gone', async () => {
  const { window, kernel, gate } = await heldAttempt({
    graceS: 1,
    settings: { 'escrow.onWindowClose': 'finishAttempt' },
  });
  await window.close();
  const alone = await theSession(kernel, 'nobody controls it', (s) => s.controller === null);
  expect(alone.attempts[0]?.settlement).toBeNull();
  await gate.release();
  const done = await theSession(kernel, 'it is verified', verified);
  expect(done.attempts[0]?.settlement?.trigger).toBe('finish');
  expect(done.attempts).toHaveLength(1);
});

test('a killed browser settles the attempt once its extension host has gone', async () => {
  const held = await heldAttempt({ graceS: 1, ownBrowser: true });
  const from = Date.now();
  await held.workbench.killBrowser(held.window);
  const session = await settledAfter('browser killed (reconnection grace 2 s, grace 1 s)', from, held);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
});

test('a frozen browser: the window cannot prove itself, and after the set time the attempt is settled as that', async () => {
  const held = await heldAttempt({ graceS: 60, ownBrowser: true, kernelSettings: { uiUnreachableMs: 6_000 } });
  frozen.push(...(await held.workbench.browserProcesses(held.window)));
  const from = Date.now();
  for (const pid of frozen) process.kill(pid, 'SIGSTOP');
  const session = await settledAfter('browser frozen (unreachable after 6 s)', from, held);
  expect(session.attempts[0]?.settlement?.trigger).toBe('ui_unreachable');
  // Nothing was closed: the extension host is there and connected.
  expect(await held.workbench.extensionHosts()).not.toEqual([]);
  for (const pid of frozen.splice(0)) process.kill(pid, 'SIGCONT');
  await held.window.row('Sessions', /Settlement.*confirmed/).waitFor();
});

test('a Kernel killed under the window: what is shown is marked as past, then as what the next Kernel observed; one that was stopped stays so', async () => {
  const { window, home, workbench, observe } = await heldAttempt();
  const endpoint = await readEndpoint(home);
  if (endpoint === undefined) throw new Error('no endpoint');
  // The window would start another one within a second: what it shows in between lasts as long as none can start.
  const program = path.join(workbench.folder, 'extensions', 'escrow.escrow', 'dist', 'kernel.cjs');
  await rename(program, `${program}.away`);
  try {
    process.kill(endpoint.pid, 'SIGKILL');
    await window
      .pane('Sessions')
      .getByText(/Not connected; last observed \d\d:\d\d/)
      .waitFor();
    await window.statusBarItem().getByText('not connected').waitFor();
    await window.row('Sessions', /Attempt 1.*last seen: running/).waitFor();
    const spinning = window.pane('Sessions').locator('.codicon-modifier-spin');
    await until('nothing spins', 10_000, async () => ((await spinning.count()) === 0 ? true : undefined));
    // The colour of what is not current comes on its own.
    await window
      .row('Health', /^Kernel/)
      .locator('[class*="monaco-decoration"]')
      .first()
      .waitFor();
    await window.screenshot('kernel-killed-dark');
  } finally {
    await rename(`${program}.away`, program);
  }

  await window.command('Escrow: Start Kernel');
  await window.row('Sessions', /interrupted/).waitFor();
  await window.row('Sessions', /Settlement.*confirmed/).waitFor();
  const next = await readEndpoint(home);
  expect(next?.pid).not.toBe(endpoint.pid);

  // One that was stopped on purpose stays stopped until somebody starts it.
  await (await observe()).call('kernel/stop', { settle: true });
  await window.pane('Sessions').getByText('The Kernel was stopped').waitFor();
  await until('it is gone', 20_000, async () => ((await isRunning(next?.pid ?? 0)) ? undefined : true));
  await window.command('Escrow: Start Kernel');
  await window.statusBarItem().getByText('not connected').waitFor({ state: 'detached' });
  expect((await readEndpoint(home))?.pid).not.toBe(next?.pid);
});

test('the server of the window ended: settled; the Kernel lives', async () => {
  const held = await heldAttempt({ graceS: 1 });
  const from = Date.now();
  held.workbench.server.kill('SIGTERM');
  const session = await settledAfter('server ended (grace 1 s)', from, held);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
});

test('the server and all its processes killed: settled; the Kernel, which the window started, is none of them', async () => {
  const journey = await startJourney({ graceS: 1 });
  const gate = journey.gate('hold');
  await journey.script([turns.view, turns.edit, { ...turns.test, holdUntilFile: gate.file }, turns.finish]);
  const window = await journey.workbench.open(journey.repo);
  await startSession(window);
  const kernel = await journey.observe();
  await theSession(kernel, 'the attempt is held', (s) => (s.attempts[0]?.requests ?? 0) >= 3);
  const server = journey.workbench.server.pid;
  const kernelPid = (await readEndpoint(journey.home))?.pid;
  if (server === undefined || kernelPid === undefined) throw new Error('no server, or no Kernel');
  const all = await family(server);
  expect(all, 'an extension host at least').not.toHaveLength(1);
  expect(all).not.toContain(kernelPid);
  const from = Date.now();
  for (const pid of all) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Gone with its parent.
    }
  }
  const held = { ...journey, gate, window, kernel };
  const session = await settledAfter('server and its processes killed (grace 1 s)', from, held);
  expect(session.attempts[0]?.settlement?.trigger).toBe('window_close');
});
