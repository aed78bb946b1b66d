import { unreachable } from '../../protocol/primitives.ts';
import type { CheckResult } from '../../protocol/contract.ts';
import type {
  CandidateFile,
  CandidateView,
  IntegrationView,
  SessionView,
  VerificationView,
} from '../../protocol/views.ts';
import { commands } from '../ids.ts';
import { candidateActions } from '../review/candidate-actions.ts';
import { visible, visibleLines } from '../visible-text.ts';
import { contextWords, node, type Icon, type Localize, type TreeNode, type TreeWords } from './tree-node.ts';
import { runReasonWords } from './run-words.ts';
import { isScopeReason, scopeWords } from './scope-words.ts';
import { checkWords, integrationReasonWords, integrationWords, shortDigest, verdictWords } from './words.ts';

function fileNode(session: SessionView, candidate: CandidateView, file: CandidateFile, t: Localize): TreeNode {
  const look = ((): { icon: Icon; words: string } => {
    switch (file.change) {
      case 'modified':
        return { icon: { id: 'diff-modified', tone: 'warning' }, words: t('modified') };
      case 'added':
        return { icon: { id: 'diff-added', tone: 'good' }, words: t('added') };
      case 'deleted':
        return { icon: { id: 'diff-removed', tone: 'bad' }, words: t('deleted') };
      default:
        return unreachable(file.change, 'change');
    }
  })();
  const mode =
    file.beforeMode !== null && file.afterMode !== null && file.beforeMode !== file.afterMode
      ? t('mode {0} → {1}', file.beforeMode.toString(8), file.afterMode.toString(8))
      : undefined;
  return node({
    id: `${session.id}/${candidate.digest}/file/${file.path}`,
    label: visible(file.path),
    description: [look.words, mode].filter((part) => part !== undefined).join(' · '),
    icon: look.icon,
    context: contextWords('candidate-file'),
    target: { kind: 'candidate-file', session: session.id, candidate: candidate.digest, path: file.path },
    command: commands.openCandidateFile,
  });
}

function checkNode(parent: string, check: CheckResult, { t, number }: TreeWords): TreeNode {
  const passed = check.verdict === 'pass';
  return node({
    id: `${parent}/check/${check.id}`,
    label: check.kind === 'supplemental' ? t('{0} (supplemental)', check.id) : check.id,
    description: checkWords(check, t),
    tooltip: [
      visible(check.argv.join(' '), 500),
      checkWords(check, t),
      t('{0} ms', number(Math.round(check.durationMs))),
      ...(check.kind === 'supplemental' ? [t('The agent never saw this check.')] : []),
      '',
      visibleLines(check.tail, 2000),
    ].join('\n'),
    spoken: [check.id, passed ? t('passed') : t('not passed'), checkWords(check, t)].join(', '),
    icon: passed ? { id: 'pass', tone: 'good' } : { id: 'error', tone: 'bad' },
    context: contextWords('check', check.output !== null && 'output'),
    target:
      check.output === null
        ? { kind: 'text', title: check.id, text: check.tail }
        : { kind: 'output', name: `${check.id}.log`, sha256: check.output.sha256, size: check.output.size },
    command: check.output === null ? commands.showText : commands.showOutput,
  });
}

function verificationNode(verification: VerificationView, words: TreeWords): TreeNode {
  const { t, time } = words;
  const look = ((): { icon: Icon; words: string } => {
    switch (verification.state) {
      case 'queued':
        return { icon: { id: 'watch', tone: 'plain' }, words: t('waiting for the sandbox') };
      case 'running':
        return { icon: { id: 'loading~spin', tone: 'plain' }, words: t('running') };
      case 'done':
        switch (verification.result) {
          case 'passed':
            return { icon: { id: 'pass', tone: 'good' }, words: t('passed') };
          case 'failed':
            return { icon: { id: 'error', tone: 'bad' }, words: t('failed') };
          case 'incomplete':
          case null:
            return { icon: { id: 'warning', tone: 'warning' }, words: t('incomplete') };
          default:
            return unreachable(verification.result, 'result');
        }
      default:
        return unreachable(verification.state, 'verification state');
    }
  })();
  // What spoils a run without being a check of it: files that changed under it, a check that did not run, a fault.
  const others = verification.reasons.filter(
    (reason) =>
      !isScopeReason(reason) &&
      !verification.checks.some(({ id, verdict }) => verdict === 'fail' && reason.startsWith(`${id}: `)),
  );
  return node({
    // Another row once there is a result: VS Code keeps a row without children closed when they come.
    id: verification.checks.length === 0 ? `${verification.runId}/open` : verification.runId,
    label: t('Verification'),
    description: `${look.words} · ${time(verification.at)}`,
    tooltip:
      verification.reasons.map((reason) => runReasonWords(reason, words)).join('\n') ||
      t('In a fresh sandbox, on exactly these bytes.'),
    icon: look.icon,
    collapsible: verification.checks.length + verification.scope.length + others.length === 0 ? 'no' : 'expanded',
    children: [
      ...others.map((reason, index) =>
        node({
          id: `${verification.runId}/reason/${index}`,
          label: runReasonWords(reason, words),
          tooltip: visible(reason, 500),
          icon: { id: 'warning', tone: 'warning' },
        }),
      ),
      ...verification.scope.map((scope) =>
        node({
          id: `${verification.runId}/scope/${scope.path}`,
          label: t('Scope of {0}', visible(scope.path)),
          description: scopeWords(scope, t),
          tooltip: scopeWords(scope, t),
          icon:
            scope.outcome === 'inside'
              ? { id: 'pass', tone: 'good' }
              : scope.outcome === 'outside'
                ? { id: 'error', tone: 'bad' }
                : { id: 'warning', tone: 'warning' },
        }),
      ),
      ...verification.checks.map((check) => checkNode(verification.runId, check, words)),
    ],
  });
}

function integrationNode(session: SessionView, integration: IntegrationView, { t, time }: TreeWords): TreeNode {
  const done = integration.state === 'integrated' || integration.state === 'undo_refused';
  const notes = [
    integration.reason === null ? undefined : visible(integrationReasonWords(integration.reason, t)),
    integration.moved.length > 0 ? t('{0} other files moved since the freeze', integration.moved.length) : undefined,
    integration.unsaved === 'unknown' ? t('unsaved editors unknown') : undefined,
  ].filter((note) => note !== undefined);
  return node({
    id: integration.id,
    label: t('Integration'),
    description: [integrationWords(integration.state, t), ...notes, time(integration.at)].join(' · '),
    tooltip: [...integration.files, ...integration.moved].map((path) => visible(path)).join('\n'),
    icon: done
      ? { id: 'git-merge', tone: 'good' }
      : integration.state === 'undone'
        ? { id: 'discard', tone: 'plain' }
        : { id: 'warning', tone: 'warning' },
    context: contextWords('integration', done && 'undoable'),
    target: { kind: 'integration', session: session.id, integration: integration.id },
  });
}

/** A candidate with its files, verifications, decision and integrations. */
export function candidateNode(session: SessionView, candidate: CandidateView, words: TreeWords): TreeNode {
  const { t, time } = words;
  const actions = candidateActions(candidate);
  const icon = ((): Icon => {
    if (!candidate.eligible) return { id: 'circle-slash', tone: 'warning' };
    switch (candidate.verdict) {
      case 'passed':
        return { id: 'git-pull-request', tone: 'good' };
      case 'failed':
        return { id: 'git-pull-request', tone: 'bad' };
      case 'flaky':
      case 'incomplete':
        return { id: 'git-pull-request', tone: 'warning' };
      case 'unverified':
        return { id: 'git-pull-request', tone: 'plain' };
      default:
        return unreachable(candidate.verdict, 'verdict');
    }
  })();
  const decision = candidate.decision;
  return node({
    id: `${session.id}/${candidate.digest}`,
    label: t('Candidate'),
    // What it is worth before which one it is: a narrow row cuts the rest.
    description: [
      candidate.eligible ? verdictWords(candidate.verdict, t) : t('diagnostic only, not eligible'),
      shortDigest(candidate.digest),
    ].join(' · '),
    tooltip: candidate.digest,
    icon,
    context: contextWords(
      'candidate',
      actions.accept && 'acceptable',
      actions.reject && 'rejectable',
      actions.verify && 'verifiable',
      actions.integrate && 'integrable',
    ),
    target: { kind: 'candidate', session: session.id, candidate: candidate.digest },
    command: commands.openCandidate,
    collapsible: 'expanded',
    children: [
      ...candidate.files.map((file) => fileNode(session, candidate, file, t)),
      ...candidate.verifications.map((verification) => verificationNode(verification, words)),
      ...(decision === null
        ? []
        : [
            node({
              id: `${session.id}/${candidate.digest}/decision`,
              label: decision.kind === 'accept' ? t('Accepted') : t('Rejected'),
              description: t('by {0} ({1}) · {2}', visible(decision.reviewer), decision.channel, time(decision.at)),
              tooltip: visibleLines(decision.comment),
              icon:
                decision.kind === 'accept'
                  ? { id: 'pass-filled', tone: 'good' }
                  : { id: 'circle-slash', tone: 'plain' },
            }),
          ]),
      ...candidate.integrations.map((integration) => integrationNode(session, integration, words)),
    ],
  });
}
