// Deciding about a candidate: what a stray key can't do, what the keyboard alone can, what hostile bytes look like.
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { prepareContract, startSession as startOver, turns, verified } from '../fixtures/journey.ts';
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
  await window.boxHasFocus('Reject Candidate');
  await page.keyboard.press('Escape');
  await box.waitFor({ state: 'hidden' });
  expect((await theSession(kernel, 'verified', verified)).candidates[0]?.decision).toBeNull();
  await window.editorAction(/^Reject Candidate/).click();
  const words = box.locator('.quick-input-box input').first();
  await until('the words are there', 60_000, async () =>
    (await words.inputValue()) === 'A text without a timezone' ? true : undefined,
  );
  await window.boxHasFocus('Reject Candidate');
  await page.keyboard.press('End');
  await page.keyboard.type(' is UTC.');
  await page.keyboard.press('ArrowDown');
  await box.locator('.monaco-list-row.focused', { hasText: 'Reject and Correct' }).waitFor();
  await page.keyboard.press('Enter');

  const after = await theSession(kernel, 'a second candidate', (s) => s.candidates.length === 2 && verified(s));
  expect(after.candidates[0]?.decision).toMatchObject({ kind: 'reject', comment: 'A text without a timezone is UTC.' });
  expect(after.attempts[1]?.feedback).toBe('A text without a timezone is UTC.');
});

const editor = (args: Readonly<Record<string, unknown>>) => ({
  toolCalls: [{ name: 'file_editor', arguments: args }],
});
const create = (file: string, text: string) =>
  editor({ command: 'create', path: `/workspace/${file}`, file_text: text });

test('a hostile candidate: what its diff hides is said, asked about before it is accepted, and can be shown; nothing of it is interpreted', async () => {
  // A longer line would not fit the context of an attempt.
  const journey = await startJourney({ settings: { 'editor.stopRenderingLineAfter': 2000 } });
  const icon = 'notes/<b>&amp; command:quit.md';
  const steps = 'notes/steps.txt';
  const files = ['src/usage.py', icon, 'notes/long.txt', 'notes/blob.bin', steps];
  await mkdir(path.join(journey.repo, 'notes'));
  await writeFile(path.join(journey.repo, steps), 'check:\n    ask twice\n    erase\n');
  await writeFile(
    path.join(journey.repo, 'utc-timestamp.contract.jsonc'),
    JSON.stringify({
      title: 'Hostile $(trash) [run](command:workbench.action.quit)',
      instruction: 'Interpret timezone-free timestamps as UTC.',
      writable: files,
      acceptance: ['tests.test_timestamp', 'tests.test_usage'].map((module, n) => ({
        id: `c${n}`,
        argv: ['python3', '-m', 'unittest', '-v', module],
        baseline: n === 0 ? 'fail' : 'pass',
        env: { TZ: 'EET-2' },
      })),
    }),
  );
  await journey.script([
    turns.view,
    turns.edit,
    // White space alone. VS Code shows it in some languages (Python, YAML) and hides it in all others.
    {
      toolCalls: [
        ...editor({ command: 'view', path: `/workspace/${steps}` }).toolCalls,
        ...editor({
          command: 'str_replace',
          path: `/workspace/${steps}`,
          old_str: '    erase',
          new_str: 'erase',
        }).toolCalls,
      ],
    },
    create(
      icon,
      '[run](command:workbench.action.quit) <img src=x onerror=alert(1)>\n\u001b[31mred\u001b[0m a\u202eb\u200bc\n',
    ),
    create('notes/long.txt', `x = 1 #${' '.repeat(2100)}import os\n`),
    create('notes/blob.bin', 'MZ\u0000\u0001\n'),
    { content: 'Done [run](command:workbench.action.quit) \u001b[31m\u202e$(trash)' },
    turns.finish,
  ]);
  const [window, kernel] = await Promise.all([journey.workbench.open(journey.repo, wide), journey.prepare()]);
  await startSession(window);
  const session = await theSession(kernel, 'verified', verified);
  expect(session.candidates[0]?.files.map((file) => file.path).toSorted()).toEqual(files.toSorted());
  await window.row('Sessions', /Verification.*passed/).waitFor();
  // Names as they are, and no icon or link of them.
  await window.row('Sessions', 'Hostile $(trash) [run](command:workbench.action.quit)').waitFor();
  await window.row('Sessions', '<b>&amp; command:quit.md').waitFor();
  expect(await window.pane('Sessions').locator('.codicon-trash').count()).toBe(0);

  await window.row('Sessions', /^Candidate/).click();
  await window.line('moment.tzinfo').waitFor();
  await window.statusBarItem().getByText('the diff may hide changes').waitFor();
  await pictures(window, 'hostile');
  await window.statusBarItem().click();
  await window.line('Not shown by the diff').waitFor();
  await window.line('notes/steps.txt: 1 line differs only in white space').waitFor();
  await window.line('notes/long.txt: 1 changed line is longer than the 2000 characters').waitFor();
  await window.line('notes/blob.bin: it is binary').waitFor();
  await window.line('U+200B').waitFor();
  await pictures(window, 'hostile-evidence');

  // A notification leaves the screen after some seconds and is kept behind the bell.
  await window.page.locator('[id="status.notifications"]').click();
  const kept = window.page.locator('.notifications-center');
  await kept.getByText('This candidate changes white space that the diff may hide').first().waitFor();
  await kept.getByRole('button', { name: 'Show White Space Changes', exact: true }).first().click();
  await window.page
    .locator('.view-line', { hasText: 'notes/steps.txt: 1 line differs' })
    .waitFor({ state: 'detached' });
  await window.row('Sessions', steps).click();
  await window.line('ask twice').waitFor();
  await window.page.locator('.line-insert').first().waitFor();
  await window.screenshot('hostile-shown-dark');
  // What a control or a bidirectional character is, is readable; nothing of the text is a link to a command.
  await window.row('Sessions', '<b>&amp; command:quit.md').click();
  await window.page.locator('.view-lines', { hasText: 'U+202E' }).first().waitFor();
  await window.page.locator('.view-lines', { hasText: '␛[31mred' }).first().waitFor();
  expect(await window.page.locator('.detected-link, .detected-link-active').count()).toBe(0);
  await window.screenshot('hostile-file-dark');

  // What is still hidden is asked about before it is accepted; a stray Enter reads on.
  await window.row('Sessions', /^Candidate/).click();
  await window.line('moment.tzinfo').waitFor();
  await window.editorAction(/^Accept Candidate/).click();
  await window.boxHasFocus('Accept Candidate');
  const asked = window.box('Accept Candidate');
  await asked.getByText('it is binary: the editor shows nothing of it').waitFor();
  expect(await asked.getByText('differs only in white space').count()).toBe(0);
  await pictures(window, 'hostile-accept');
  await window.page.keyboard.press('Enter');
  await asked.waitFor({ state: 'hidden' });
  await window.line('Not shown by the diff').waitFor();
  expect((await theSession(kernel, 'verified', verified)).candidates[0]?.decision).toBeNull();
  await window.tab(/^Candidate /).click();
  await window.editorAction(/^Accept Candidate/).click();
  await window.boxHasFocus('Accept Candidate');
  await window.pick('Accept All of It');
  await theSession(kernel, 'accepted', (view) => view.candidates[0]?.decision?.kind === 'accept');
});

test('with the keyboard alone: attach, read the candidate and its evidence, accept it; every button has a name', async () => {
  const journey = await startJourney();
  const kernel = await journey.start();
  const digest = await prepareContract(kernel, path.join(journey.repo, 'utc-timestamp.contract.jsonc'));
  await startOver(kernel, digest, path.join(journey.repo, 'rehearsal.json'), { control: false });
  await theSession(kernel, 'verified', verified);
  const window = await journey.workbench.open(journey.repo, wide);
  const { keyboard } = window.page;
  /** Runs a command of the palette without the mouse. */
  const command = async (title: string): Promise<void> => {
    const row = window.page.locator('.quick-input-list .monaco-list-row.focused', { hasText: title }).first();
    await until(`the command ${title} is chosen`, 60_000, async () => {
      await keyboard.press('F1');
      await keyboard.type(title);
      const there = await row.waitFor({ timeout: 5000 }).then(
        () => true as const,
        () => undefined,
      );
      if (there === undefined) await keyboard.press('Escape');
      return there;
    });
    await keyboard.press('Enter');
  };
  await command('Escrow: Focus on Sessions View');
  await window.row('Sessions', /Control.*nobody/).waitFor();
  await command('Escrow: Attach to Session');
  await window.boxHasFocus('Attach to');
  await keyboard.press('ArrowDown');
  await keyboard.press('Enter');
  await window.row('Sessions', /Control.*this window/).waitFor();

  // Down the rows, read as they would be spoken.
  await command('Escrow: Focus on Sessions View');
  const focused = window.pane('Sessions').locator('.monaco-list-row.focused');
  const spoken = (): Promise<string | null> =>
    focused.evaluateAll((rows) => rows[0]?.getAttribute('aria-label') ?? null);
  let row = await spoken();
  await until('the candidate has the focus', 60_000, async () => {
    await keyboard.press('ArrowDown');
    const next = await until('another row is spoken', 3000, async () => {
      const now = await spoken();
      return now === null || now === row ? undefined : now;
    }).catch(() => null);
    // The tree was being drawn anew, or ends here: from its first row again.
    if (next === null) await keyboard.press('Home');
    row = next;
    return next?.startsWith('Candidate, passed') === true ? true : undefined;
  });
  await keyboard.press('Enter');
  await window.line('moment.tzinfo').waitFor();
  await window.editorAction(/^Accept Candidate/).waitFor();
  await command('Escrow: Show Evidence of Candidate');
  await window.line('All 5 checks passed').waitFor();
  const nameless = window.page.locator('.pane .action-label, .editor-actions .action-label, .statusbar-item-label');
  const names = await nameless.evaluateAll((all) =>
    all
      .filter((one) => one.checkVisibility())
      .map((one) => one.getAttribute('aria-label') ?? one.textContent)
      .map((name) => name.trim()),
  );
  expect(names.length).toBeGreaterThan(5);
  expect(names).not.toContain('');

  await command('Escrow: Open Candidate');
  await window.editorAction(/^Accept Candidate/).waitFor();
  await command('Escrow: Accept Candidate');
  const decided = await theSession(kernel, 'accepted', (view) => view.candidates[0]?.decision?.kind === 'accept');
  expect(decided.candidates[0]?.decision?.reviewer).toBe('Ada Reviewer');
  await window.row('Sessions', /Integration.*integrated/).waitFor();
});
