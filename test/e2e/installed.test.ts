import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { ownTarget, packageVsix } from '../../scripts/lib/package-vsix.ts';
import { startJourney, startSession, type Journey } from './harness/journey.ts';

let vsix = '';
let journey: Journey | undefined;
beforeAll(async () => {
  vsix = (await packageVsix(ownTarget())).file;
});
afterEach(async () => {
  await journey?.dispose();
  journey = undefined;
});

test('the packaged extension, installed: from a contract to an accepted diff', async () => {
  journey = await startJourney({ vsix });
  const window = await journey.workbench.open(journey.repo);
  await startSession(window);
  await window.row('Sessions', /Verification.*passed/).waitFor();
  await window.row('Sessions', /^Candidate /).click();
  await window.editorAction(/^Accept Candidate/).click();
  await window.row('Sessions', /Integration.*integrated/).waitFor();
  const usage = await readFile(path.join(journey.repo, 'src', 'usage.py'), 'utf8');
  expect(usage).toContain('tzinfo=timezone.utc');
});
