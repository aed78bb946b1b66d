import * as vscode from 'vscode';
import type { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import type { CandidateView } from '../../protocol/views.ts';
import { offer } from '../messages.ts';
import { isCurrent, withEntry, type StateStore, type UnseenFile } from '../window-state.ts';
import { sideUri, type CandidateOnScreen } from './review-editor.ts';
import { unseenOf, type DiffSettings } from './unseen-changes.ts';

const [ignoreTrim, stopRendering] = ['diffEditor.ignoreTrimWhitespace', 'editor.stopRenderingLineAfter'] as const;

function settingsFor(scope: vscode.ConfigurationScope | undefined): DiffSettings {
  const configuration = vscode.workspace.getConfiguration(undefined, scope);
  return {
    ignoreTrimWhitespace: configuration.get<boolean>(ignoreTrim) ?? true,
    stopRenderingLineAfter: configuration.get<number>(stopRendering) ?? 10_000,
  };
}

/** The settings under which VS Code shows a file: they may be others for its language. */
async function diffSettings(uri: vscode.Uri): Promise<DiffSettings> {
  const document = await vscode.workspace.openTextDocument(uri).then(
    (opened) => opened,
    // Binary: no editor shows it under any settings.
    () => undefined,
  );
  return settingsFor(document === undefined ? undefined : { uri, languageId: document.languageId });
}

/**
 * Lets the diffs show changes of white space, in the person's settings. Where a folder or a language has the setting for
 * itself it goes on counting there: then it is shown, and theirs to change.
 */
export async function showWhiteSpace(): Promise<void> {
  await vscode.workspace.getConfiguration().update(ignoreTrim, false, vscode.ConfigurationTarget.Global);
  const languages = vscode.workspace.getConfiguration().inspect(ignoreTrim)?.languageIds ?? [];
  const scopes = [undefined, ...languages.map((languageId) => ({ languageId }))];
  if (scopes.some((scope) => settingsFor(scope).ignoreTrimWhitespace))
    await vscode.commands.executeCommand('workbench.action.openSettings', ignoreTrim);
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
  readonly #reading = new Map<CandidateDigest, { readonly under: number; readonly done: Promise<void> }>();
  /** Rises with each change of the settings: what was compared under others is not kept. */
  #settings = 0;
  #offered = false;

  constructor(options: UnseenWatchOptions) {
    this.#options = options;
    const { store, review } = options;
    this.#subscriptions = [
      review.onDidChange(() => this.#look()),
      // What could not be read while there was no connection is looked at again, on the same screen.
      store.onChange((state, before) => {
        if (isCurrent(state) && !isCurrent(before)) this.#look();
      }),
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

  /**
   * What the diff of a candidate hides under the settings as they are now; undefined where its bytes could not be read.
   * Never rejects. The store has it, too.
   */
  async of(session: SessionId, candidate: CandidateView): Promise<readonly UnseenFile[] | undefined> {
    const { store } = this.#options;
    const { digest } = candidate;
    for (;;) {
      const known = store.state.unseen.get(digest);
      if (known !== undefined) return known;
      // One that began under other settings says nothing of these.
      const { under, done } = this.#reading.get(digest) ?? this.#read(session, candidate);
      await done;
      if (under === this.#settings) return store.state.unseen.get(digest);
    }
  }

  #read(session: SessionId, candidate: CandidateView): { readonly under: number; readonly done: Promise<void> } {
    const { store, logError } = this.#options;
    const { digest } = candidate;
    const under = this.#settings;
    const done = this.#compare(session, candidate)
      .then((files) => {
        // Compared under settings that have changed meanwhile: whoever waits asks again.
        if (under !== this.#settings) return;
        store.update({ unseen: withEntry(store.state.unseen, digest, files) });
        if (files.some(({ unseen }) => unseen.some(({ kind }) => kind === 'white-space'))) void this.#offerWhiteSpace();
      })
      // Not read is not known: the evidence says so, and the next look tries again.
      .catch((error: unknown) => logError(`bytes of ${digest}`, error))
      .finally(() => this.#reading.delete(digest));
    const reading = { under, done };
    this.#reading.set(digest, reading);
    return reading;
  }

  async #compare(session: SessionId, candidate: CandidateView): Promise<readonly UnseenFile[]> {
    const files: UnseenFile[] = [];
    for (const file of candidate.files) {
      const [before, after] = (['before', 'after'] as const).map((side) =>
        sideUri(session, candidate.digest, file, side),
      );
      const read = async (uri: vscode.Uri | undefined): Promise<Uint8Array | null> =>
        uri === undefined ? null : this.#options.readFile(uri);
      const [old, now] = await Promise.all([read(before), read(after)]);
      const shown = after ?? before;
      const settings = shown === undefined ? settingsFor(undefined) : await diffSettings(shown);
      const unseen = unseenOf(file, old, now, settings);
      if (unseen.length > 0) files.push({ path: file.path, unseen });
    }
    return files;
  }

  /** The one thing of these that a person can have shown; once a window: the status bar goes on saying it. */
  async #offerWhiteSpace(): Promise<void> {
    if (this.#offered) return;
    this.#offered = true;
    const text = vscode.l10n.t(
      'This candidate changes white space that the diff may hide: your setting diffEditor.ignoreTrimWhitespace is on.',
    );
    if (!(await offer('warning', text, vscode.l10n.t('Show White Space Changes')))) return;
    await showWhiteSpace();
  }
}
