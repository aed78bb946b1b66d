// On the packaged extension, installed: what people get.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { ownTarget, packageVsix } from '../../scripts/lib/package-vsix.ts';
import { settled, verified } from '../fixtures/journey.ts';
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
  await window.row('Sessions', /^Candidate /).click();
  await window.page.locator('.multiDiffEntry, .multi-diff-root-floating, .multiDiffEditor').first().waitFor();
  await window.page.getByText('moment.tzinfo').first().waitFor();
  await window.editorAction(/^Accept Candidate/).click();
  await window
    .notification()
    .getByText(/unsaved/i)
    .waitFor();
  expect(await readFile(usage, 'utf8')).toBe(before);

  await window.tab(/^usage\.py/).click();
  await window.command('File: Revert File');
  await window.tab(/^Candidate /).click();
  await window.editorAction(/^Integrate/).click();
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

test('a rejected candidate leads to a correction, and the buttons belong to the newest one only', async () => {
  const journey = await startJourney({ vsix });
  const [window, kernel] = await Promise.all([journey.workbench.open(journey.repo), journey.prepare()]);
  await startSession(window);
  await window.row('Sessions', /Verification.*passed/).waitFor();
  const first = (await theSession(kernel, 'one candidate', verified)).candidates[0]?.digest ?? '';

  await window.row('Sessions', /^Candidate /).click();
  await window.editorAction(/^Reject Candidate/).click();
  await window.answer('Say why a text without a timezone is UTC.');
  await window.pick('Reject and Correct');

  const second = await theSession(kernel, 'a second candidate', (s) => s.candidates.length === 2 && verified(s));
  expect(second.candidates[0]?.decision).toMatchObject({ kind: 'reject', candidate: first });
  expect(second.attempts[1]?.feedback).toBe('Say why a text without a timezone is UTC.');
  expect(second.candidates[1]?.digest).not.toBe(first);

  // The first candidate is still on screen: it was decided, and another one is newer.
  await window.row('Sessions', /^Attempt 2/).waitFor();
  expect(await window.editorAction(/^(Accept|Reject) Candidate/).count()).toBe(0);
});
