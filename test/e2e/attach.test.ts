import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { root } from '../../scripts/lib/root.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { turns } from '../fixtures/journey.ts';
import { heldAttempt, startJourney, startSession, theSession } from './harness/journey.ts';

test('an open file of the sandbox follows the attempt, read-only', async () => {
  const journey = await startJourney();
  const beforeEdit = journey.gate('before-edit');
  const afterEdit = journey.gate('after-edit');
  await journey.script([
    turns.view,
    { ...turns.edit, holdUntilFile: beforeEdit.file },
    { ...turns.test, holdUntilFile: afterEdit.file },
    turns.finish,
  ]);
  const [window] = await Promise.all([journey.workbench.open(journey.repo), journey.prepare()]);
  await startSession(window);
  await window.row('Sessions', /Attempt 1.*running/).waitFor();
  await window.expand(window.row('Sessions', /^Workspace/));
  await window.row('Sessions', /Workspace.*live/).waitFor();
  await window.row('Sessions', /usage\.py.*writable/).click();
  await window.line('datetime.fromisoformat').waitFor();
  expect(await window.line('moment.tzinfo').count()).toBe(0);

  await beforeEdit.release();
  await window.line('moment.tzinfo').waitFor();
  await window.screenshot('attach-live-dark');
  await window.page.keyboard.type('x');
  await window.page.getByText('It can only be read').first().waitFor();

  await afterEdit.release();
  await window.row('Sessions', /Verification.*passed/).waitFor();
  await window.row('Sessions', /Workspace.*as collected/).waitFor();
});

test('two windows and a command line: one controls, each may take over and is heard of, everybody sees the same', async () => {
  const { window: first, workbench, repo, home, kernel } = await heldAttempt({ graceS: 30 });
  await first.row('Sessions', /Control.*this window/).waitFor();
  const before = await theSession(kernel, 'it runs', (s) => s.state === 'running');

  const second = await workbench.open(repo);
  await second.openEscrow();
  await second.row('Sessions', /Attempt 1.*running/).waitFor();
  // It may look, but cancelling is the controller's.
  expect(await second.row('Sessions', /Control.*this window/).count()).toBe(0);
  await second.row('Sessions', /UTC for/).hover();
  expect(await second.pane('Sessions').locator('a[aria-label^="Cancel Attempt"]').count()).toBe(0);
  await second
    .row('Sessions', /UTC for/)
    .locator('a[aria-label^="Attach"]')
    .click();
  await second.pick('Take Over');
  await second.row('Sessions', /Control.*this window/).waitFor();
  await first.told('This window observes');
  const after = await theSession(
    kernel,
    'another controls',
    (s) => s.controller?.clientId !== before.controller?.clientId,
  );
  expect(after.controller?.connected).toBe(true);
  expect(after.state, 'who controls it is nothing to the attempt').toBe('running');

  const cli = async (...args: string[]): Promise<unknown> => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [path.join(root, 'dist/cli.cjs'), ...args, '--json'],
      { env: { ...process.env, ESCROW_HOME: home } },
    );
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  };
  const status = (await cli('kernel', 'status')) as { clients: { kind: string }[] };
  expect(status.clients.filter((client) => client.kind === 'window')).toHaveLength(2);
  await expect(cli('session', 'cancel', before.id)).rejects.toThrow();
  const cancelled = (await cli('session', 'cancel', before.id, '--take-over')) as SessionView;
  expect(cancelled.attempts[0]?.settlement).toMatchObject({ trigger: 'cancel', confirmed: true });
  await second.told('This window observes');
  for (const window of [first, second]) await window.row('Sessions', /Settlement.*confirmed/).waitFor();
});
