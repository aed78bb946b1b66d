import * as vscode from 'vscode';
import { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import { evidenceLanguage, evidenceScheme } from '../ids.ts';
import { shortDigest } from '../trees/words.ts';
import type { TreeWords } from '../trees/tree-node.ts';
import { isSessionCurrent, type StateStore, type WindowState } from '../window-state.ts';
import { evidenceText } from './evidence-text.ts';

interface Named {
  readonly session: SessionId;
  readonly candidate: CandidateDigest;
}

function evidenceUri({ session, candidate }: Named): vscode.Uri {
  const query = new URLSearchParams({ session, candidate }).toString();
  return vscode.Uri.from({
    scheme: evidenceScheme,
    path: `/${vscode.l10n.t('Evidence')} ${shortDigest(candidate)}`,
    query,
  });
}

/** Which candidate a document of ours is about; undefined for a URI from elsewhere. */
export function parseEvidenceUri(uri: vscode.Uri): Named | undefined {
  if (uri.scheme !== evidenceScheme) return undefined;
  const query = new URLSearchParams(uri.query);
  const session = SessionId.safeParse(query.get('session'));
  const candidate = CandidateDigest.safeParse(query.get('candidate'));
  return session.success && candidate.success ? { session: session.data, candidate: candidate.data } : undefined;
}

const current = (state: WindowState, session: SessionId): boolean => {
  const known = state.sessions.get(session)?.value;
  return known !== undefined && isSessionCurrent(state, known);
};

/** The evidence of a candidate as a read-only text that follows what the Kernel says while it is open. */
export class EvidenceDocuments implements vscode.Disposable {
  readonly #store: StateStore;
  readonly #words: TreeWords;
  readonly #fetch: (session: SessionId) => Promise<void>;
  readonly #changed = new vscode.EventEmitter<vscode.Uri>();
  readonly #subscriptions: vscode.Disposable[];

  /** `fetch` brings a session and its contract into the store; called where a text needs them. */
  constructor(store: StateStore, words: TreeWords, fetch: (session: SessionId) => Promise<void>) {
    this.#store = store;
    this.#words = words;
    this.#fetch = fetch;
    this.#subscriptions = [
      this.#changed,
      vscode.workspace.registerTextDocumentContentProvider(evidenceScheme, {
        onDidChange: this.#changed.event,
        provideTextDocumentContent: (uri) => this.#text(uri),
      }),
      store.onChange((state, before) => this.#follow(state, before)),
      // Also for one that a reload brought back. VS Code itself would look at a file name for its language.
      vscode.workspace.onDidOpenTextDocument((document) => {
        if (document.uri.scheme !== evidenceScheme || document.languageId === evidenceLanguage) return;
        void vscode.languages.setTextDocumentLanguage(document, evidenceLanguage);
      }),
    ];
  }

  async open(named: Named): Promise<void> {
    await this.#fetch(named.session);
    const document = await vscode.workspace.openTextDocument(evidenceUri(named));
    // The diff is a preview: another preview would take its place.
    await vscode.window.showTextDocument(document, { preview: false });
  }

  dispose(): void {
    for (const subscription of this.#subscriptions) subscription.dispose();
  }

  async #text(uri: vscode.Uri): Promise<string> {
    const named = parseEvidenceUri(uri);
    if (named === undefined) throw vscode.FileSystemError.FileNotFound(uri);
    if (!this.#store.state.sessions.has(named.session)) await this.#fetch(named.session);
    const { state } = this.#store;
    const session = state.sessions.get(named.session);
    const candidate = session?.value.candidates.find(({ digest }) => digest === named.candidate);
    if (session === undefined || candidate === undefined) {
      return vscode.l10n.t('Not known to this window. Open it again from the Sessions view.');
    }
    const contract = state.contracts.get(session.value.contractDigest);
    const text = evidenceText(session.value, candidate, contract, this.#words, state.unseen.get(named.candidate));
    return isSessionCurrent(state, session.value)
      ? text
      : `${text}\n${vscode.l10n.t('Not current; last observed {0}.', this.#words.time(session.at))}\n`;
  }

  #follow(state: WindowState, before: WindowState): void {
    for (const document of vscode.workspace.textDocuments) {
      const named = parseEvidenceUri(document.uri);
      if (named === undefined) continue;
      const turned = current(state, named.session) !== current(before, named.session);
      const changed = state.sessions.get(named.session)?.value !== before.sessions.get(named.session)?.value;
      const looked = state.unseen !== before.unseen;
      if (turned || changed || looked || state.contracts !== before.contracts) this.#changed.fire(document.uri);
    }
  }
}
