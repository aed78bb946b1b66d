import { fileURLToPath } from 'node:url';
import { TextDocument } from 'vscode-languageserver-textdocument';
import {
  CodeLensRequest,
  CompletionRequest,
  DidChangeTextDocumentNotification,
  DidCloseTextDocumentNotification,
  DidOpenTextDocumentNotification,
  HoverRequest,
  PublishDiagnosticsNotification,
  TextDocumentSyncKind,
  type CodeLensParams,
  type CompletionParams,
  type DidChangeTextDocumentParams,
  type DidCloseTextDocumentParams,
  type DidOpenTextDocumentParams,
  type HoverParams,
  type InitializeResult,
  type MessageConnection,
} from 'vscode-languageserver-protocol/node';
import * as z from 'zod';
import type { Logger } from '../log.ts';
import type { LanguageService } from './port.ts';

/** Open documents a connection may hold, and characters each: contracts are small. */
const maxDocuments = 64;
const maxCharacters = 1_000_000;
/** Milliseconds of quiet before diagnostics are computed: as long as a pause in typing. */
const debounceMs = 150;

const Uri = z.string().max(8192);
const Version = z.number().int();
const Position = z.object({ line: z.number().int().nonnegative(), character: z.number().int().nonnegative() });
const Range = z.object({ start: Position, end: Position });
const TextDocumentId = z.object({ uri: Uri });

/** The editor's words are parsed like any other parameters; what isn't understood is dropped. */
const shapes = {
  open: z.object({ textDocument: z.object({ uri: Uri, languageId: z.string(), version: Version, text: z.string() }) }),
  change: z.object({
    textDocument: z.object({ uri: Uri, version: Version }),
    contentChanges: z
      .array(z.union([z.object({ range: Range, text: z.string() }), z.object({ text: z.string() })]))
      .max(10_000),
  }),
  close: z.object({ textDocument: TextDocumentId }),
  at: z.object({ textDocument: TextDocumentId, position: Position }),
  whole: z.object({ textDocument: TextDocumentId }),
} as const;

/** What the Kernel can do as a language server. */
export const languageCapabilities: InitializeResult['capabilities'] = {
  positionEncoding: 'utf-16',
  textDocumentSync: { openClose: true, change: TextDocumentSyncKind.Incremental },
  completionProvider: { triggerCharacters: ['"', ':', ' ', '['] },
  hoverProvider: true,
  codeLensProvider: { resolveProvider: false },
};

function filePath(uri: string): string | undefined {
  if (!uri.startsWith('file:')) return undefined;
  try {
    return fileURLToPath(uri);
  } catch {
    return undefined;
  }
}

/**
 * The open contract documents of one connection, and the language requests about them. Registers itself on the
 * connection; `dispose` stops what is scheduled.
 */
export function serveLanguage(
  connection: MessageConnection,
  language: LanguageService,
  log: Logger,
): { dispose(): void } {
  const documents = new Map<string, TextDocument>();
  const timers = new Map<string, NodeJS.Timeout>();
  let disposed = false;

  const publish = async (uri: string): Promise<void> => {
    const document = documents.get(uri);
    const path = filePath(uri);
    if (document === undefined || path === undefined) return;
    const version = document.version;
    try {
      const diagnostics = await language.diagnostics(path, document.getText());
      // An edit that came meanwhile has scheduled its own run.
      if (disposed || documents.get(uri)?.version !== version) return;
      await connection.sendNotification(PublishDiagnosticsNotification.method, {
        uri,
        version,
        diagnostics: [...diagnostics],
      });
    } catch (error) {
      if (!disposed) log('warn', 'diagnostics failed', { uri, error });
    }
  };
  const schedule = (uri: string, delay: number): void => {
    clearTimeout(timers.get(uri));
    timers.set(
      uri,
      setTimeout(() => {
        timers.delete(uri);
        void publish(uri);
      }, delay),
    );
  };
  const forget = (uri: string): void => {
    clearTimeout(timers.get(uri));
    timers.delete(uri);
    documents.delete(uri);
  };

  connection.onNotification(DidOpenTextDocumentNotification.method, (raw: DidOpenTextDocumentParams) => {
    const parsed = shapes.open.safeParse(raw);
    if (!parsed.success) return;
    const { uri, languageId, version, text } = parsed.data.textDocument;
    if (filePath(uri) === undefined || text.length > maxCharacters || documents.size >= maxDocuments) return;
    documents.set(uri, TextDocument.create(uri, languageId, version, text));
    schedule(uri, 0);
  });
  connection.onNotification(DidChangeTextDocumentNotification.method, (raw: DidChangeTextDocumentParams) => {
    const parsed = shapes.change.safeParse(raw);
    const document = parsed.success ? documents.get(parsed.data.textDocument.uri) : undefined;
    if (!parsed.success || document === undefined) return;
    const { textDocument, contentChanges } = parsed.data;
    TextDocument.update(document, contentChanges, textDocument.version);
    if (document.getText().length > maxCharacters) forget(textDocument.uri);
    else schedule(textDocument.uri, debounceMs);
  });
  connection.onNotification(DidCloseTextDocumentNotification.method, (raw: DidCloseTextDocumentParams) => {
    const parsed = shapes.close.safeParse(raw);
    if (!parsed.success || !documents.has(parsed.data.textDocument.uri)) return;
    const { uri } = parsed.data.textDocument;
    forget(uri);
    void connection
      .sendNotification(PublishDiagnosticsNotification.method, { uri, diagnostics: [] })
      .catch(() => undefined);
  });

  const lookUp = (uri: string): { readonly path: string; readonly text: string } | undefined => {
    const path = filePath(uri);
    const text = documents.get(uri)?.getText();
    return path === undefined || text === undefined ? undefined : { path, text };
  };
  connection.onRequest(CompletionRequest.method, async (raw: CompletionParams) => {
    const parsed = shapes.at.safeParse(raw);
    const found = parsed.success ? lookUp(parsed.data.textDocument.uri) : undefined;
    return !parsed.success || found === undefined
      ? []
      : language.completion(found.path, found.text, parsed.data.position);
  });
  connection.onRequest(HoverRequest.method, async (raw: HoverParams) => {
    const parsed = shapes.at.safeParse(raw);
    const found = parsed.success ? lookUp(parsed.data.textDocument.uri) : undefined;
    return !parsed.success || found === undefined ? null : language.hover(found.path, found.text, parsed.data.position);
  });
  connection.onRequest(CodeLensRequest.method, async (raw: CodeLensParams) => {
    const parsed = shapes.whole.safeParse(raw);
    const found = parsed.success ? lookUp(parsed.data.textDocument.uri) : undefined;
    return found === undefined ? [] : language.codeLenses(found.path, found.text);
  });

  return {
    dispose() {
      disposed = true;
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
      documents.clear();
    },
  };
}
