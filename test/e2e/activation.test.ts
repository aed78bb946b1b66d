import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import { startJourney } from './harness/journey.ts';
import type { WorkbenchWindow } from './harness/window.ts';

const folders: string[] = [];
afterEach(async () => {
  await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true, force: true })));
});

/** What the Sessions view says where it has no rows. */
async function welcome(window: WorkbenchWindow, text: string): Promise<void> {
  await window.pane('Sessions').getByText(text).waitFor();
}

test('nothing starts before somebody looks; then a contract is written, checked, completed and frozen', async () => {
  const { workbench, repo, home } = await startJourney();
  await writeFile(path.join(repo, 'broken.contract.jsonc'), '{\n  "title": "x",\n  "writeable": ["src/usage.py"]\n}\n');
  const window = await workbench.open(repo);
  await window.openFile('usage.py');
  expect(await readEndpoint(home)).toBeUndefined();
  expect(await window.statusBarItem().count()).toBe(0);

  // The open file is proposed and already chosen.
  await window.command('Escrow: New Contract');
  await window.answer('New Contract (1/4)', 'UTC everywhere');
  await window.answer('New Contract (2/4)', 'Read a text without a timezone as UTC.');
  await window.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: 'src/usage.py' }).first().waitFor();
  await window.page.keyboard.press('Enter');
  await window.answer('New Contract (4/4)', 'python3 -m unittest -v "tests.test_timestamp"');
  await window.line('"UTC everywhere"').waitFor();
  const text = await readFile(path.join(repo, 'utc-everywhere.contract.jsonc'), 'utf8');
  expect(text).toContain('"argv": ["python3", "-m", "unittest", "-v", "tests.test_timestamp"]');
  await window.command('Escrow: Freeze Contract');
  await window.told(/Frozen as [0-9a-f]{12}/);

  await window.openFile('broken.contract.jsonc');
  await window.page.locator('.squiggly-error').first().waitFor();
  await window.codeLens('Start session').waitFor();
  await window.command('Escrow: Check Contract');
  await window.page
    .locator('.markers-panel')
    .getByText(/writable/)
    .first()
    .waitFor();
  await window.screenshot('contract-errors-dark');
  await window.command('Escrow: Freeze Contract');
  await window.told(/writeable|instruction|valid/);
});

test('a window without a folder says what to open, and a folder without git what a contract needs', async () => {
  const { workbench, home } = await startJourney();
  const empty = await workbench.open(null);
  await empty.openEscrow();
  await welcome(empty, 'Open the folder of a git repository');
  await empty.screenshot('welcome-no-folder-dark');
  expect(await readEndpoint(home)).toBeUndefined();

  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-plain-'));
  folders.push(folder);
  const plain = await workbench.open(folder);
  await plain.openEscrow();
  await welcome(plain, 'not in a git repository');
  await plain.screenshot('welcome-no-git-dark');
});

test('a folder that is not trusted starts no Kernel and says so', async () => {
  const { workbench, repo, home } = await startJourney({
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
