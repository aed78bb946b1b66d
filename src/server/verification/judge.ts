import type {
  BaselineView,
  CheckResult,
  CommandEnd,
  FileScope,
  FrozenCheck,
  TestSummary,
} from '../../protocol/contract.ts';
import { unreachable } from '../../protocol/primitives.ts';
import { runReasonLine } from '../../protocol/run-reason.ts';
import { readSummary } from './summary.ts';
import { testRunnerOf } from './test-runner.ts';

/**
 * Why a check did not pass. `exit-<n>` stands for any other exit status; 126, 127 and 137 have names of their own
 * because a shell or an engine says with them that nothing was tested.
 */
export type CheckReason =
  | 'not-executable'
  | 'not-found'
  | 'killed'
  | `exit-${number}`
  | `signal-${string}`
  | 'timeout'
  | 'overflow'
  | 'oom'
  | 'no-space'
  | 'pids'
  | 'hoard'
  | 'cancelled'
  | `spawn-failed-${string}`
  | 'unknown-end'
  | 'output-cut'
  | 'no-summary'
  | 'no-tests'
  | 'tests-failed'
  | 'fewer-tests'
  | 'baseline-tests-missing';

export interface RanCheck {
  readonly argv: readonly string[];
  readonly end: CommandEnd;
  readonly output: Uint8Array;
  readonly outputCut: boolean;
}

export interface CheckJudgement {
  readonly verdict: 'pass' | 'fail';
  readonly reason: CheckReason | null;
  readonly strength: 'summary' | 'exit-code';
  readonly summary: TestSummary | null;
}

/**
 * Judges one run of a check. `baseline` is the summary of the same check on the untouched snapshot; null where there is
 * none (the baseline itself, supplemental checks). An exit status of 0 is necessary and, where the runner is known, not
 * enough: the closing summary must be there, name no failure, and cover at least what ran at the baseline. Pure.
 */
export function judgeCheck(ran: RanCheck, baseline: TestSummary | null): CheckJudgement {
  const runner = testRunnerOf(ran.argv);
  const strength = runner === null ? 'exit-code' : 'summary';
  const summary = runner === null || ran.outputCut ? null : readSummary(runner, ran.output);
  const judged = (reason: CheckReason | null): CheckJudgement => ({
    verdict: reason === null ? 'pass' : 'fail',
    reason,
    strength,
    summary,
  });
  const end = endReason(ran.end);
  if (end !== null) return judged(end);
  if (ran.outputCut) return judged('output-cut');
  if (runner === null) return judged(null);
  if (summary === null) return judged('no-summary');
  if (summary.failed > 0) return judged('tests-failed');
  if (summary.total - summary.skipped <= 0) return judged('no-tests');
  return judged(baseline === null ? null : againstBaseline(summary, baseline));
}

function againstBaseline(now: TestSummary, before: TestSummary): CheckReason | null {
  if (now.total < before.total) return 'fewer-tests';
  // What ran before must run now: a test that became "skipped" has shown nothing.
  if (now.total - now.skipped < before.total - before.skipped) return 'fewer-tests';
  if (now.passed < before.passed) return 'fewer-tests';
  if (before.passing === null) return null;
  if (now.passing === null) return 'baseline-tests-missing';
  const passing = new Set(now.passing);
  return before.passing.every((name) => passing.has(name)) ? null : 'baseline-tests-missing';
}

function endReason(end: CommandEnd): CheckReason | null {
  switch (end.kind) {
    case 'exit':
      if (end.code === 0) return null;
      if (end.code === 126) return 'not-executable';
      if (end.code === 127) return 'not-found';
      if (end.code === 137) return 'killed';
      return `exit-${end.code}`;
    case 'signal':
      return `signal-${end.signal}`;
    case 'timeout':
    case 'overflow':
    case 'oom':
    case 'no-space':
    case 'pids':
    case 'hoard':
    case 'cancelled':
      return end.kind;
    case 'spawn-failed':
      return `spawn-failed-${end.errno}`;
    case 'unknown':
      return 'unknown-end';
    default:
      return unreachable(end, 'command end');
  }
}

/** Signals that a faulty program sends to itself; any other one came from outside. */
const ownSignals: ReadonlySet<string> = new Set(['SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGILL', 'SIGTRAP']);

/** Whether a failed check has shown a failing program, as opposed to not having shown anything. */
function failedByItself(check: CheckResult): boolean {
  if (check.verdict !== 'fail') return false;
  if (check.end.kind === 'signal') return ownSignals.has(check.end.signal);
  if (check.end.kind !== 'exit' || check.outputCut) return false;
  return ![0, 126, 127, 137].includes(check.end.code);
}

/** `code`: a CheckReason, or `not-run`, `passed`, `failed`, `unknown`. */
const ofCheck = (id: string, code: string, declared: 'pass' | 'fail' | null): string =>
  runReasonLine({ kind: 'check', id, code, declared });

/** What happened to the sandbox around the checks. */
export interface RunFacts {
  readonly checks: readonly CheckResult[];
  /** Files that were not, after the checks, what was placed; null when they could not be read. */
  readonly changed: readonly string[] | null;
  /** Why the run did not come to its end, or null. */
  readonly fault: { readonly code: string; readonly message: string } | null;
}

/**
 * Whether the acceptance tells broken from fixed: each check does on the untouched snapshot what the contract declares.
 * A check that was timed out, cut short, killed or could not start has shown nothing and never counts as the declared
 * failure. Pure.
 */
export function judgeBaseline(
  declared: readonly FrozenCheck[],
  run: RunFacts,
): Pick<BaselineView, 'result' | 'problems'> {
  const incomplete: string[] = runProblems(run);
  for (const path of run.changed ?? []) incomplete.push(runReasonLine({ kind: 'files-changed', path }));
  const wrong: string[] = [];
  for (const check of declared) {
    if (check.kind !== 'acceptance') continue;
    const seen = run.checks.find((result) => result.id === check.id);
    if (seen === undefined) incomplete.push(ofCheck(check.id, 'not-run', null));
    else if (check.baseline === 'pass') {
      if (seen.verdict === 'pass') continue;
      (failedByItself(seen) || seen.end.kind === 'exit' ? wrong : incomplete).push(
        ofCheck(check.id, seen.reason ?? 'failed', 'pass'),
      );
    } else if (seen.verdict === 'pass') wrong.push(ofCheck(check.id, 'passed', 'fail'));
    else if (!failedByItself(seen)) {
      // Exit 0 without a summary is neither: the check cannot tell.
      (seen.end.kind === 'exit' ? wrong : incomplete).push(ofCheck(check.id, seen.reason ?? 'unknown', 'fail'));
    } else if (seen.summary !== null && seen.summary.total === 0) wrong.push(ofCheck(check.id, 'no-tests', 'fail'));
  }
  const problems = [...incomplete, ...wrong];
  if (incomplete.length > 0) return { result: 'incomplete', problems };
  return { result: wrong.length > 0 ? 'does-not-discriminate' : 'discriminates', problems };
}

/**
 * The result of a verification. `passed` only when every declared check ran to its end and passed, every file was
 * read back unchanged, and every file whose symbols are named stayed within them; `incomplete` when something that had to
 * be observed was not; else `failed`. Pure.
 */
export function judgeVerification(
  declared: readonly FrozenCheck[],
  run: RunFacts,
  scope: readonly FileScope[],
): { readonly result: 'passed' | 'failed' | 'incomplete'; readonly reasons: readonly string[] } {
  const incomplete: string[] = runProblems(run);
  const failed: string[] = [];
  for (const check of declared) {
    const seen = run.checks.find((result) => result.id === check.id);
    if (seen === undefined) incomplete.push(ofCheck(check.id, 'not-run', null));
    else if (seen.verdict === 'fail') {
      const unseen = seen.end.kind === 'unknown' || seen.end.kind === 'cancelled';
      (unseen ? incomplete : failed).push(ofCheck(check.id, seen.reason ?? 'failed', null));
    }
  }
  for (const path of run.changed ?? []) failed.push(runReasonLine({ kind: 'files-changed', path }));
  for (const { path, outcome, reason } of scope) {
    if (outcome === 'outside') failed.push(runReasonLine({ kind: 'out-of-scope', path, code: reason ?? 'unknown' }));
    else if (outcome === 'not-checked') incomplete.push(runReasonLine({ kind: 'scope-not-checked', path }));
  }
  const reasons = [...failed, ...incomplete];
  // A check that did fail has failed, whatever else is missing.
  if (failed.length > 0) return { result: 'failed', reasons };
  return { result: incomplete.length > 0 ? 'incomplete' : 'passed', reasons };
}

function runProblems(run: RunFacts): string[] {
  const problems: string[] = [];
  const { fault } = run;
  if (fault !== null) problems.push(runReasonLine({ kind: 'run', code: fault.code, detail: fault.message }));
  if (run.changed === null) problems.push(runReasonLine({ kind: 'run', code: 'files-unread', detail: null }));
  return problems;
}
