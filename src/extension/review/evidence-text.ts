import type { CheckResult, ContractView, FrozenCheck } from '../../protocol/contract.ts';
import type { AttemptView } from '../../protocol/attempt.ts';
import type { CandidateFile, CandidateView, SessionView, VerificationView } from '../../protocol/views.ts';
import type { Localize, TreeWords } from '../trees/tree-node.ts';
import {
  checkWords,
  integrationReasonWords,
  integrationWords,
  outcomeWords,
  shortDigest,
  standingWords,
  stepReasonWords,
  stepWords,
  triggerWords,
  unknownOf,
  verdictWords,
} from '../trees/words.ts';
import { grammarWords, isScopeReason, scopeWords, symbolWords } from '../trees/scope-words.ts';
import { limitWords } from '../trees/limit-words.ts';
import { runReasonWords } from '../trees/run-words.ts';
import { visible } from '../visible-text.ts';
import type { UnseenFile } from '../window-state.ts';
import { unseenWords } from './unseen-words.ts';

/** Marks at the beginning of a line, each with one meaning; the grammar colours by them. */
const good = '✓';
const bad = '✗';
const note = '!';

function newestDone(candidate: CandidateView): VerificationView | undefined {
  return candidate.verifications.findLast((run) => run.state === 'done');
}

/** Whether it can be accepted, and why not. The same rule as the buttons': see `candidateActions`. */
function standing(candidate: CandidateView, superseded: boolean, t: Localize): string[] {
  const { decision, verdict } = candidate;
  if (decision !== null) {
    const by = t('by {0} ({1})', visible(decision.reviewer), decision.channel);
    return [
      decision.kind === 'accept' ? `${good} ${t('Accepted {0}', by)}` : `${bad} ${t('Rejected {0}', by)}`,
      ...(decision.comment === '' ? [] : [`  ${visible(decision.comment, 8000)}`]),
    ];
  }
  if (!candidate.eligible) return [`${bad} ${t('Cannot be accepted: its attempt did not end with whole bytes.')}`];
  const lines = superseded ? [`${note} ${t('A newer candidate exists: decide about that one.')}`] : [];
  const run = newestDone(candidate);
  if (run?.scope.some(({ outcome }) => outcome === 'outside') === true) {
    lines.push(`${bad} ${t('Cannot be accepted: it changes what the contract does not let it change.')}`);
  } else if (verdict !== 'passed' || run === undefined) {
    lines.push(`${bad} ${t('Cannot be accepted: {0}.', verdictWords(verdict, t))}`);
  } else {
    lines.push(`${good} ${t('All {0} checks passed on exactly these bytes, in a fresh sandbox.', run.checks.length)}`);
  }
  return lines;
}

function filesOf(candidate: CandidateView, contract: ContractView | undefined, t: Localize): string[] {
  const changed = candidate.files.map((file) => {
    const letter = { modified: 'M', added: 'A', deleted: 'D' }[file.change];
    const mode =
      file.beforeMode !== null && file.afterMode !== null && file.beforeMode !== file.afterMode
        ? `  ${t('mode {0} → {1}', file.beforeMode.toString(8), file.afterMode.toString(8))}`
        : '';
    const digest = (artefact: CandidateFile['before']): string =>
      artefact === null ? t('nothing') : shortDigest(artefact.sha256);
    return `  ${letter} ${visible(file.path, 500)}  ${digest(file.before)} → ${digest(file.after)}${mode}`;
  });
  const scope =
    contract?.contract.writable.map(({ path, symbols }) =>
      symbols === null ? visible(path, 500) : t('{0} (only {1})', visible(path, 500), symbolWords(symbols, t)),
    ) ?? [];
  return scope.length === 0 ? changed : [...changed, `  ${t('The contract lets change: {0}', scope.join(', '))}`];
}

/** What the bytes have and the diff on screen does not. */
function hiddenOf(unseen: readonly UnseenFile[] | undefined, t: Localize): string[] {
  if (unseen === undefined) return [`  ${note} ${t('Not looked at: open the candidate.')}`];
  return unseen.flatMap((file) =>
    file.unseen.map((each) => `  ${bad} ${visible(file.path, 500)}: ${unseenWords(each, t)}`),
  );
}

/** What a check did before the attempt, beside what the contract says it does there. */
function baselineWords(declared: FrozenCheck | undefined, before: CheckResult | undefined, t: Localize): string {
  if (declared?.kind === 'supplemental') return t('not run: the contract claims nothing of it');
  if (before === undefined) return t('not known to this window');
  const claimed = declared?.baseline === 'pass' ? 'pass' : 'fail';
  const words = before.verdict === claimed ? t('as declared') : t('not as declared');
  return `${before.verdict === 'pass' ? t('passed') : t('failed')}, ${words} · ${checkWords(before, t)}`;
}

function checksOf(run: VerificationView | undefined, contract: ContractView | undefined, words: TreeWords): string[] {
  const { t, time, number } = words;
  if (run === undefined) return [`  ${note} ${t('No verification has ended yet.')}`];
  const lines = [`  ${t('Run {0}', time(run.at))}`];
  for (const scope of run.scope) {
    const mark = scope.outcome === 'inside' ? good : bad;
    lines.push(`  ${mark} ${t('Scope of {0}', visible(scope.path, 500))}: ${scopeWords(scope, t)}`);
    if (scope.grammar !== undefined) lines.push(`      ${t('Compared by: {0}', grammarWords(scope.grammar))}`);
  }
  for (const reason of run.reasons.filter((each) => !isScopeReason(each)))
    lines.push(`  ${bad} ${runReasonWords(reason, words)}`);
  for (const check of run.checks) {
    const declared = contract?.contract.checks.find(({ id }) => id === check.id);
    const before = contract?.baseline?.checks.find(({ id }) => id === check.id);
    const kind = check.kind === 'supplemental' ? t('supplemental: the agent never saw it') : t('acceptance');
    lines.push(
      `  ${check.verdict === 'pass' ? good : bad} ${check.id}  (${kind})`,
      `      ${t('Command: {0}', visible(check.argv.join(' '), 500))}`,
      `      ${t('Baseline: {0}', baselineWords(declared, before, t))}`,
      `      ${t('Candidate: {0}', `${checkWords(check, t)} · ${t('{0} ms', number(Math.round(check.durationMs)))}`)}`,
    );
  }
  return lines;
}

/** What the record does not show, each with its reason; never empty: some things no run of a check can show. */
function unknownsOf(
  session: SessionView,
  attempt: AttemptView | undefined,
  run: VerificationView | undefined,
  t: Localize,
): string[] {
  const lines: string[] = [];
  const add = (text: string): void => {
    lines.push(`  ${note} ${text}`);
  };
  for (const check of run?.checks ?? []) {
    if (check.strength === 'exit-code') add(t('{0}: what it tested. Nothing but its exit code is known.', check.id));
    if (check.outputCut) add(t('{0}: the end of its output, which was cut.', check.id));
  }
  if (run !== undefined && !run.checks.some(({ kind }) => kind === 'supplemental')) {
    add(t('Checks that the agent never saw: the contract has none.'));
  }
  add(t('Whether the candidate deceives: nothing that runs in its own process is proof against that.'));
  if (attempt?.collection !== null && attempt?.collection.state !== 'complete')
    add(t('All bytes: they were not collected whole.'));
  const { settlement } = attempt ?? { settlement: null };
  if (settlement === null || !settlement.confirmed) add(t('The end of the sandbox: it was not seen.'));
  for (const step of settlement?.steps ?? []) {
    if (step.observed) continue;
    const why = stepReasonWords(step, t);
    add(why === undefined ? stepWords(step.step, t) : `${stepWords(step.step, t)}: ${visible(why, 120)}`);
  }
  for (const what of settlement === null ? [] : unknownOf(settlement, t)) add(visible(what, 120));
  for (const limit of attempt?.limits ?? [])
    if (!limit.inForce) add(t('Not in force: {0}.', limitWords(limit.name, t)));
  const { model, synthetic } = session.binding;
  if (!synthetic && model.unproven.length > 0) {
    add(t('Of the model, the engine cannot prove: {0}', visible(model.unproven.join(', ').replaceAll('_', ' '))));
  }
  return lines;
}

function attemptOf(session: SessionView, attempt: AttemptView | undefined, { t, time, number }: TreeWords): string[] {
  if (attempt === undefined) return [`  ${note} ${t('Its attempt is not in the record.')}`];
  const { metrics, settlement, limits } = attempt;
  const told = (value: number | null): string => (value === null ? t('unavailable') : number(value));
  const denied = attempt.activity.filter(({ kind }) => kind === 'denied').length;
  const inForce = limits.filter((limit) => limit.inForce).length;
  return [
    `  ${t('Attempt {0} of {1}', attempt.number, session.budget.attempts)}: ${attempt.outcome === null ? t('outcome unknown') : outcomeWords(attempt.outcome.kind, t)}`,
    `  ${t('Requests: {0}; tokens in {1}, out {2}', number(metrics.requests), told(metrics.promptTokens), told(metrics.outputTokens))}`,
    `  ${t('Refused by the rules of the sandbox: {0}', number(denied))}`,
    `  ${t('Limits read back in force: {0} of {1}', inForce, limits.length)}`,
    settlement === null
      ? `  ${t('Settlement: not begun')}`
      : `  ${t('Settlement: {0}, because {1}', settlement.confirmed ? t('confirmed') : t('not confirmed'), triggerWords(settlement.trigger, t))}`,
    ...(settlement?.steps ?? []).map(
      (step) => `      ${step.observed ? good : note} ${stepWords(step.step, t)} ${time(step.at)}`,
    ),
  ];
}

/**
 * What there is to know before a decision, as one plain text: the verdict, each check before and after, what was not
 * observed, and how the bytes came about. `contract` undefined: its baseline is not known here (yet); `unseen` undefined:
 * nobody has looked yet what its diff hides. Pure.
 */
export function evidenceText(
  session: SessionView,
  candidate: CandidateView,
  contract: ContractView | undefined,
  words: TreeWords,
  unseen: readonly UnseenFile[] | undefined,
): string {
  const { t, time } = words;
  const attempt = session.attempts.find(({ id }) => id === candidate.attempt);
  const run = newestDone(candidate);
  const superseded = session.candidates.at(-1)?.digest !== candidate.digest;
  const { binding } = session;
  const others = candidate.verifications.filter((each) => each !== run);
  const sections: (readonly [string, readonly string[]])[] = [
    [
      '',
      [
        ...standing(candidate, superseded, t),
        binding.synthetic
          ? `${note} ${t('Synthetic: a script spoke, no model. It says nothing about any model.')}`
          : `${note} ${t('{0}: nothing vouches for this model here.', standingWords(binding, t))}`,
      ],
    ],
    [t('Changed files'), filesOf(candidate, contract, t)],
    [t('Not shown by the diff'), hiddenOf(unseen, t)],
    [t('Checks'), checksOf(run, contract, words)],
    [
      t('Other runs'),
      others.map(
        (each) => `  ${time(each.at)}  ${each.state === 'done' ? visible(each.result ?? '') : t('not ended')}`,
      ),
    ],
    [t('Not observed'), unknownsOf(session, attempt, run, t)],
    [t('Attempt'), attemptOf(session, attempt, words)],
    [
      t('Integration'),
      candidate.integrations.map(
        (each) =>
          `  ${time(each.at)}  ${integrationWords(each.state, t)}${each.reason === null ? '' : ` · ${visible(integrationReasonWords(each.reason, t))}`}${
            each.moved.length === 0 ? '' : ` · ${t('{0} other files moved since the freeze', each.moved.length)}`
          }`,
      ),
    ],
    [
      t('Binding'),
      [
        `  ${t('Model: {0}', visible(binding.model.tag, 500))}`,
        `  ${t('Model digest: {0}', visible(binding.model.digest ?? t('not told'), 100))}`,
        `  ${t('Engine: {0}', visible(`${binding.engine.kind} ${binding.engine.version}`))}`,
        `  ${t('Image: {0}', `${visible(binding.image.reference)} ${shortDigest(binding.image.digest)}`)}`,
        `  ${t('Contract: {0}', session.contractDigest)}`,
      ],
    ],
  ];
  return [
    t('Evidence of candidate {0}', candidate.digest),
    visible(session.title),
    ...sections.flatMap(([title, lines]) =>
      lines.length === 0 ? [] : title === '' ? ['', ...lines] : ['', title, ...lines],
    ),
    '',
  ].join('\n');
}
