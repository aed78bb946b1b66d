import { expect, it } from 'vitest';
import { ScopeReason, type FileScope, type ScopeGrammar } from '../../../src/protocol/contract.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
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
  expect(lines({}).slice(2)).toEqual(['    ! utc: exit status 1']);
  expect(lines({ outcome: 'inside', reason: null })[1]).toBe(
    '    in scope src/usage.py: only timestamp, new helper changed',
  );
  expect(lines({ outcome: 'not-checked', reason: null })[1]).toMatch(/scope not known .*nothing is known/);
  const grammar: ScopeGrammar = {
    package: '@vscode/tree-sitter-wasm',
    version: '0.3.1',
    language: 'python',
    grammar: sha256('grammar'),
    runtime: sha256('runtime'),
  };
  expect(lines({ outcome: 'inside', reason: null, grammar })[1]).toMatch(
    / changed · compared by @vscode\/tree-sitter-wasm 0\.3\.1, python [0-9a-f]{12}$/,
  );
  for (const reason of ScopeReason.options) expect(lines({ reason })[1]).toContain(reason.replaceAll('-', ' '));
});
