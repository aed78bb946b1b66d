import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, test } from 'vitest';
import { Workbench } from './harness/workbench.ts';

const owned: { dispose(): Promise<void> }[] = [];
afterEach(async () => {
  for (const thing of owned.splice(0).toReversed()) await thing.dispose();
});

async function folder(prefix: string): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), prefix));
  owned.push({ dispose: () => rm(made, { recursive: true, force: true }) });
  return made;
}

test('a window without a folder says what to open', async () => {
  const workbench = await Workbench.start({ env: { ESCROW_HOME: await folder('escrow-home-') } });
  owned.push(workbench);
  const window = await workbench.open(null);
  await window.openEscrow();
  await window.pane('Sessions').getByText('Open the folder of a git repository').waitFor();
  await window.screenshot('welcome-no-folder');
});
