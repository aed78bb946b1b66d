import { randomUUID } from 'node:crypto';
import * as vscode from 'vscode';
import { imagePlanScheme, imagesScheme, outputLanguage, textScheme } from '../ids.ts';
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
  readonly #registrations: readonly vscode.Disposable[];
  /** A reload brings tabs back: a text of this host must not be opened under the name of one that is gone. */
  readonly #host = randomUUID();
  #next = 1;

  constructor() {
    const provider: vscode.TextDocumentContentProvider = {
      provideTextDocumentContent: (uri) =>
        this.#texts.get(uri.query) ??
        vscode.l10n.t('This text belonged to an earlier window. Open it again from the Sessions view.'),
    };
    this.#registrations = [textScheme, imagePlanScheme, imagesScheme].map((scheme) =>
      vscode.workspace.registerTextDocumentContentProvider(scheme, provider),
    );
  }

  /** `as`: another scheme than that of plain texts, for what has buttons of its own, and its URI's fragment. */
  async open(
    title: string,
    text: string,
    as: { readonly scheme: string; readonly fragment: string } = { scheme: textScheme, fragment: '' },
  ): Promise<vscode.TextDocument> {
    const key = `${this.#host}-${this.#next++}`;
    this.#texts.set(key, text);
    const oldest = this.#texts.keys().next().value;
    if (this.#texts.size > kept && oldest !== undefined) this.#texts.delete(oldest);
    const name = visible(title, 60).replaceAll('/', '∕');
    const document = await vscode.workspace.openTextDocument(
      vscode.Uri.from({ ...as, path: `/${name}.txt`, query: key }),
    );
    return asOutput(document);
  }

  dispose(): void {
    for (const registration of this.#registrations) registration.dispose();
    this.#texts.clear();
  }
}
