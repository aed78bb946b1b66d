import * as vscode from 'vscode';
import type { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import type { CandidateFile, CandidateView, SessionView } from '../../protocol/views.ts';
import { contextKeys } from '../ids.ts';
import { emptySha256, formatArtefactUri, parseArtefactUri, type ArtefactUri } from '../uris.ts';
import { isSessionCurrent, type StateStore } from '../window-state.ts';
import { visible } from '../visible-text.ts';
import { shortDigest, standingWords } from '../trees/words.ts';
import { setKey } from '../context-key.ts';
import { candidateActions } from './candidate-actions.ts';
import { parseEvidenceUri } from './evidence-documents.ts';
import { wholeOnScreen } from './whole-on-screen.ts';

export interface ReviewedCandidate {
  readonly session: SessionId;
  readonly candidate: CandidateDigest;
}

export interface CandidateOnScreen extends ReviewedCandidate {
  readonly view: CandidateView;
  /** Another candidate of its session came later. */
  readonly superseded: boolean;
  /** What is shown of its session is what the Kernel says now. */
  readonly current: boolean;
  /** The newest of its session, and every file of it is on screen: what a decision about the whole may be bound to. */
  readonly decidable: boolean;
}

/** Which side of a candidate's file a URI shows; the other side may not exist. */
export function sideUri(
  session: SessionId,
  candidate: CandidateDigest,
  file: CandidateFile,
  side: 'before' | 'after',
): vscode.Uri | undefined {
  const artefact = side === 'before' ? file.before : file.after;
  if (artefact === null) return undefined;
  return vscode.Uri.from(
    formatArtefactUri({
      kind: 'candidate',
      session,
      candidate,
      side,
      path: file.path,
      sha256: artefact.sha256,
      size: artefact.size,
    }),
  );
}

/** A side that is not there, as the empty file that it is compared with: VS Code tells of a file only with both sides. */
function emptySideUri(
  session: SessionId,
  candidate: CandidateDigest,
  file: CandidateFile,
  side: 'before' | 'after',
): vscode.Uri {
  const shared = { kind: 'candidate', session, candidate, side, path: file.path } as const;
  return vscode.Uri.from(formatArtefactUri({ ...shared, sha256: emptySha256, size: 0 }));
}

/** What `Tab.input` of a multi-file diff holds, the files that have both sides; the class is not part of the stable API, its shape is checked here. */
function multiDiffUris(input: unknown): readonly vscode.Uri[] {
  if (typeof input !== 'object' || input === null || !('textDiffs' in input) || !Array.isArray(input.textDiffs))
    return [];
  return input.textDiffs.flatMap((diff: unknown) => {
    if (typeof diff !== 'object' || diff === null) return [];
    return ['original', 'modified'].flatMap((side) => {
      const uri = (diff as Record<string, unknown>)[side];
      return uri instanceof vscode.Uri ? [uri] : [];
    });
  });
}

function tabUris(tab: vscode.Tab): readonly vscode.Uri[] {
  const { input } = tab;
  if (input instanceof vscode.TabInputTextDiff) return [input.original, input.modified];
  if (input instanceof vscode.TabInputText) return [input.uri];
  return multiDiffUris(input);
}

interface ShownCandidate extends ReviewedCandidate {
  /** The sides of its files that the tab shows. */
  readonly sides: readonly ArtefactUri[];
}

/** The one candidate whose bytes a tab shows; undefined when it shows others, none, or a mixture. */
function candidateOfTab(tab: vscode.Tab | undefined): ShownCandidate | undefined {
  if (tab === undefined) return undefined;
  const shown: (ArtefactUri & { kind: 'candidate' })[] = [];
  for (const uri of tabUris(tab)) {
    const parsed = parseArtefactUri(uri);
    if (parsed?.kind === 'candidate') shown.push(parsed);
    else return undefined;
  }
  const first = shown[0];
  if (first === undefined) return undefined;
  const same = shown.every((uri) => uri.candidate === first.candidate && uri.session === first.session);
  return same ? { session: first.session, candidate: first.candidate, sides: shown } : undefined;
}

/**
 * Opens candidates as diffs of their exact bytes, and keeps the context keys by which the buttons in the editor title
 * are shown: they are on only for the digest on screen, and only while it is the session's newest candidate.
 */
export class ReviewEditor implements vscode.Disposable {
  readonly #store: StateStore;
  readonly #subscriptions: vscode.Disposable[];
  readonly #changed = new vscode.EventEmitter<void>();
  /** Another candidate came on screen, or none is. */
  readonly onDidChange = this.#changed.event;
  #shown = '';

  constructor(store: StateStore) {
    this.#store = store;
    this.#subscriptions = [
      this.#changed,
      vscode.window.tabGroups.onDidChangeTabs(() => this.#publish()),
      vscode.window.tabGroups.onDidChangeTabGroups(() => this.#publish()),
      store.onChange(() => this.#publish()),
    ];
    this.#publish();
  }

  /** The candidate on screen, with what the Kernel last said about it. */
  onScreen(): CandidateOnScreen | undefined {
    const reviewed = candidateOfTab(vscode.window.tabGroups.activeTabGroup.activeTab);
    if (reviewed === undefined) return undefined;
    const session = this.#store.state.sessions.get(reviewed.session)?.value;
    const view = session?.candidates.find(({ digest }) => digest === reviewed.candidate);
    if (session === undefined || view === undefined) return undefined;
    const superseded = session.candidates.at(-1)?.digest !== reviewed.candidate;
    return {
      session: reviewed.session,
      candidate: reviewed.candidate,
      view,
      superseded,
      current: isSessionCurrent(this.#store.state, session),
      decidable: !superseded && wholeOnScreen(view.files, reviewed.sides),
    };
  }

  /** The candidate whose evidence is the active editor: what a command without a row is about. */
  evidenceOnScreen(): ReviewedCandidate | undefined {
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    return input instanceof vscode.TabInputText ? parseEvidenceUri(input.uri) : undefined;
  }

  /** All files of a candidate in one multi-file diff. An open one of the same bytes is replaced, not doubled. */
  async open(session: SessionView, candidate: CandidateView): Promise<void> {
    await this.#close(session.id, candidate.digest);
    const resources = candidate.files.map((file) => {
      const [before, after] = (['before', 'after'] as const).map(
        (side) =>
          sideUri(session.id, candidate.digest, file, side) ?? emptySideUri(session.id, candidate.digest, file, side),
      );
      return [after, before, after];
    });
    // Who spoke is part of the name: it counts for all that is read below it.
    const label = vscode.l10n.t(
      'Candidate {0} ({1}): {2}',
      shortDigest(candidate.digest),
      standingWords(session.binding, vscode.l10n.t),
      visible(session.title, 60),
    );
    await vscode.commands.executeCommand('vscode.changes', label, resources);
  }

  /** One file of a candidate in an ordinary diff. */
  async openFile(session: SessionId, candidate: CandidateView, path: string): Promise<void> {
    const file = candidate.files.find((entry) => entry.path === path);
    if (file === undefined) return;
    const before = sideUri(session, candidate.digest, file, 'before');
    const after = sideUri(session, candidate.digest, file, 'after');
    const name = visible(file.path.split('/').at(-1) ?? file.path, 80);
    const digest = shortDigest(candidate.digest);
    if (before !== undefined && after !== undefined) {
      const label = vscode.l10n.t('{0} (snapshot ↔ candidate {1})', name, digest);
      await vscode.commands.executeCommand('vscode.diff', before, after, label, { preview: true });
      return;
    }
    const only = after ?? before;
    if (only === undefined) return;
    const label =
      after === undefined
        ? vscode.l10n.t('{0} (deleted by candidate {1})', name, digest)
        : vscode.l10n.t('{0} (added by candidate {1})', name, digest);
    await vscode.commands.executeCommand('vscode.open', only, { preview: true }, label);
  }

  dispose(): void {
    for (const subscription of this.#subscriptions) subscription.dispose();
  }

  async #close(session: SessionId, candidate: CandidateDigest): Promise<void> {
    const same = vscode.window.tabGroups.all
      .flatMap((group) => group.tabs)
      .filter((tab) => {
        const shown = multiDiffUris(tab.input).length > 0 ? candidateOfTab(tab) : undefined;
        return shown?.session === session && shown.candidate === candidate;
      });
    if (same.length > 0) await vscode.window.tabGroups.close(same, true);
  }

  #publish(): void {
    const shown = this.onScreen();
    const usable = shown?.decidable === true && shown.current;
    const actions = usable ? candidateActions(shown.view) : undefined;
    const keys = {
      [contextKeys.reviewOpen]: shown !== undefined,
      [contextKeys.reviewUndecided]: shown !== undefined && shown.view.decision === null,
      [contextKeys.reviewCanAccept]: actions?.accept ?? false,
      [contextKeys.reviewCanReject]: actions?.reject ?? false,
      [contextKeys.reviewCanVerify]: actions?.verify ?? false,
      [contextKeys.reviewCanIntegrate]: actions?.integrate ?? false,
      // What was integrated can be undone whatever came after it.
      [contextKeys.reviewCanUndo]: shown !== undefined && shown.current && candidateActions(shown.view).undo,
    };
    for (const [key, value] of Object.entries(keys)) setKey(key, value);
    const name = shown === undefined ? '' : `${shown.session}/${shown.candidate}/${String(shown.decidable)}`;
    if (name === this.#shown) return;
    this.#shown = name;
    this.#changed.fire();
  }
}
