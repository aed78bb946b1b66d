// On the packaged extension, installed: what people get.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { ownTarget, packageVsix } from '../../scripts/lib/package-vsix.ts';
import { settled, turns, verified } from '../fixtures/journey.ts';
import { startJourney, startSession, theSession } from './harness/journey.ts';

let vsix = '';
beforeAll(async () => {
  vsix = (await packageVsix(ownTarget())).file;
});

test('from a contract to an accepted diff, and back; an editor with unsaved changes is not written over', async () => {
  const journey = await startJourney({ vsix });
  const { workbench, repo } = journey;
  const usage = path.join(repo, 'src', 'usage.py');
  const before = await readFile(usage, 'utf8');
  const window = await workbench.open(repo);
  await startSession(window);

  await window.row('Sessions', /Verification.*passed/).waitFor();
  expect(await readFile(usage, 'utf8'), 'nothing reaches the tree before it is accepted').toBe(before);
  await window.statusBarItem().getByText('1 to review').waitFor();
  await window.row('Sessions', /synthetic/).waitFor();

  await window.openFile('usage.py');
  await window.page.keyboard.type('# unsaved ');
  await window.row('Sessions', /^Candidate/).click();
  await window.page.locator('.multiDiffEntry, .multi-diff-root-floating, .multiDiffEditor').first().waitFor();
  await window.line('moment.tzinfo').waitFor();
  // What there is to know, before the decision; the diff stays open beside it.
  await window.statusBarItem().getByText('checks passed').click();
  await window.line('All 5 checks passed on exactly these bytes').waitFor();
  await window.line('Synthetic: a script spoke, no model').waitFor();
  await window.tab(/^Candidate /).click();
  await window.editorAction(/^Accept Candidate/).click();
  await window.told(/unsaved/i);
  expect(await readFile(usage, 'utf8')).toBe(before);

  await window.tab(/^usage\.py/).click();
  await window.command('File: Revert File');
  await window.tab(/^Candidate /).click();
  await window.editorAction(/^Accept Candidate/).click();
  await window.row('Sessions', /^Accepted/).waitFor();
  await window.row('Sessions', /Integration.*integrated/).waitFor();
  expect(await readFile(usage, 'utf8')).toContain('moment.replace(tzinfo=timezone.utc)');

  const kernel = await journey.observe();
  const session = await theSession(kernel, 'the session is settled', settled);
  const [candidate] = session.candidates;
  expect(candidate?.decision).toMatchObject({ kind: 'accept', channel: 'window', reviewer: 'Ada Reviewer' });
  expect(session.attempts[0]?.settlement?.confirmed).toBe(true);
  expect(session.binding.synthetic).toBe(true);

  await window.editorAction(/^Undo Integration/).click();
  await window.row('Sessions', /Integration.*undone/).waitFor();
  expect(await readFile(usage, 'utf8')).toBe(before);
});

test('a rejected candidate leads to a correction; one that fails its checks cannot be accepted, and the window says why', async () => {
  const journey = await startJourney({ vsix });
  await journey.script([turns.view, turns.edit, turns.finish], [turns.view, turns.wrongEdit, turns.finish]);
  const [window, kernel] = await Promise.all([journey.workbench.open(journey.repo), journey.prepare()]);
  await startSession(window);
  await window.row('Sessions', /Verification.*passed/).waitFor();
  const first = (await theSession(kernel, 'one candidate', verified)).candidates[0]?.digest ?? '';

  await window.row('Sessions', /^Candidate/).click();
  await window.editorAction(/^Reject Candidate/).click();
  await window.type('Reject Candidate', 'Say why a text without a timezone is UTC.');
  await window.pick('Reject and Correct');

  const second = await theSession(kernel, 'a second candidate', (s) => s.candidates.length === 2 && verified(s));
  expect(second.candidates[0]?.decision).toMatchObject({ kind: 'reject', candidate: first });
  expect(second.attempts[1]?.feedback).toBe('Say why a text without a timezone is UTC.');

  // The first candidate is still on screen: it was decided about, and its buttons are gone.
  await window.row('Sessions', /^Attempt 2/).waitFor();
  await window.statusBarItem().getByText('rejected').waitFor();
  expect(await window.editorAction(/^(Accept|Reject) Candidate/).count()).toBe(0);

  await window.row('Sessions', /^Candidate.*failed/).click();
  await window.statusBarItem().getByText('cannot be accepted').waitFor();
  await window.editorAction(/^Reject Candidate/).waitFor();
  expect(await window.editorAction(/^Accept Candidate/).isDisabled()).toBe(true);
  await window.editorAction(/^Show Evidence/).click();
  await window.line('Cannot be accepted: failed').waitFor();
  await window.line('Baseline: failed, as declared').waitFor();
});
