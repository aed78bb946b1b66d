import { describe, expect, test } from 'vitest';
import type { CheckResult, ContractView } from '../../../src/protocol/contract.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import type { CandidateView, SessionView, VerificationView } from '../../../src/protocol/views.ts';
import type { UnseenFile } from '../../../src/extension/window-state.ts';
import { evidenceText } from '../../../src/extension/review/evidence-text.ts';
import { binding, ids } from '../../fixtures/session.ts';
import { attemptView, candidateView, sessionView, verificationView, words } from '../../fixtures/window-state.ts';

function check(change: Partial<CheckResult> = {}): CheckResult {
  return {
    id: 'utc',
    kind: 'acceptance',
    argv: ['python3', '-m', 'unittest'],
    end: { kind: 'exit', code: 0 },
    durationMs: 63,
    verdict: 'pass',
    reason: null,
    strength: 'summary',
    summary: { runner: 'unittest', total: 4, passed: 4, failed: 0, skipped: 0, passing: null },
    output: null,
    outputCut: false,
    tail: '',
    ...change,
  };
}

const failedBefore = check({
  verdict: 'fail',
  reason: 'tests-failed',
  end: { kind: 'exit', code: 1 },
  summary: { runner: 'unittest', total: 4, passed: 1, failed: 3, skipped: 0, passing: null },
});

function run(checks: readonly CheckResult[], change: Partial<VerificationView> = {}): VerificationView {
  return { ...verificationView('passed'), checks: [...checks], ...change };
}

/** A contract as far as the evidence reads it: what each check is declared to do, and what it did. */
function contract(before: readonly CheckResult[]): ContractView {
  return {
    contract: {
      writable: [{ path: 'src/usage.py', symbols: null, exists: true }],
      checks: [
        { id: 'utc', kind: 'acceptance', baseline: 'fail' },
        { id: 'more', kind: 'supplemental', baseline: null },
      ],
    },
    baseline: { checks: before },
  } as unknown as ContractView;
}

function text(
  candidate: CandidateView,
  session: Partial<SessionView> = {},
  before: readonly CheckResult[] = [failedBefore],
  unseen: readonly UnseenFile[] | undefined = [],
) {
  return evidenceText(sessionView({ candidates: [candidate], ...session }), candidate, contract(before), words, unseen);
}

describe('the evidence of a candidate, as one text', () => {
  test('a candidate out of scope says so first, then where, and what the contract lets change', () => {
    const scope = {
      path: 'src/usage.py' as RelPath,
      symbols: [{ name: 'timestamp', exists: true }],
      outcome: 'outside' as const,
      reason: 'added' as const,
      line: 9,
      found: 'import re',
      expected: null,
      grammar: {
        package: '@vscode/tree-sitter-wasm',
        version: '0.3.1',
        language: 'python',
        grammar: sha256('grammar'),
        runtime: sha256('runtime'),
      },
    };
    const spoiled = run([check()], {
      result: 'failed',
      reasons: ['out-of-scope: src/usage.py (added)'],
      scope: [scope],
    });
    const shown = text(candidateView({ verdict: 'failed', verifications: [spoiled] }));
    expect(shown).toContain('✗ Cannot be accepted: it changes what the contract does not let it change.');
    expect(shown).toContain('✗ Scope of src/usage.py: outside of timestamp: line 9 is new, “import re”');
    expect(shown).toMatch(/Compared by: @vscode\/tree-sitter-wasm 0\.3\.1, python [0-9a-f]{12}\n/);
    expect(shown).not.toContain('out of scope:');
    const named = { path: 'src/usage.py', symbols: scope.symbols, exists: true };
    const limited = { ...contract([]), contract: { ...contract([]).contract, writable: [named] } } as ContractView;
    const candidate = candidateView({ verdict: 'passed', verifications: [run([check()])] });
    const evidence = evidenceText(sessionView({ candidates: [candidate] }), candidate, limited, words, []);
    expect(evidence).toContain('The contract lets change: src/usage.py (only timestamp)');
  });

  test('each check says what it is, what it ran, what it did before and what it does now', () => {
    const more = check({ id: 'more', kind: 'supplemental' });
    const shown = text(candidateView({ verifications: [run([check(), more])] }));
    expect(shown).toContain('✓ All 2 checks passed on exactly these bytes, in a fresh sandbox.');
    expect(shown).toMatch(
      /✓ utc {2}\(acceptance\)\n.*Command: python3 -m unittest\n.*Baseline: failed, as declared · tests failed · 1 of 4 tests passed · exit code 1\n.*Candidate: 4 of 4 tests passed · exit code 0 · 63 ms/,
    );
    expect(shown).toMatch(/M src\/usage\.py .*\n {2}The contract lets change: src\/usage\.py/);
    expect(shown).toMatch(/✓ more {2}\(supplemental: the agent never saw it\)\n.*\n.*Baseline: not run/);
  });

  test('who spoke stands at the top', () => {
    expect(text(candidateView())).toContain('! Synthetic: a script spoke, no model.');
    const real = { ...binding, synthetic: false, qualification: 'none' as const };
    expect(text(candidateView(), { binding: real })).toContain('! qualification: none');
  });

  test.each(['failed', 'incomplete', 'flaky', 'unverified'] as const)(
    'a candidate that is %s cannot be accepted, it says',
    (verdict) => {
      const shown = text(
        candidateView({ verdict, verifications: verdict === 'unverified' ? [] : [run([failedBefore])] }),
      );
      expect(shown).toMatch(/✗ Cannot be accepted: /);
      expect(shown).not.toContain('checks passed on exactly');
    },
  );

  test('one that a newer one has followed says so', () => {
    const old = candidateView();
    const newer = candidateView({ digest: '1'.repeat(64) as CandidateView['digest'] });
    expect(evidenceText(sessionView({ candidates: [old, newer] }), old, undefined, words, [])).toContain(
      '! A newer candidate exists',
    );
  });

  test('what was not observed is never left out', () => {
    const weak = check({ strength: 'exit-code', summary: null });
    const attempt = attemptView({
      collection: { state: 'partial', reason: 'x' },
      limits: [{ name: 'pids', wanted: '64', inside: null, outside: null, inForce: false }],
      settlement: {
        trigger: 'finish',
        requestedAt: 20,
        settledAt: 30,
        steps: [{ step: 'stop', at: 25, observed: false, facts: {} }],
        confirmed: false,
        unknown: ['engine_idle'],
        supervised: null,
      },
    });
    const shown = text(candidateView({ verifications: [run([weak])] }), { attempts: [attempt] });
    const unknown = shown.slice(shown.indexOf('Not observed'), shown.indexOf('\n\nAttempt'));
    expect(unknown).toContain('utc: what it tested. Nothing but its exit code is known.');
    expect(unknown).toContain('Checks that the agent never saw: the contract has none.');
    expect(unknown).toContain('nothing that runs in its own process is proof against that');
    expect(unknown).toContain('All bytes');
    expect(unknown).toContain('The end of the sandbox');
    expect(unknown).toContain('Container stopped');
    expect(unknown).toContain('engine idle');
    expect(unknown).toContain('Not in force: Processes.');
  });

  test('a baseline that this window does not have is not claimed', () => {
    const candidate = candidateView({ verifications: [run([check()])] });
    const shown = evidenceText(sessionView({ candidates: [candidate] }), candidate, undefined, words, []);
    expect(shown).toContain('Baseline: not known to this window');
  });

  test('hostile names stay in their line, and nothing is hidden', () => {
    const shown = text(candidateView({ verifications: [run([check({ argv: ['x\n✓ utc\u202e'] })])] }), {
      title: 'a\u200b\nb',
      attempts: [attemptView({ limits: [] })],
      candidates: [candidateView({ attempt: ids.attempt })],
    });
    expect(shown).not.toMatch(/[\u200b\u202e]/);
    expect(shown).not.toMatch(/^✓ utc/m);
  });
});

test('what the diff hides is said; what nobody looked at is not said to be nothing', () => {
  const file = {
    path: 'src/a\u202e.py',
    unseen: [{ kind: 'white-space', lines: 2 }, { kind: 'byte-order-mark' }],
  } as const;
  const said = text(candidateView(), {}, [], [file]);
  expect(said).toContain('Not shown by the diff\n  ✗ src/a⟨U+202E⟩.py: 2 lines differ only in white space');
  expect(said).toContain('its byte order mark comes or goes');
  expect(evidenceText(sessionView(), candidateView(), undefined, words, undefined)).toContain('Not looked at');
  expect(text(candidateView())).not.toContain('Not shown by the diff');
});
