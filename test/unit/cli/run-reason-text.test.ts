import { expect, it } from 'vitest';
import { checkReasonText, runReasonText } from '../../../src/cli/run-reason-text.ts';

it.each([
  ['utc: tests-failed', 'utc: tests failed'],
  ['utc: exit-3', 'utc: exit status 3'],
  ['utc: spawn-failed-ENOENT', 'utc: did not start (ENOENT)'],
  ['utc: declared-fail-but-passed', 'utc: passed, though the contract says that it fails'],
  ['utc: declared-pass-but-exit-1', 'utc: exit status 1, though the contract says that it passes'],
  ['files-changed: src/a.py', 'changed while the checks ran: src/a.py'],
  [
    'out-of-scope: src/a.py (does-not-parse)',
    'changed what the contract does not let change: src/a.py (does not parse)',
  ],
  ['files-unread', 'its files could not be read back'],
  ['oom_killed: the stream ended', 'the memory of the sandbox was not enough: the stream ended'],
  ['interrupted', 'the Kernel ended under it'],
  ['EngineUnavailable', 'refused (EngineUnavailable)'],
  ['sun-spots', 'sun spots'],
])('%s', (line, words) => {
  expect(runReasonText(line)).toBe(words);
});

it('a code that is called as a member of every object is shown as it is', () => {
  expect([checkReasonText('constructor'), runReasonText('toString')]).toEqual(['constructor', 'toString']);
});
