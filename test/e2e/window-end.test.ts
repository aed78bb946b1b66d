import { afterEach, expect, test } from 'vitest';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import { settled, turns, verified } from '../fixtures/journey.ts';
import { startJourney, startSession, theSession, type Journey, type JourneyOptions } from './harness/journey.ts';
import { isRunning } from './harness/processes.ts';
import { until } from './harness/until.ts';
import type { WorkbenchWindow } from './harness/window.ts';

let journey: Journey | undefined;
afterEach(async () => {
  await journey?.dispose();
  journey = undefined;
});

/** A window with an attempt that is held in the middle, after its edit. */
async function heldAttempt(options: JourneyOptions & { readonly ownBrowser?: boolean }) {
  const started = await startJourney(options);
  journey = started;
  const gate = started.gate('hold');
  await started.script([turns.view, turns.edit, { ...turns.test, holdUntilFile: gate.file }, turns.finish]);
  const window = await started.workbench.open(started.repo, { ownBrowser: options.ownBrowser === true });
  await startSession(window);
  const kernel = await started.observe();
  await theSession(
    kernel,
    'the edit was made and the attempt is held',
    (s) =>
      s.attempts[0]?.activity.some(({ kind, title }) => kind === 'result' && title.includes('usage.py')) === true &&
      (s.attempts[0]?.requests ?? 0) >= 3,
  );
  return { ...started, gate, window, kernel };
}

/** Prints how long after an event something was seen; a measurement for people, never a verdict. */
function tell(what: string, from: number, at: number): void {
  process.stdout.write(`window end: ${what} after ${((at - from) / 1000).toFixed(1)} s\n`);
}

/** What the next window must say about an attempt that was settled without it. */
async function nextWindowTells(window: WorkbenchWindow, what: RegExp): Promise<void> {
  await window.openEscrow();
  await window.notification().getByText(what).waitFor();
  await window.row('Sessions', /^UTC for/).waitFor();
}

test('closing the window settles the attempt, keeps its bytes, and the next window says so', async () => {
  const { window, kernel, workbench, repo } = await heldAttempt({ graceS: 1 });
  const from = Date.now();
  await window.close();
  const session = await theSession(kernel, 'it is settled', settled);
  const [attempt] = session.attempts;
  tell('closed (grace 1 s): settled and confirmed', from, attempt?.settlement?.settledAt ?? 0);
  expect(attempt?.settlement).toMatchObject({ trigger: 'window_close', confirmed: true });
  expect(attempt?.outcome?.kind).toBe('cancelled');
  expect(attempt?.collection?.state).toBe('complete');
  expect((await kernel.call('kernel/probe', {})).containers).toBe(0);

  const next = await workbench.open(repo);
  await nextWindowTells(next, /While no window was open.*cancelled.*its window closed/);
  await next.row('Sessions', /Settlement.*confirmed/).waitFor();
  await next.screenshot('after-window-close-dark');
});

test('a reload within the grace goes on with the same attempt and the same control', async () => {
  const { window, kernel, gate } = await heldAttempt({ graceS: 30 });
  const before = await theSession(kernel, 'it runs', (s) => s.state === 'running');
  const from = Date.now();
  await window.reload();
  await window.openEscrow();
  await window.row('Sessions', /Control.*this window/).waitFor();
  tell('reloaded: in control again', from, Date.now());
  const after = await theSession(kernel, 'it still runs', (s) => s.state === 'running');
  expect(after.controller?.clientId).toBe(before.controller?.clientId);
  await gate.release();
  const done = await theSession(kernel, 'it is verified', verified);
  expect(done.attempts).toHaveLength(1);
  expect(done.attempts[0]?.settlement?.trigger).toBe('finish');
  await window.row('Sessions', /Verification.*passed/).waitFor();
});

test('a killed extension host comes back as the same window', async () => {
  const { window, kernel, gate, workbench } = await heldAttempt({ graceS: 60 });
  const before = await theSession(kernel, 'it runs', (s) => s.state === 'running');
  const [host] = await workbench.extensionHosts();
  if (host === undefined) throw new Error('no extension host');
  const from = Date.now();
  process.kill(host, 'SIGKILL');
  await until('the host is gone', 10_000, async () => ((await isRunning(host)) ? undefined : true));
  await until('another host has started', 30_000, async () => (await workbench.extensionHosts())[0]);
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
  expect(done.attempts[0]?.settlement?.trigger).toBe('finish');
});

test('a killed browser settles the attempt once its extension host has gone', async () => {
  const { window, kernel, workbench } = await heldAttempt({ graceS: 1, reconnectionGraceS: 3, ownBrowser: true });
  const from = Date.now();
  await workbench.killBrowser(window);
  const session = await theSession(kernel, 'it is settled', settled, 90_000);
  const at = session.attempts[0]?.settlement?.settledAt ?? 0;
  tell('browser killed (reconnection grace 3 s, grace 1 s): settled and confirmed', from, at);
  expect(session.attempts[0]?.settlement).toMatchObject({ trigger: 'window_close', confirmed: true });
  expect((await kernel.call('kernel/probe', {})).containers).toBe(0);
});

test('a Kernel killed under the window: what is shown is marked as past, then as what the next Kernel observed', async () => {
  const { window, home } = await heldAttempt({});
  const endpoint = await readEndpoint(home);
  if (endpoint === undefined) throw new Error('no endpoint');
  process.kill(endpoint.pid, 'SIGKILL');
  await window
    .pane('Sessions')
    .getByText(/Not connected; last observed \d\d:\d\d/)
    .waitFor();
  await window.statusBarItem().getByText('not connected').waitFor();
  expect(await window.pane('Sessions').locator('.codicon-modifier-spin').count()).toBe(0);
  await window.row('Sessions', /Attempt 1.*last seen: running/).waitFor();
  await window.screenshot('kernel-killed-dark');

  await window.row('Sessions', /interrupted/).waitFor();
  await window.row('Sessions', /Settlement.*confirmed/).waitFor();
  const next = await readEndpoint(home);
  expect(next?.pid).not.toBe(endpoint.pid);
});

test('a Kernel that was stopped on purpose stays stopped until somebody starts it', async () => {
  const started = await startJourney();
  journey = started;
  const window = await started.workbench.open(started.repo);
  await window.openEscrow();
  await window.pane('Sessions').getByText('No session yet').waitFor();
  const before = await readEndpoint(started.home);
  const kernel = await started.observe();
  await kernel.call('kernel/stop', { settle: true });
  await window.pane('Sessions').getByText('The Kernel was stopped').waitFor();
  await until('it is gone', 20_000, async () => ((await isRunning(before?.pid ?? 0)) ? undefined : true));

  await window.command('Escrow: Start Kernel');
  await window.pane('Sessions').getByText('No session yet').waitFor();
  expect((await readEndpoint(started.home))?.pid).not.toBe(before?.pid);
});
