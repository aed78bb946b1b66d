import * as vscode from 'vscode';
import type { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import type { CandidateView } from '../../protocol/views.ts';
import { offer } from '../messages.ts';
import { withEntry, type StateStore, type UnseenFile } from '../window-state.ts';
import { sideUri, type CandidateOnScreen } from './review-editor.ts';
import { unseenChanges, type DiffSettings } from './unseen-changes.ts';

const [ignoreTrim, stopRendering] = ['diffEditor.ignoreTrimWhitespace', 'editor.stopRenderingLineAfter'] as const;

function diffSettings(): DiffSettings {
  const configuration = vscode.workspace.getConfiguration();
  return {
    ignoreTrimWhitespace: configuration.get<boolean>(ignoreTrim) ?? true,
    stopRenderingLineAfter: configuration.get<number>(stopRendering) ?? 10_000,
  };
}

export interface UnseenWatchOptions {
  readonly store: StateStore;
  readonly review: { readonly onDidChange: vscode.Event<void>; onScreen(): CandidateOnScreen | undefined };
  readonly readFile: (uri: vscode.Uri) => Promise<Uint8Array>;
  readonly logError: (what: string, error: unknown) => void;
}

/** Finds out what the diff of each candidate that comes on screen does not show, and keeps it in the store. */
export class UnseenWatch implements vscode.Disposable {
  readonly #options: UnseenWatchOptions;
  readonly #subscriptions: readonly vscode.Disposable[];
  readonly #reading = new Set<CandidateDigest>();
  /** Rises with each change of the settings: what was compared under others is not kept. */
  #settings = 0;
  #offered = false;

  constructor(options: UnseenWatchOptions) {
    this.#options = options;
    const { store, review } = options;
    this.#subscriptions = [
      review.onDidChange(() => this.#look()),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (!event.affectsConfiguration(ignoreTrim) && !event.affectsConfiguration(stopRendering)) return;
        this.#settings += 1;
        store.update({ unseen: new Map() });
        this.#look();
      }),
    ];
  }

  dispose(): void {
    for (const subscription of this.#subscriptions) subscription.dispose();
  }

  #look(): void {
    const shown = this.#options.review.onScreen();
    if (shown !== undefined) void this.of(shown.session, shown.view);
  }

  /** Reads a candidate's files and says in the store what their diff hides. Never throws. */
  async of(session: SessionId, candidate: CandidateView): Promise<void> {
    const { store, readFile, logError } = this.#options;
    const { digest } = candidate;
    if (store.state.unseen.has(digest) || this.#reading.has(digest)) return;
    this.#reading.add(digest);
    const under = this.#settings;
    try {
      const settings = diffSettings();
      const files: UnseenFile[] = [];
      for (const file of candidate.files) {
        const read = async (side: 'before' | 'after'): Promise<Uint8Array | null> => {
          const uri = sideUri(session, digest, file, side);
          return uri === undefined ? null : readFile(uri);
        };
        const [before, after] = await Promise.all([read('before'), read('after')]);
        const unseen = unseenChanges(before, after, settings);
        if (unseen.length > 0) files.push({ path: file.path, unseen });
      }
      if (under !== this.#settings) return;
      store.update({ unseen: withEntry(store.state.unseen, digest, files) });
      if (files.some(({ unseen }) => unseen.some(({ kind }) => kind === 'white-space'))) void this.#offerWhiteSpace();
    } catch (error) {
      // Not read is not known: the evidence says so, and the next look tries again.
      logError(`bytes of ${digest}`, error);
    } finally {
      this.#reading.delete(digest);
      if (under !== this.#settings) void this.of(session, candidate);
    }
  }

  /** The one thing of these that a person can have shown; once a window: the status bar goes on saying it. */
  async #offerWhiteSpace(): Promise<void> {
    if (this.#offered) return;
    this.#offered = true;
    const text = vscode.l10n.t(
      'This candidate changes white space that the diff may hide: your setting diffEditor.ignoreTrimWhitespace is on.',
    );
    if (!(await offer('warning', text, vscode.l10n.t('Show White Space Changes')))) return;
    await vscode.workspace.getConfiguration().update(ignoreTrim, false, vscode.ConfigurationTarget.Global);
  }
}
