import type { CandidateView } from '../protocol/views.ts';
import { faultWords, inOneLine } from './fault-words.ts';
import { isCurrent, isSessionCurrent, type WindowState } from './window-state.ts';
import { summaryOf } from './trees/session-tree.ts';
import type { Localize, TreeWords } from './trees/tree-node.ts';
import { phaseWords, verdictWords } from './trees/words.ts';
import { silentWords } from './view-message.ts';

export interface StatusLine {
  /** With product icons in `$(name)`; holds no text from elsewhere. */
  readonly text: string;
  readonly tooltip: string;
  readonly spoken: string;
  /** `warning` asks for the item's warning colours, for what a person should not miss. */
  readonly tone: 'plain' | 'warning';
}

/** The candidate on screen, as far as the status bar speaks of it. */
export interface StatusOfReview {
  readonly view: CandidateView;
  readonly superseded: boolean;
}

/**
 * The one status bar item: what needs a person, else what is on screen for review (with the reason why it cannot be
 * decided, where it cannot), else what runs, else that all is quiet.
 */
export function statusLine(state: WindowState, { t, time, home }: TreeWords, review?: StatusOfReview): StatusLine {
  const line = (icon: string, words: string, tooltip: string, tone: StatusLine['tone'] = 'plain'): StatusLine => ({
    text: words === '' ? `$(${icon}) Escrow` : `$(${icon}) Escrow: ${words}`,
    tooltip,
    spoken: words === '' ? t('Escrow, nothing runs') : t('Escrow, {0}', words),
    tone,
  });
  switch (state.connection.kind) {
    case 'off':
      return line('package', '', t('Escrow is not connected yet.'));
    case 'connecting':
      return line('plug', t('connecting'), t('Looking for the Kernel.'));
    case 'lost': {
      const heard =
        state.lastHeardAt === null ? t('Never connected.') : t('Last observed {0}.', time(state.lastHeardAt));
      return line(
        'debug-disconnect',
        t('not connected'),
        `${heard} ${inOneLine(faultWords(state.connection.fault, home, t))}`,
      );
    }
    case 'connected':
      break;
    default:
      return state.connection satisfies never;
  }
  if (!state.connection.answering) {
    const words = `${silentWords(state.lastHeardAt, { t, time })} ${t('What it said before may be over.')}`;
    return line('debug-disconnect', t('no answer'), words);
  }
  if (!isCurrent(state)) return line('sync', t('catching up'), t('Events were missed; asking for them.'));
  const pending = state.status?.value.pending.length ?? 0;
  if (pending > 0) {
    return line(
      'warning',
      t('stop not confirmed'),
      t('A sandbox may still run. The Sessions view says what would resolve it.'),
      'warning',
    );
  }
  const known = [...state.sessions.values()].map(({ value }) => value);
  if (known.some((session) => !isSessionCurrent(state, session))) {
    return line(
      'warning',
      t('not current'),
      t('What is shown of a session is an earlier answer. The Sessions view says why.'),
    );
  }
  if (review !== undefined) {
    const { icon, says, why } = reviewWords(review, t);
    const hidden = review.view.decision === null ? (state.unseen.get(review.view.digest)?.length ?? 0) : 0;
    if (hidden > 0) {
      return line(
        'eye-closed',
        t('{0}; the diff may hide changes', says),
        `${t('Files of which the diff does not show every change: {0}. The evidence says which.', hidden)} ${why}`,
        'warning',
      );
    }
    return line(icon, says, `${why} ${t('Select to read its evidence.')}`);
  }
  const sessions = known.map(summaryOf);
  const running = sessions.find(({ state: s }) => s === 'running' || s === 'settling');
  if (running !== undefined) {
    return line(
      'loading~spin',
      running.phase === null ? t('running') : phaseWords(running.phase, t),
      t('An attempt is under way. Nothing reaches your files before you accept it.'),
    );
  }
  const toReview = sessions.filter(
    ({ candidate, decision, verdict }) => candidate !== null && decision === null && verdict === 'passed',
  ).length;
  if (toReview > 0) {
    return line(
      'git-pull-request',
      toReview === 1 ? t('1 to review') : t('{0} to review', toReview),
      t('A candidate has passed its checks and waits for your decision.'),
    );
  }
  return line('package', '', t('Nothing runs.'));
}

function reviewWords(
  { view, superseded }: StatusOfReview,
  t: Localize,
): { readonly icon: string; readonly says: string; readonly why: string } {
  if (view.decision !== null) {
    return view.decision.kind === 'accept'
      ? { icon: 'pass-filled', says: t('accepted'), why: t('This candidate was accepted.') }
      : { icon: 'circle-slash', says: t('rejected'), why: t('This candidate was rejected.') };
  }
  if (superseded) {
    return {
      icon: 'warning',
      says: t('a newer candidate exists'),
      why: t('Only the newest candidate of a session can be decided about.'),
    };
  }
  if (!view.eligible) {
    return {
      icon: 'circle-slash',
      says: t('diagnostic only'),
      why: t('Its attempt did not end with whole bytes, so it can only be rejected.'),
    };
  }
  switch (view.verdict) {
    case 'passed':
      return {
        icon: 'pass',
        says: t('checks passed'),
        why: t('All checks passed on exactly these bytes. The decision is yours.'),
      };
    case 'unverified':
      return {
        icon: 'watch',
        says: t('not verified'),
        why: t('Its checks have not ended. It cannot be accepted yet.'),
      };
    case 'failed':
    case 'incomplete':
    case 'flaky':
      return {
        icon: view.verdict === 'failed' ? 'error' : 'warning',
        says: t('cannot be accepted'),
        why: t('The verification of this candidate: {0}.', verdictWords(view.verdict, t)),
      };
    default:
      return view.verdict satisfies never;
  }
}
