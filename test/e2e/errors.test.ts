// What a person sees where something that Escrow needs is not there, what it tells them to do, and that all is as before
// once they have done it.
import { onTestFinished, expect, test } from 'vitest';
import { engineBetween, type EngineCall, type Misdeed } from '../fixtures/bad-peers/engine-between.ts';
import { honestTag, startOllamaPeer } from '../fixtures/bad-peers/ollama-peer.ts';
import { settled, turns } from '../fixtures/journey.ts';
import { canMount, smallDisk, noMount } from '../fixtures/small-disk.ts';
import { startJourney, theSession } from './harness/journey.ts';
import { pictures } from './harness/pictures.ts';
import { until } from './harness/until.ts';
import type { WorkbenchWindow } from './harness/window.ts';

const wide = { width: 1100, height: 760 };
const narrow = { width: 560, height: 620 };

/** Pictures of what a person is told, with room and without. */
async function show(window: WorkbenchWindow, name: string): Promise<void> {
  await pictures(window, `error-${name}`, ['light', 'dark']);
  await window.page.setViewportSize(narrow);
  await window.screenshot(`error-${name}-narrow`);
  await window.page.setViewportSize(wide);
}

/** An engine in which nobody has ever made or fetched an image. */
function withoutImages({ path }: EngineCall): Misdeed | undefined {
  if (path === '/images/json') return { kind: 'answer', status: 200, body: [] };
  return path.startsWith('/images/') ? { kind: 'answer', status: 404, body: { message: 'No such image' } } : undefined;
}

test('no Node, no engine, a model of a cloud, no image: each says what to do, and a session starts once it is done', async () => {
  const engine = await engineBetween();
  await engine.goAway();
  const cloud = { name: 'kimi-k2:1t-cloud', remote_model: 'kimi-k2:1t', remote_host: 'https://ollama.com:443' };
  const ollama = await startOllamaPeer({ tags: () => [honestTag, { ...honestTag, ...cloud, model: cloud.name }] });
  onTestFinished(async () => {
    await engine.close();
    await ollama.close();
  });
  const hosts = { 'escrow.engine.host': engine.address, 'escrow.inference.ollamaHost': ollama.host };
  const { workbench, repo } = await startJourney({
    machineSettings: { ...hosts, 'escrow.kernel.node': '/nowhere/node' },
  });
  const window = await workbench.open(repo, wide);
  await window.openEscrow();
  await window.pane('Sessions').getByText('The Kernel could not be started with /nowhere/node. Set').waitFor();
  await window.statusBarItem().getByText('not connected').waitFor();
  const start = window.pane('Health').getByRole('button', { name: 'Start Kernel' });
  await start.click();
  await window.told('Set escrow.kernel.node to a Node of version 22 or newer');
  await window.notificationButton('Open Settings').waitFor();
  await show(window, 'node');
  await workbench.setMachine(hosts);
  // By itself, or because it is told to: both are right, and which is first depends on the machine.
  await until('the Kernel runs', 60_000, async () => {
    await start.click({ timeout: 1000 }).catch(() => undefined);
    return (await window.row('Health', /^Kernel/).isVisible()) ? true : undefined;
  });

  await window.row('Health', /Container engine.*does not answer/).waitFor();
  await window.row('Health', /^Start Docker or Podman$/).waitFor();
  await window.row('Health', /Sandbox image.*not known/).waitFor();
  await show(window, 'engine');

  await window.command('Escrow: Start Session');
  await window.pick(/kimi-k2.*its prompts would leave this machine/);
  await window.told('its prompts would leave this machine. Choose a model that runs on this machine.');
  await show(window, 'cloud');
  expect(ollama.chats, 'nothing was sent').toEqual([]);

  await window.command('Notifications: Clear All Notifications');
  await window.command('Escrow: Start Session');
  await window.pick('beside the contract');
  await window.told('No container engine answers. Start Docker or Podman');
  await show(window, 'start-without-engine');

  engine.behave(withoutImages);
  await engine.comeBack();
  await window.notificationButton('Check Health').click();
  await window.row('Health', /Container engine.*Docker/).waitFor();
  await window.row('Health', /Sandbox image.*not there yet/).waitFor();
  await show(window, 'image');
  // The row itself does it: the plan is read first, and nothing is made.
  await window.row('Health', /^Prepare the sandbox image$/).click();
  await window.pick('Read the Plan First');
  await window.line('What preparing this sandbox image would do').waitFor();
  await show(window, 'image-plan');
  await window.editorAction(/^Prepare Sandbox Image/).click();
  await window.pick('Do Not Prepare');

  engine.honest();
  await window.command('Escrow: Check Health');
  await window.row('Health', /^Sandbox image[0-9a-f]{12}$/).waitFor();
  await window.command('Escrow: Start Session');
  await window.pick('beside the contract');
  await window.row('Sessions', /Verification.*passed/).waitFor();
});

test.skipIf(!canMount)(
  `a state folder that is read-only, then full, then full under an attempt: said as that, and nothing recorded is lost${noMount}`,
  async () => {
    const disk = await smallDisk(12);
    await disk.readOnly();
    const journey = await startJourney({ disk });
    const gate = journey.gate('hold');
    await journey.script([turns.view, turns.edit, { ...turns.test, holdUntilFile: gate.file }, turns.finish]);
    const window = await journey.workbench.open(journey.repo, wide);
    const sessions = window.pane('Sessions');
    await window.openEscrow();
    await sessions.getByText(`Escrow cannot write its state folder, ${disk.folder}.`).waitFor();
    await window.statusBarItem().getByText('not connected').waitFor();
    const start = window.pane('Health').getByRole('button', { name: 'Start Kernel' });
    await start.waitFor();
    await show(window, 'read-only');

    await disk.writable();
    await disk.fill();
    await start.click();
    await window.told('No space is left on the disk');
    await sessions.getByText(`No space is left on the disk that holds ${disk.folder}. Free space there.`).waitFor();
    await show(window, 'full');

    await disk.free();
    await window.notificationButton('Start Kernel').click();
    await sessions.getByText('No session yet').waitFor();
    await window.command('Escrow: Start Session');
    await window.pick('beside the contract');
    const kernel = await journey.observe();
    const before = await theSession(kernel, 'the attempt is held', (s) => (s.attempts[0]?.requests ?? 0) >= 3);

    await disk.fill();
    await gate.release();
    await sessions.getByText('Nothing can be recorded: no space is left').waitFor();
    await window.row('Sessions', /Attempt 1.*last seen: running/).waitFor();
    await window.row('Health', /Storage.*no space left/).waitFor();
    await window.statusBarItem().getByText('not current').waitFor();
    await show(window, 'full-under-attempt');

    await disk.free();
    await window.command('Escrow: Check Health');
    const after = await theSession(kernel, 'it is settled', settled);
    expect(after.attempts[0]?.activity.slice(0, before.attempts[0]?.activity.length)).toEqual(
      before.attempts[0]?.activity,
    );
    expect(after.attempts[0]?.settlement?.confirmed).toBe(true);
    expect((await kernel.call('kernel/verify', {})).broken).toEqual([]);
    await window.row('Sessions', /Settlement.*confirmed/).waitFor();
    await window.row('Sessions', /No space left.*the container had stopped/).waitFor();
    await show(window, 'free-again');
  },
);
