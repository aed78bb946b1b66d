import { expect, it } from 'vitest';
import { ScopeReason, type FileScope } from '../../../src/protocol/contract.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { verificationLines } from '../../../src/cli/format.ts';
import { verificationView } from '../../fixtures/window-state.ts';

const scope: FileScope = {
  path: 'src/usage.py' as RelPath,
  symbols: [
    { name: 'timestamp', exists: true },
    { name: 'helper', exists: false },
  ],
  outcome: 'outside',
  reason: 'changed',
  line: 24,
  found: 'x = 2',
  expected: 'x = 1',
};

/** Lines of a run, without their styles. */
function lines(change: Partial<FileScope>): string[] {
  const reasons = ['out-of-scope: src/usage.py (changed)', 'utc: exit-1'];
  const run = { ...verificationView('failed'), reasons, scope: [{ ...scope, ...change }] };
  return verificationLines(run).map((line) =>
    line.map((part) => (typeof part === 'string' ? part : part.text)).join(''),
  );
}

it('a verification says of each file whether it stayed within its symbols, and where not, once', () => {
  expect(lines({})[1]).toBe(
    '    out of scope src/usage.py: outside of timestamp, new helper: changed, line 24: x = 2 (was: x = 1)',
  );
  expect(lines({}).slice(2)).toEqual(['    ! utc: exit-1']);
  expect(lines({ outcome: 'inside', reason: null })[1]).toBe(
    '    in scope src/usage.py: only timestamp, new helper changed',
  );
  expect(lines({ outcome: 'not-checked', reason: null })[1]).toMatch(/scope not known .*nothing is known/);
  for (const reason of ScopeReason.options) expect(lines({ reason })[1]).toContain(reason.replaceAll('-', ' '));
});
