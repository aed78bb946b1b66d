import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { readRunReason, runReasonLine, type RunReason } from '../../../src/protocol/run-reason.ts';

const word = fc.stringMatching(/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/);
const checkCode = fc.oneof(
  fc.constantFrom('tests-failed', 'not-run', 'exit-3', 'signal-SIGKILL', 'spawn-failed-ENOENT', 'passed'),
  word.filter((code) => !code.startsWith('declared-')),
);
const path = fc.string({ minLength: 1 });
const special = new Set(['files-changed', 'out-of-scope', 'scope-not-checked']);
const reasons: fc.Arbitrary<RunReason> = fc.oneof(
  fc.record({
    kind: fc.constant('check' as const),
    id: word.filter((id) => !special.has(id)),
    code: checkCode,
    declared: fc.constantFrom('pass' as const, 'fail' as const, null),
  }),
  fc.record({ kind: fc.constantFrom('files-changed' as const, 'scope-not-checked' as const), path }),
  fc.record({ kind: fc.constant('out-of-scope' as const), path, code: word }),
  fc.record({
    kind: fc.constant('run' as const),
    code: fc.constantFrom('files-unread', 'Cancelled'),
    detail: fc.constant(null),
  }),
  fc.record({
    kind: fc.constant('run' as const),
    code: fc.constantFrom('oom_killed', 'channel', 'engine'),
    detail: fc.tuple(word, fc.string()).map(([first, rest]) => `${first} ${rest}`),
  }),
);

it('what is recorded as a line is read as what it was', () => {
  fc.assert(
    fc.property(reasons, (reason) => {
      expect(readRunReason(runReasonLine(reason))).toEqual(reason);
    }),
  );
});

it('a line of any other form hides nothing', () => {
  fc.assert(
    fc.property(fc.string(), (line) => {
      const read = readRunReason(line);
      if (read.kind === 'run') expect(runReasonLine(read)).toBe(line);
    }),
  );
  expect(readRunReason('something new')).toEqual({ kind: 'run', code: 'something new', detail: null });
});
