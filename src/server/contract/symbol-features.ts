import { findNodeAtLocation, parseTree } from 'jsonc-parser';
import type { JSONPath } from 'jsonc-parser';
import { CompletionItemKind } from 'vscode-languageserver-protocol';
import type { CompletionItem, Range } from 'vscode-languageserver-protocol';
import { EscrowError } from '../../protocol/errors.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import { importsName } from '../scope/definition.ts';
import type { Outline, ScopeChecker, SymbolKind } from '../scope/port.ts';
import { outlinesIn } from './file-outlines.ts';
import { repositoryRoot } from './git-files.ts';
import { shownPath } from './shown-path.ts';

/** Where a contract names a symbol that is there. */
export const symbolPlace = /^writable\/\*\/symbols\/\*$/;

/** A file in which symbols are named, and what can be. */
export interface NamedIn {
  readonly file: string;
  readonly outline: Outline;
}

/** The file that the entry around a place names; undefined where it names none that can be looked into. */
export async function namedIn(
  scope: ScopeChecker,
  contractPath: string,
  text: string,
  place: JSONPath,
): Promise<NamedIn | undefined> {
  const tree = parseTree(text, [], { allowTrailingComma: true });
  const node = tree === undefined ? undefined : findNodeAtLocation(tree, [...place.slice(0, 2), 'path']);
  const file: unknown = node?.value;
  if (typeof file !== 'string' || !parseRelPath(file).ok) return undefined;
  try {
    const found = await outlinesIn(await repositoryRoot(contractPath), [file], scope);
    const outline = found.get(file)?.outline;
    return outline === undefined ? undefined : { file, outline };
  } catch (error) {
    if (EscrowError.is(error)) return undefined;
    throw error;
  }
}

const kinds: Readonly<Record<SymbolKind, CompletionItemKind>> = {
  class: CompletionItemKind.Class,
  enum: CompletionItemKind.Enum,
  field: CompletionItemKind.Field,
  function: CompletionItemKind.Function,
  interface: CompletionItemKind.Interface,
  member: CompletionItemKind.Property,
  method: CompletionItemKind.Method,
  namespace: CompletionItemKind.Module,
  type: CompletionItemKind.Interface,
  variable: CompletionItemKind.Variable,
};

/** What can be named, in the order of the file; what it imports comes last. */
export function symbolItems(outline: Outline | undefined, range: Range): readonly CompletionItem[] {
  if (outline?.ok !== true) return [];
  const item = (name: string, kind: CompletionItemKind, detail: string, n: number): CompletionItem => ({
    label: name,
    kind,
    detail,
    sortText: String(n).padStart(5, '0'),
    filterText: JSON.stringify(name),
    textEdit: { range, newText: JSON.stringify(name) },
  });
  return [
    ...outline.symbols.map(({ name, kind, line }, n) => item(name, kinds[kind], `${kind}, line ${line}`, n)),
    item(importsName, CompletionItemKind.Module, 'what the file imports', outline.symbols.length),
  ];
}

/** What a named symbol is; undefined where it is none. */
export function aboutSymbol(name: string, { file, outline }: NamedIn): string | undefined {
  if (!outline.ok) return undefined;
  if (name === importsName) return `What \`${shownPath(file)}\` imports. Imports may change, come and go.`;
  const symbol = outline.symbols.find((each) => each.name === name);
  if (symbol === undefined) return undefined;
  return `The ${symbol.kind} \`${shownPath(name)}\`, line ${symbol.line} of \`${shownPath(file)}\`. It may change as a whole: its decorators, its \`export\`, and what is in it.`;
}
