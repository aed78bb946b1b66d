// Deciding about a candidate: what a stray key can't do, what the keyboard alone can, what hostile bytes look like.
import { expect, test } from 'vitest';
import { turns, verified } from '../fixtures/journey.ts';
import { startJourney, startSession, theSession } from './harness/journey.ts';
import { pictures } from './harness/pictures.ts';
import { until } from './harness/until.ts';

const wide = { width: 1100, height: 760 };
const narrow = { width: 560, height: 620 };

test('a rejection needs words and a choice: no key that was meant for another box decides, and what was written is not lost', async () => {
  const journey = await startJourney();
  await journey.script([turns.view, turns.edit, turns.finish], [turns.view, turns.wrongEdit, turns.finish]);
  const [window, kernel] = await Promise.all([journey.workbench.open(journey.repo, wide), journey.prepare()]);
  const { page } = window;
  page.setDefaultTimeout(20_000);
  await startSession(window);
  await window.row('Sessions', /Verification.*passed/).waitFor();
  await window.row('Sessions', /^Candidate/).click();
  await window.line('moment.tzinfo').waitFor();
  await window.editorAction(/^Reject Candidate/).waitFor();

  // A key that is held down in the palette goes on into whatever it opens.
  await page.keyboard.press('F1');
  await window.type('', '>Escrow: Reject Candidate');
  await page.locator('.quick-input-list .monaco-list-row', { hasText: 'Escrow: Reject Candidate' }).first().waitFor();
  const box = window.box('Reject Candidate');
  const refusal = box.getByText('Write above what is wrong, then choose.');
  await until('the box has refused an Enter', 60_000, async () => {
    await page.keyboard.down('Enter');
    return (await refusal.isVisible()) ? true : undefined;
  });
  await page.keyboard.up('Enter');
  const untouched = await theSession(kernel, 'verified', verified);
  expect(untouched.candidates[0]?.decision).toBeNull();
  await pictures(window, 'reject-empty');

  await box.locator('.monaco-list-row', { hasText: 'Reject and Correct' }).click();
  await refusal.waitFor();
  await window.type('Reject Candidate', 'A text without a timezone');
  await refusal.waitFor({ state: 'hidden' });
  await pictures(window, 'reject');
  await page.setViewportSize(narrow);
  await window.screenshot('reject-narrow');
  await page.setViewportSize(wide);

  // Left and taken up again: the words are there.
  await page.keyboard.press('Escape');
  await box.waitFor({ state: 'hidden' });
  expect((await theSession(kernel, 'verified', verified)).candidates[0]?.decision).toBeNull();
  await window.editorAction(/^Reject Candidate/).click();
  await until('the words are there', 10_000, async () =>
    (await box.locator('.quick-input-box input').inputValue()) === 'A text without a timezone' ? true : undefined,
  );
  await page.keyboard.press('End');
  await page.keyboard.type(' is UTC.');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');

  const after = await theSession(kernel, 'a second candidate', (s) => s.candidates.length === 2 && verified(s));
  expect(after.candidates[0]?.decision).toMatchObject({ kind: 'reject', comment: 'A text without a timezone is UTC.' });
  expect(after.attempts[1]?.feedback).toBe('A text without a timezone is UTC.');
});
