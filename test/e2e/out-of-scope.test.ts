// A candidate that left the symbols of its contract, in the window: what it says, and that nobody can accept it.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { RelPath } from '../../src/protocol/primitives.ts';
import { handOver } from '../fixtures/handed-over.ts';
import { startSession as startRehearsal, settled, turns } from '../fixtures/journey.ts';
import { endKernel } from '../fixtures/kernel.ts';
import { startJourney, theSession } from './harness/journey.ts';
import { pictures } from './harness/pictures.ts';

test('a candidate out of scope says what changed outside and where, and offers no acceptance', async () => {
  const journey = await startJourney();
  // One that changes nothing: a binding, and an attempt of the budget.
  await journey.script([turns.finish, turns.finish]);
  const kernel = await journey.prepare();
  const { contracts } = await kernel.call('contract/list', {});
  const [frozen] = contracts;
  if (frozen === undefined) throw new Error('no contract');
  await startRehearsal(kernel, frozen.digest, path.join(journey.repo, 'rehearsal.json'), { control: false });
  const like = await theSession(kernel, 'settled', settled);
  await endKernel(journey.home);
  const file = 'src/usage.py' as RelPath;
  const text = await readFile(path.join(journey.repo, file), 'utf8');
  const bytes = Buffer.from(text.replace('"%Y-%m-%d"', '"%d.%m.%Y"'));
  await handOver(journey.home, like, frozen.contract, { path: file, bytes });

  const window = await journey.workbench.open(journey.repo, { width: 1360, height: 860 });
  await window.openEscrow();
  const scope = window.row('Sessions', /Scope of src\/usage\.py.*outside of timestamp: line 24/);
  await scope.waitFor();
  await window.row('Sessions', /^Candidate/).click();
  await window.line('%d.%m.%Y').waitFor();
  await window.editorAction(/^Reject Candidate/).waitFor();
  expect(await window.editorAction(/^Accept Candidate/).isDisabled()).toBe(true);
  await pictures(window, 'out-of-scope', ['light', 'dark']);
  await window.editorAction(/^Show Evidence/).click();
  await window.line('Evidence of candidate').waitFor();
  await window.line('outside of timestamp').waitFor();
  await pictures(window, 'out-of-scope-evidence', ['dark']);
});
