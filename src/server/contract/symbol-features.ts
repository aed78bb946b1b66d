import { findNodeAtLocation, getNodeValue, parseTree } from 'jsonc-parser';
import type { JSONPath } from 'jsonc-parser';
import { CompletionItemKind, InsertTextFormat } from 'vscode-languageserver-protocol';
import type { CompletionItem, Range } from 'vscode-languageserver-protocol';
import { EscrowError } from '../../protocol/errors.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import { importsName } from '../scope/definition.ts';
import type { Outline, ScopeChecker, SymbolKind } from '../scope/port.ts';
import { outlinesIn } from './file-outlines.ts';
import { repositoryRoot } from './git-files.ts';
import { newNameFault, ownerOf } from './resolve-symbols.ts';
import { shownPath } from './shown-path.ts';

/** Where a contract names a symbol that is there. */
export const symbolPlace = /^writable\/\*\/symbols\/\*$/;
/** Where it names one that may be added. */
export const newSymbolPlace = /^writable\/\*\/newSymbols\/\*$/;

/** A file in which symbols are named, and what can be. */
export interface NamedIn {
  readonly file: string;
  readonly outline: Outline;
  /** What the entry lets be added, at other places than the one that is looked at. */
  readonly others: readonly string[];
  readonly instruction: string;
}

/** The file that the entry around a place names; undefined where it names none that can be looked into. */
export async function namedIn(
  scope: ScopeChecker,
  contractPath: string,
  text: string,
  place: JSONPath,
): Promise<NamedIn | undefined> {
  const tree = parseTree(text, [], { allowTrailingComma: true });
  const valueAt = (at: JSONPath): unknown => {
    const node = tree === undefined ? undefined : findNodeAtLocation(tree, at);
    return node === undefined ? undefined : (getNodeValue(node) as unknown);
  };
  const entry = place.slice(0, 2);
  const file = valueAt([...entry, 'path']);
  if (typeof file !== 'string' || !parseRelPath(file).ok) return undefined;
  try {
    const found = await outlinesIn(await repositoryRoot(contractPath), [file], scope);
    const outline = found.get(file)?.outline;
    if (outline === undefined) return undefined;
    const added = valueAt([...entry, 'newSymbols']);
    const instruction = valueAt(['instruction']);
    return {
      file,
      outline,
      others: Array.isArray(added) ? added.filter((name, n) => typeof name === 'string' && n !== place[3]) : [],
      instruction: typeof instruction === 'string' ? instruction : '',
    };
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
export function symbolItems(outline: Outline, range: Range): readonly CompletionItem[] {
  if (!outline.ok) return [];
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

const containers: ReadonlySet<SymbolKind> = new Set(['class', 'enum', 'interface', 'namespace']);
/** Names that an instruction marks as code. */
const marked = /`([^`\n]{1,200})`/g;

/**
 * What could be added: what the instruction marks as code and the file does not define, then a name at the top of the
 * file, then one in each thing of it that holds others, to be written out.
 */
export function newSymbolItems(
  { file, outline, others, instruction }: NamedIn,
  range: Range,
): readonly CompletionItem[] {
  if (!outline.ok) return [];
  const known = new Set(outline.symbols.map(({ name }) => name));
  const wished = [...instruction.matchAll(marked)]
    .map(([, code = '']) => code.replace(/\(.*\)$/, '').trim())
    .filter((name) => newNameFault(name, known, others) === undefined && !others.includes(name));
  const holds = new Set(outline.symbols.map(({ name }) => ownerOf(name)));
  const owners = outline.symbols.filter(({ name, kind }) => containers.has(kind) || holds.has(name));
  const written = (label: string, prefix: string, detail: string): Omit<CompletionItem, 'sortText'> => ({
    label,
    kind: CompletionItemKind.Snippet,
    detail,
    filterText: JSON.stringify(prefix),
    insertTextFormat: InsertTextFormat.Snippet,
    textEdit: { range, newText: `"${prefix.replaceAll(/[$}\\]/g, String.raw`\$&`)}\${1:name}"` },
  });
  const items = [
    ...[...new Set(wished)].map((name) => ({
      label: name,
      kind: CompletionItemKind.Text,
      detail: 'named in the instruction',
      filterText: JSON.stringify(name),
      textEdit: { range, newText: JSON.stringify(name) },
    })),
    written('…', '', `new at the top level of ${shownPath(file)}`),
    ...owners.map(({ name, kind, line }) => written(`${name}.…`, `${name}.`, `new in the ${kind}, line ${line}`)),
  ];
  return items.map((item, n) => ({ ...item, sortText: String(n).padStart(5, '0') }));
}

/** Where a name that may be added would lie; undefined where it can't be. */
export function aboutNewSymbol(name: string, { file, outline, others }: NamedIn): string | undefined {
  if (!outline.ok) return undefined;
  const known = new Set(outline.symbols.map((symbol) => symbol.name));
  if (newNameFault(name, known, others) !== undefined) return undefined;
  const owner = ownerOf(name);
  const around = outline.symbols.find((symbol) => symbol.name === owner);
  const where =
    owner === ''
      ? `at the top level of \`${shownPath(file)}\``
      : around === undefined
        ? `in \`${shownPath(owner)}\`, which is new as well`
        : `in the ${around.kind} \`${shownPath(owner)}\`, line ${around.line} of \`${shownPath(file)}\``;
  return `\`${shownPath(name)}\` may be added, ${where}, in one place. It is not there yet; what is there stays as it is.`;
}

/** What a named symbol is; undefined where it is none. */
export function aboutSymbol(name: string, { file, outline }: NamedIn): string | undefined {
  if (!outline.ok) return undefined;
  if (name === importsName) return `What \`${shownPath(file)}\` imports. Imports may change, come and go.`;
  const symbol = outline.symbols.find((each) => each.name === name);
  if (symbol === undefined) return undefined;
  return `The ${symbol.kind} \`${shownPath(name)}\`, line ${symbol.line} of \`${shownPath(file)}\`. It may change as a whole: its decorators, its \`export\`, and what is in it.`;
}
