import * as vscode from 'vscode';
import { outputLanguage, textScheme } from '../ids.ts';
import { visible } from '../visible-text.ts';

/** Texts that are kept for open documents; older ones are forgotten. */
const kept = 100;

/** Gives a document the language in which nothing is interpreted and nothing is a link. */
export async function asOutput(document: vscode.TextDocument): Promise<vscode.TextDocument> {
  return document.languageId === outputLanguage
    ? document
    : vscode.languages.setTextDocumentLanguage(document, outputLanguage);
}

/** Words of a model or a program as read-only plain text. */
export class PlainTexts implements vscode.Disposable {
  readonly #texts = new Map<string, string>();
  readonly #registration: vscode.Disposable;
  #next = 1;

  constructor() {
    this.#registration = vscode.workspace.registerTextDocumentContentProvider(textScheme, {
      provideTextDocumentContent: (uri) =>
        this.#texts.get(uri.query) ??
        vscode.l10n.t('This text belonged to an earlier window. Open it again from the Sessions view.'),
    });
  }

  async open(title: string, text: string): Promise<vscode.TextDocument> {
    const key = String(this.#next++);
    this.#texts.set(key, text);
    const oldest = this.#texts.keys().next().value;
    if (this.#texts.size > kept && oldest !== undefined) this.#texts.delete(oldest);
    const name = visible(title, 60).replaceAll('/', '∕');
    const document = await vscode.workspace.openTextDocument(
      vscode.Uri.from({ scheme: textScheme, path: `/${name}.txt`, query: key }),
    );
    return asOutput(document);
  }

  dispose(): void {
    this.#registration.dispose();
    this.#texts.clear();
  }
}
