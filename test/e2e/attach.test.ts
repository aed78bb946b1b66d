import { afterEach, expect, test } from 'vitest';
import { turns, verified } from '../fixtures/journey.ts';
import { startJourney, startSession, theSession, type Journey } from './harness/journey.ts';

let journey: Journey | undefined;
afterEach(async () => {
  await journey?.dispose();
  journey = undefined;
});

test('an open file of the sandbox follows the attempt, read-only', async () => {
  journey = await startJourney();
  const beforeEdit = journey.gate('before-edit');
  const afterEdit = journey.gate('after-edit');
  await journey.script([
    turns.view,
    { ...turns.edit, holdUntilFile: beforeEdit.file },
    { ...turns.test, holdUntilFile: afterEdit.file },
    turns.finish,
  ]);
  const window = await journey.workbench.open(journey.repo);
  await startSession(window);
  await window.row('Sessions', /Attempt 1.*running/).waitFor();
  await window.expand(window.row('Sessions', /^Workspace/));
  await window.row('Sessions', /Workspace.*live/).waitFor();
  await window.row('Sessions', /usage\.py.*writable/).click();
  await window.page.getByText('datetime.fromisoformat').first().waitFor();
  expect(await window.page.getByText('moment.tzinfo').count()).toBe(0);

  await beforeEdit.release();
  await window.page.getByText('moment.tzinfo').first().waitFor();
  await window.screenshot('attach-live-dark');
  await window.page.keyboard.type('x');
  await window.page.getByText('It can only be read').first().waitFor();

  await afterEdit.release();
  await window.row('Sessions', /Verification.*passed/).waitFor();
  await window.row('Sessions', /Workspace.*as collected/).waitFor();
});

test('a second window observes, and may take over; the first one is told', async () => {
  journey = await startJourney();
  const gate = journey.gate('hold');
  await journey.script([turns.view, { ...turns.edit, holdUntilFile: gate.file }, turns.finish]);
  const first = await journey.workbench.open(journey.repo);
  await startSession(first);
  await first.row('Sessions', /Attempt 1.*running/).waitFor();
  await first.row('Sessions', /Control.*this window/).waitFor();

  const second = await journey.workbench.open(journey.repo);
  await second.openEscrow();
  await second.row('Sessions', /Attempt 1.*running/).waitFor();
  // It may look, but cancelling is the controller's: neither in the row nor by the palette.
  expect(await second.row('Sessions', /Control.*this window/).count()).toBe(0);
  await second.row('Sessions', /UTC for/).hover();
  expect(await second.pane('Sessions').locator('a[aria-label^="Cancel Attempt"]').count()).toBe(0);

  const kernel = await journey.observe();
  const before = await theSession(kernel, 'it runs', (s) => s.state === 'running');
  await second.row('Sessions', /UTC for/).hover();
  await second
    .row('Sessions', /UTC for/)
    .locator('a[aria-label^="Attach"]')
    .click();
  await second.pick('Take Over');
  await second.row('Sessions', /Control.*this window/).waitFor();
  await first.notification().getByText('This window observes').waitFor();
  const after = await theSession(
    kernel,
    'another controls',
    (s) => s.controller?.clientId !== before.controller?.clientId,
  );
  expect(after.controller?.connected).toBe(true);

  await gate.release();
  await theSession(kernel, 'the attempt went on', verified);
});
