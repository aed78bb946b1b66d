import * as vscode from 'vscode';
import type { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import type { CandidateView, IntegrationView, SessionView } from '../../protocol/views.ts';
import { windowFault } from '../fault-words.ts';
import { commands } from '../ids.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';
import { isRow } from '../tree-argument.ts';
import { showInformation, showWarning } from '../messages.ts';
import { visible, withoutIcons } from '../visible-text.ts';
import { integrationReasonWords, integrationWords, shortDigest } from '../trees/words.ts';
import { candidateActions, type CandidateActions } from './candidate-actions.ts';
import { HiddenChanges, type HiddenAnswer, type HiddenQuestion } from './hidden-question.ts';
import { showWhiteSpace } from './unseen-watch.ts';
import { askRejection } from './ask-rejection.ts';
import { assertedReviewer } from './asserted-reviewer.ts';

interface Chosen {
  readonly session: SessionView;
  readonly candidate: CandidateView;
}

async function askAboutHidden(question: HiddenQuestion): Promise<HiddenAnswer | undefined> {
  const picked = await vscode.window.showQuickPick<vscode.QuickPickItem & { readonly answer?: HiddenAnswer }>(
    [
      ...question.choices,
      ...(question.hidden.length === 0
        ? []
        : [{ label: vscode.l10n.t('Not shown by the diff'), kind: vscode.QuickPickItemKind.Separator }]),
      ...question.hidden,
    ],
    { title: question.title, placeHolder: question.placeHolder, ignoreFocusOut: true },
  );
  return picked?.answer;
}

/** Decisions about candidates. Each names the digest that the person saw: a row's, or the one on screen. */
export function reviewCommands(parts: WindowParts): CommandTable {
  const { store, link, observer, review, unseen, log } = parts;
  const hidden = new HiddenChanges();
  /** What was written about a candidate whose rejection is not recorded (yet). */
  const drafts = new Map<CandidateDigest, string>();
  const underWay = new Set<CandidateDigest>();

  /** Hands a decision to the Kernel; a second key or click for the same candidate is the same decision, not another. */
  async function deciding(candidate: CandidateDigest, decide: () => Promise<void>): Promise<void> {
    if (underWay.has(candidate)) return;
    underWay.add(candidate);
    try {
      await decide();
    } finally {
      underWay.delete(candidate);
    }
  }

  async function sessionView(session: SessionId): Promise<SessionView> {
    const known = store.state.sessions.get(session)?.value;
    if (known !== undefined) return known;
    const view = await link.request('session/get', { session });
    observer.put(view);
    return view;
  }

  async function find(session: SessionId, candidate: CandidateDigest): Promise<Chosen> {
    const view = await sessionView(session);
    const found = view.candidates.find(({ digest }) => digest === candidate);
    if (found === undefined) {
      throw windowFault(
        'NotFound',
        vscode.l10n.t('The session does not have this candidate.'),
        vscode.l10n.t('Refresh the Sessions view.'),
      );
    }
    return { session: view, candidate: found };
  }

  /** From a row, from the diff on screen, or from a list of what is there. Undefined when the person left the list. */
  async function choose(argument: unknown, fits: (candidate: CandidateView) => boolean): Promise<Chosen | undefined> {
    if (isRow(argument)) {
      const { target } = argument;
      if (target.kind === 'candidate' || target.kind === 'candidate-file')
        return find(target.session, target.candidate);
    }
    const shown = review.onScreen() ?? review.evidenceOnScreen();
    if (shown !== undefined) return find(shown.session, shown.candidate);
    const all = [...store.state.sessions.values()]
      .toSorted((a, b) => b.value.updatedAt - a.value.updatedAt)
      .flatMap(({ value }) => value.candidates.toReversed().map((candidate) => ({ session: value, candidate })))
      .filter(({ candidate }) => fits(candidate));
    if (all.length === 0) {
      showInformation(vscode.l10n.t('No candidate waits for this.'));
      return undefined;
    }
    const picked = await vscode.window.showQuickPick(
      all.map((chosen) => ({
        label: withoutIcons(visible(chosen.session.title)),
        description: shortDigest(chosen.candidate.digest),
        chosen,
      })),
      { title: vscode.l10n.t('Candidate'), placeHolder: vscode.l10n.t('Which candidate?') },
    );
    return picked?.chosen;
  }

  /**
   * The candidate on screen, for a decision about it. Anything else that was asked for is opened instead: nobody decides
   * about bytes that they have not in front of them.
   */
  async function onScreen(
    argument: unknown,
    fits: (actions: CandidateActions) => boolean,
  ): Promise<Chosen | undefined> {
    const shown = review.onScreen();
    const asked = isRow(argument) && argument.target.kind === 'candidate' ? argument.target : undefined;
    // Two sessions may have come to the same bytes: a decision belongs to one of them.
    const same = asked === undefined || (asked.session === shown?.session && asked.candidate === shown.candidate);
    if (shown?.decidable === true && same) {
      return find(shown.session, shown.candidate);
    }
    const chosen = await choose(argument, (candidate) => fits(candidateActions(candidate)));
    if (chosen === undefined) return undefined;
    await review.open(chosen.session, chosen.candidate);
    showInformation(vscode.l10n.t('Here is the whole candidate. Decide in the title of its editor.'));
    return undefined;
  }

  /** Whether an acceptance goes on: what the diff hides of the candidate was looked at, and answered for by a person. */
  async function knowsWhatIsHidden({ session, candidate }: Chosen): Promise<boolean> {
    const files = await unseen.of(session.id, candidate);
    const answer = await hidden.answer(session.id, candidate.digest, files, vscode.l10n.t, askAboutHidden);
    switch (answer) {
      case 'accept':
        return true;
      case 'read':
        await parts.evidence.open({ session: session.id, candidate: candidate.digest });
        return false;
      case 'show':
        await showWhiteSpace();
        return false;
      case undefined:
        return false;
      default:
        return answer satisfies never;
    }
  }

  function tell(integration: IntegrationView): void {
    if (integration.state === 'integrated' || integration.state === 'undone') {
      log.info(`integration ${integration.id}: ${integration.state} (${integration.files.join(', ')})`);
      return;
    }
    // A refusal is an answer, not an error: nothing was written. It needs eyes, so it is said aloud.
    const state = integrationWords(integration.state, vscode.l10n.t);
    showWarning(
      integration.reason === null
        ? vscode.l10n.t('Your files were not changed as asked: {0}.', state)
        : vscode.l10n.t(
            'Your files were not changed as asked: {0}, {1}. Mend that, then try again from the title of the candidate.',
            state,
            visible(integrationReasonWords(integration.reason, vscode.l10n.t)),
          ),
    );
  }

  return {
    [commands.openCandidate]: async (argument) => {
      const chosen = await choose(argument, () => true);
      if (chosen !== undefined) await review.open(chosen.session, chosen.candidate);
    },
    [commands.showEvidence]: async (argument) => {
      const chosen = await choose(argument, () => true);
      if (chosen !== undefined)
        await parts.evidence.open({ session: chosen.session.id, candidate: chosen.candidate.digest });
    },
    [commands.openCandidateFile]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'candidate-file') return;
      const { session, candidate, path } = argument.target;
      const chosen = await find(session, candidate);
      await review.openFile(chosen.session.id, chosen.candidate, path);
    },
    [commands.acceptCandidate]: async (argument) => {
      const chosen = await onScreen(argument, ({ accept }) => accept);
      if (chosen === undefined) return;
      const { passedVerification } = candidateActions(chosen.candidate);
      if (passedVerification === null) {
        throw windowFault(
          'NotVerified',
          vscode.l10n.t('This candidate has not passed its checks.'),
          vscode.l10n.t('Verify it, or reject it.'),
        );
      }
      if (!(await knowsWhatIsHidden(chosen))) return;
      await deciding(chosen.candidate.digest, async () => {
        const { session, integration } = await link.request('candidate/accept', {
          session: chosen.session.id,
          candidate: chosen.candidate.digest,
          verification: passedVerification,
          reviewer: await assertedReviewer(chosen.session.root),
        });
        observer.put(session);
        if (integration !== null) tell(integration);
      });
    },
    [commands.rejectCandidate]: async (argument) => {
      const chosen = await onScreen(argument, ({ reject }) => reject);
      if (chosen === undefined) return;
      const { digest } = chosen.candidate;
      const { used, attempts } = chosen.session.budget;
      const answer = await askRejection({
        title: vscode.l10n.t('Reject Candidate {0}', shortDigest(digest)),
        draft: drafts.get(digest) ?? '',
        used,
        attempts,
        onDraft: (words) => drafts.set(digest, words),
      });
      if (answer === undefined) return;
      await deciding(digest, async () => {
        observer.put(
          await link.request('candidate/reject', {
            session: chosen.session.id,
            candidate: digest,
            reviewer: await assertedReviewer(chosen.session.root),
            ...answer,
          }),
        );
        drafts.delete(digest);
      });
    },
    [commands.verifyCandidate]: async (argument) => {
      const chosen = await choose(argument, (candidate) => candidateActions(candidate).verify);
      if (chosen === undefined) return;
      await parts.operations.run(
        vscode.l10n.t('Verifying {0}', shortDigest(chosen.candidate.digest)),
        visible(chosen.session.title),
        (token) =>
          link.request('candidate/verify', { session: chosen.session.id, candidate: chosen.candidate.digest }, token),
      );
      await observer.refresh(chosen.session.id);
    },
    [commands.integrateCandidate]: async (argument) => {
      const chosen = await choose(argument, (candidate) => candidateActions(candidate).integrate);
      if (chosen === undefined) return;
      const { session, integration } = await link.request('candidate/integrate', {
        session: chosen.session.id,
        candidate: chosen.candidate.digest,
      });
      observer.put(session);
      tell(integration);
    },
    [commands.undoIntegration]: async (argument) => {
      const named = isRow(argument) && argument.target.kind === 'integration' ? argument.target : undefined;
      const chosen =
        named === undefined ? await choose(argument, (candidate) => candidateActions(candidate).undo) : undefined;
      const integrated = chosen === undefined ? null : candidateActions(chosen.candidate).integrated;
      const wanted =
        named ??
        (chosen === undefined || integrated === null
          ? undefined
          : { session: chosen.session.id, integration: integrated.id });
      if (wanted === undefined) return;
      const { session, integration } = await link.request('integration/undo', {
        session: wanted.session,
        integration: wanted.integration,
      });
      observer.put(session);
      tell(integration);
    },
  };
}
