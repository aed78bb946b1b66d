import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import { startJourney, type Journey, type JourneyOptions } from './harness/journey.ts';
import type { WorkbenchWindow } from './harness/window.ts';

let journey: Journey | undefined;
const folders: string[] = [];
afterEach(async () => {
  await journey?.dispose();
  journey = undefined;
  await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true, force: true })));
});

async function start(options: JourneyOptions = {}): Promise<Journey> {
  journey = await startJourney(options);
  return journey;
}

/** What the Sessions view says where it has no rows. */
async function welcome(window: WorkbenchWindow, text: string): Promise<void> {
  await window.pane('Sessions').getByText(text).waitFor();
}

test('nothing starts before somebody looks', async () => {
  const { workbench, repo, home } = await start();
  const window = await workbench.open(repo);
  await window.openFile('usage.py');
  expect(await readEndpoint(home)).toBeUndefined();
  expect(await window.statusBarItem().count()).toBe(0);
});

test('a window without a folder says what to open', async () => {
  const { workbench, home } = await start();
  const window = await workbench.open(null);
  await window.openEscrow();
  await welcome(window, 'Open the folder of a git repository');
  await window.screenshot('welcome-no-folder-dark');
  expect(await readEndpoint(home)).toBeUndefined();
});

test('a folder that is not trusted starts no Kernel and says so', async () => {
  const { workbench, repo, home } = await start({
    workspaceTrust: true,
    settings: { 'security.workspace.trust.startupPrompt': 'never', 'security.workspace.trust.banner': 'never' },
  });
  const window = await workbench.open(repo);
  await window.openEscrow();
  await welcome(window, 'This folder is not trusted');
  await window.screenshot('welcome-untrusted-dark');
  // A contract file is opened and activates us; still nothing is read by a Kernel.
  await window.openFile('utc-timestamp.contract.jsonc');
  expect(await readEndpoint(home)).toBeUndefined();
});

test('a folder without git says what a contract needs', async () => {
  const { workbench } = await start();
  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-plain-'));
  folders.push(folder);
  const window = await workbench.open(folder);
  await window.openEscrow();
  await welcome(window, 'not in a git repository');
  await window.screenshot('welcome-no-git-dark');
});

test('a Kernel that cannot start leaves one plain sentence and a way on', async () => {
  const { workbench, repo } = await start({ machineSettings: { 'escrow.kernel.node': '/nowhere/node' } });
  const window = await workbench.open(repo);
  await window.openEscrow();
  await welcome(window, 'The Kernel could not be started');
  await window.statusBarItem().getByText('not connected').waitFor();
  await window.screenshot('welcome-lost-dark');
  await window.command('Escrow: Start Kernel');
  await window.notification().getByText('/nowhere/node').waitFor();
});

test('a contract file is checked while it is written, completed, and refused with its reason', async () => {
  const { workbench, repo } = await start();
  const file = path.join(repo, 'broken.contract.jsonc');
  await writeFile(file, '{\n  "title": "x",\n  "writeable": ["src/usage.py"]\n}\n');
  const window = await workbench.open(repo);
  await window.openFile('broken.contract.jsonc');
  await window.page.locator('.squiggly-error').first().waitFor();
  await window.page.getByText('Start session').first().waitFor();

  await window.command('Escrow: Check Contract');
  await window.page
    .getByText(/The contract has \d+ errors?/)
    .first()
    .waitFor();
  await window.page
    .locator('.markers-panel')
    .getByText(/writable/)
    .first()
    .waitFor();
  await window.screenshot('contract-errors-dark');

  await window.command('Escrow: Freeze Contract');
  await window
    .notification()
    .getByText(/writeable|instruction|valid/)
    .first()
    .waitFor();
});

test('a new contract is written from a few questions and can be frozen', async () => {
  const { workbench, repo } = await start();
  const window = await workbench.open(repo);
  await window.openFile('usage.py');
  await window.command('Escrow: New Contract');
  await window.answer('UTC everywhere');
  await window.answer('Read a text without a timezone as UTC.');
  // The open file is proposed and already chosen.
  await window.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: 'src/usage.py' }).first().waitFor();
  await window.page.keyboard.press('Enter');
  await window.answer('python3 -m unittest -v "tests.test_timestamp"');
  await window.page.getByText('"UTC everywhere"').first().waitFor();
  const text = await readFile(path.join(repo, 'utc-everywhere.contract.jsonc'), 'utf8');
  expect(text).toContain('"argv": ["python3", "-m", "unittest", "-v", "tests.test_timestamp"]');
  await window.command('Escrow: Freeze Contract');
  await window
    .notification()
    .getByText(/Frozen as [0-9a-f]{12}/)
    .waitFor();
});
