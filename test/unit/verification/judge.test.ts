import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { CheckResult, CommandEnd, FileScope, FrozenCheck, TestSummary } from '../../../src/protocol/contract.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { judgeBaseline, judgeCheck, judgeVerification } from '../../../src/server/verification/judge.ts';
import type { RunFacts } from '../../../src/server/verification/judge.ts';

const golden = (name: string): Buffer =>
  readFileSync(path.resolve(import.meta.dirname, '../../fixtures/golden/test-runners', `${name}.txt`));
const unittest = ['python3', '-m', 'unittest', '-v'];
const ok: CommandEnd = { kind: 'exit', code: 0 };
const exit = (code: number): CommandEnd => ({ kind: 'exit', code });
const judge = (
  end: CommandEnd,
  output: Buffer | string = golden('unittest-passed'),
  baseline: TestSummary | null = null,
  argv = unittest,
  outputCut = false,
) => judgeCheck({ argv, end, output: Buffer.from(output), outputCut }, baseline);

describe('the judgement of one check', () => {
  it('passes on exit 0 with a closing summary', () => {
    expect(judge(ok)).toMatchObject({ verdict: 'pass', reason: null, strength: 'summary', summary: { total: 7 } });
  });

  it.each<[CommandEnd, string]>([
    [exit(1), 'exit-1'],
    [exit(126), 'not-executable'],
    [exit(127), 'not-found'],
    [exit(137), 'killed'],
    [{ kind: 'signal', signal: 'SIGSEGV' }, 'signal-SIGSEGV'],
    [{ kind: 'timeout', afterMs: 1 }, 'timeout'],
    [{ kind: 'overflow', limitBytes: 1 }, 'overflow'],
    [{ kind: 'oom' }, 'oom'],
    [{ kind: 'cancelled' }, 'cancelled'],
    [{ kind: 'spawn-failed', errno: 'ENOENT' }, 'spawn-failed-ENOENT'],
    [{ kind: 'unknown', reason: 'x' }, 'unknown-end'],
  ])('fails on %j, however good the output looks', (end, reason) => {
    expect(judge(end)).toMatchObject({ verdict: 'fail', reason });
  });

  it('fails on exit 0 without a summary: a candidate that leaves at once has run nothing', () => {
    expect(judge(ok, '')).toMatchObject({ verdict: 'fail', reason: 'no-summary', strength: 'summary' });
  });

  it('fails on exit 0 with a summary that names failures', () => {
    expect(judge(ok, golden('unittest-failed'))).toMatchObject({ verdict: 'fail', reason: 'tests-failed' });
  });

  it('fails when nothing ran, and when the output was cut', () => {
    const none = `${'-'.repeat(70)}\nRan 0 tests in 0.000s\n\nOK\n`;
    expect(judge(ok, none)).toMatchObject({ reason: 'no-tests' });
    expect(judge(ok, golden('unittest-passed'), null, unittest, true)).toMatchObject({ reason: 'output-cut' });
    expect(judge(ok, 'anything', null, ['make'], true)).toMatchObject({ reason: 'output-cut' });
  });

  it('knows only the exit status of a command that is no known runner, and says so', () => {
    expect(judge(ok, '', null, ['make', 'test'])).toMatchObject({
      verdict: 'pass',
      strength: 'exit-code',
      summary: null,
    });
  });

  const before: TestSummary = { runner: 'unittest', total: 7, passed: 7, failed: 0, skipped: 0, passing: null };
  it.each<[string, TestSummary, string | null]>([
    ['as many tests', before, null],
    ['fewer tests before', { ...before, total: 3, passed: 1, failed: 2 }, null],
    ['more tests before', { ...before, total: 8 }, 'fewer-tests'],
    ['the same names before', { ...before, passing: ['test_span (tests.test_usage.Usage.test_span)'] }, null],
    [
      'a name before that is gone',
      { ...before, passing: ['test_gone (tests.test_usage.Usage.test_gone)'] },
      'baseline-tests-missing',
    ],
  ])('compares with the baseline: %s', (_, baseline, reason) => {
    expect(judge(ok, golden('unittest-passed'), baseline).reason).toBe(reason);
  });

  it('does not take a test that is skipped now for one that ran', () => {
    const text = `${'-'.repeat(70)}\nRan 7 tests in 0.001s\n\nOK (skipped=5)\n`;
    expect(judge(ok, text, { ...before, passed: 2, failed: 5 }).reason).toBe('fewer-tests');
  });

  it('fails when names were known and cannot be read any more', () => {
    const text = `${'-'.repeat(70)}\nRan 7 tests in 0.001s\n\nOK\n`;
    expect(judge(ok, text, { ...before, passing: ['a (b)'] }).reason).toBe('baseline-tests-missing');
  });
});

const declared = (id: string, baseline: 'fail' | 'pass' | null): FrozenCheck => ({
  id,
  kind: baseline === null ? 'supplemental' : 'acceptance',
  argv: unittest,
  baseline,
  timeoutS: 1,
  showKiB: 1,
  captureKiB: 1,
  env: {},
});
function result(id: string, end: CommandEnd, output: Buffer | string = ''): CheckResult {
  const judged = judge(end, output);
  return {
    ...judged,
    id,
    kind: 'acceptance',
    argv: unittest,
    end,
    durationMs: 1,
    output: null,
    outputCut: false,
    tail: '',
  };
}
const run = (checks: readonly CheckResult[], more: Partial<RunFacts> = {}): RunFacts => ({
  checks,
  changed: [],
  fault: null,
  ...more,
});
const failing = result('new', exit(1), golden('unittest-failed'));
const passing = result('old', ok, golden('unittest-passed'));
const both = [declared('new', 'fail'), declared('old', 'pass')];

describe('the judgement of a baseline', () => {
  it('discriminates when each check does what was declared', () => {
    expect(judgeBaseline(both, run([failing, passing]))).toEqual({ result: 'discriminates', problems: [] });
  });

  it('does not ask for supplemental checks', () => {
    expect(judgeBaseline([...both, declared('hidden', null)], run([failing, passing])).result).toBe('discriminates');
  });

  it.each<[string, CheckResult, string, string]>([
    ['passes', result('new', ok, golden('unittest-passed')), 'does-not-discriminate', 'new: declared-fail-but-passed'],
    ['leaves without a summary', result('new', ok), 'does-not-discriminate', 'new: declared-fail-but-no-summary'],
    ['cannot be found', result('new', exit(127)), 'does-not-discriminate', 'new: declared-fail-but-not-found'],
    ['cannot be executed', result('new', exit(126)), 'does-not-discriminate', 'new: declared-fail-but-not-executable'],
    ['is killed', result('new', exit(137)), 'does-not-discriminate', 'new: declared-fail-but-killed'],
    [
      'runs out of time',
      result('new', { kind: 'timeout', afterMs: 1 }),
      'incomplete',
      'new: declared-fail-but-timeout',
    ],
    ['runs out of memory', result('new', { kind: 'oom' }), 'incomplete', 'new: declared-fail-but-oom'],
    [
      'prints too much',
      result('new', { kind: 'overflow', limitBytes: 1 }),
      'incomplete',
      'new: declared-fail-but-overflow',
    ],
    [
      'is ended from outside',
      result('new', { kind: 'signal', signal: 'SIGKILL' }),
      'incomplete',
      'new: declared-fail-but-signal-SIGKILL',
    ],
    [
      'does not start',
      result('new', { kind: 'spawn-failed', errno: 'ENOENT' }),
      'incomplete',
      'new: declared-fail-but-spawn-failed-ENOENT',
    ],
    [
      'ends unseen',
      result('new', { kind: 'unknown', reason: 'x' }),
      'incomplete',
      'new: declared-fail-but-unknown-end',
    ],
  ])('does not take a check that %s for one that fails as declared', (_, check, verdict, problem) => {
    expect(judgeBaseline(both, run([check, passing]))).toEqual({ result: verdict, problems: [problem] });
  });

  it('takes a crash of the program itself for a failure', () => {
    const crashed = result('new', { kind: 'signal', signal: 'SIGSEGV' });
    expect(judgeBaseline(both, run([crashed, passing])).result).toBe('discriminates');
  });

  it('does not discriminate when a check that must pass fails', () => {
    expect(judgeBaseline(both, run([failing, result('old', exit(1), golden('unittest-failed'))]))).toEqual({
      result: 'does-not-discriminate',
      problems: ['old: declared-pass-but-exit-1'],
    });
  });

  it('is incomplete when a check did not run, files could not be read, or the sandbox failed', () => {
    expect(judgeBaseline(both, run([failing])).problems).toEqual(['old: not-run']);
    expect(judgeBaseline(both, run([failing, passing], { changed: null })).result).toBe('incomplete');
    expect(judgeBaseline(both, run([failing, passing], { changed: ['a'] })).result).toBe('incomplete');
    expect(judgeBaseline(both, run([failing, passing], { fault: { code: 'engine', message: 'x' } })).result).toBe(
      'incomplete',
    );
  });
});

describe('the judgement of a verification', () => {
  const fixed = result('new', ok, golden('unittest-passed'));
  it('passes when every declared check passed and every file was read back unchanged', () => {
    expect(judgeVerification(both, run([fixed, passing]), [])).toEqual({ result: 'passed', reasons: [] });
  });
  it.each<[string, RunFacts, string, string[]]>([
    ['a failed check', run([failing, passing]), 'failed', ['new: exit-1']],
    ['a check that did not run', run([fixed]), 'incomplete', ['old: not-run']],
    [
      'a check that was cancelled',
      run([fixed, result('old', { kind: 'cancelled' })]),
      'incomplete',
      ['old: cancelled'],
    ],
    [
      'a check that timed out',
      run([fixed, result('old', { kind: 'timeout', afterMs: 1 })]),
      'failed',
      ['old: timeout'],
    ],
    ['a changed file', run([fixed, passing], { changed: ['src/a.py'] }), 'failed', ['files-changed: src/a.py']],
    ['files that were not read back', run([fixed, passing], { changed: null }), 'incomplete', ['files-unread']],
    [
      'a lost sandbox',
      run([fixed, passing], { fault: { code: 'channel', message: 'gone' } }),
      'incomplete',
      ['channel: gone'],
    ],
    [
      'a failure before the sandbox was lost',
      run([failing], { changed: null }),
      'failed',
      ['new: exit-1', 'files-unread', 'old: not-run'],
    ],
  ])('does not pass with %s', (_, facts, verdict, reasons) => {
    expect(judgeVerification(both, facts, [])).toEqual({ result: verdict, reasons });
  });
  const usage = 'src/usage.py' as RelPath;
  const scoped = (outcome: FileScope['outcome'], reason: FileScope['reason'] = null): FileScope => ({
    path: usage,
    symbols: [{ name: 'f', exists: true }],
    outcome,
    reason,
    line: null,
    found: null,
    expected: null,
  });
  it('is not passed by a file that left its symbols, whatever the checks say, nor by one that nobody compared', () => {
    const facts = run([fixed, passing]);
    expect(judgeVerification(both, facts, [scoped('inside')])).toEqual({ result: 'passed', reasons: [] });
    expect(judgeVerification(both, facts, [scoped('outside', 'added')])).toEqual({
      result: 'failed',
      reasons: ['out-of-scope: src/usage.py (added)'],
    });
    expect(judgeVerification(both, facts, [scoped('not-checked')])).toEqual({
      result: 'incomplete',
      reasons: ['scope-not-checked: src/usage.py'],
    });
  });
  it('asks for supplemental checks too', () => {
    expect(judgeVerification([...both, declared('hidden', null)], run([fixed, passing]), []).reasons).toEqual([
      'hidden: not-run',
    ]);
  });
});
