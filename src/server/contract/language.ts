import { getLocation, parseTree } from 'jsonc-parser';
import type { JSONPath, Location, Node } from 'jsonc-parser';
import { CompletionItemKind, DiagnosticSeverity, InsertTextFormat, MarkupKind } from 'vscode-languageserver-protocol';
import type { CodeLens, CompletionItem, Diagnostic, Hover, Position, Range } from 'vscode-languageserver-protocol';
import { TextDocument } from 'vscode-languageserver-textdocument';
import * as z from 'zod';
import { ContractSource } from '../../protocol/contract.ts';
import type { ContractDiagnostic } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { LanguageService } from '../rpc/port.ts';
import { helpFor } from './field-help.ts';
import type { ScopeChecker } from '../scope/port.ts';
import {
  aboutNewSymbol,
  aboutSymbol,
  namedIn,
  newSymbolItems,
  newSymbolPlace,
  symbolItems,
  symbolPlace,
} from './symbol-features.ts';
import { checkContract, trackedPathsFor } from './freeze-contract.ts';
import { knownKeys, parseContract } from './parse-contract.ts';

/** More would not be read; the client filters by what is typed and asks again. */
const maxPathItems = 1000;

/** Language features of contract files, over the same rules that freezing applies. Stateless. */
export function createLanguageService(scope: ScopeChecker): LanguageService {
  return {
    diagnostics: (path, text) => diagnostics(scope, path, text),
    completion: (path, text, position) => completion(scope, path, text, position),
    hover: (path, text, position) => hover(scope, path, text, position),
    codeLenses,
  };
}

async function diagnostics(scope: ScopeChecker, path: string, text: string): Promise<readonly Diagnostic[]> {
  const document = documentOf(path, text);
  try {
    const { diagnostics: found } = await checkContract(path, scope, text);
    return found.map((remark) => toDiagnostic(document, remark));
  } catch (error) {
    // A repository that cannot be looked at must not take the syntax remarks away.
    if (!EscrowError.is(error)) throw error;
    const remark: ContractDiagnostic = {
      severity: 'error',
      code: error.code,
      message: `${error.message}. ${error.next}`,
      offset: 0,
      length: Math.min(1, text.length),
    };
    return [...parseContract(text).diagnostics, remark].map((found) => toDiagnostic(document, found));
  }
}

function documentOf(path: string, text: string): TextDocument {
  return TextDocument.create(path, 'jsonc', 0, text);
}

function toDiagnostic(document: TextDocument, remark: ContractDiagnostic): Diagnostic {
  return {
    range: rangeOf(document, remark),
    severity: severityOf(remark.severity),
    code: remark.code,
    source: 'escrow',
    message: remark.message,
  };
}

function severityOf(severity: ContractDiagnostic['severity']): DiagnosticSeverity {
  switch (severity) {
    case 'error':
      return DiagnosticSeverity.Error;
    case 'warning':
      return DiagnosticSeverity.Warning;
    case 'information':
      return DiagnosticSeverity.Information;
    default:
      return unreachable(severity, 'severity');
  }
}

function rangeOf(document: TextDocument, at: { readonly offset: number; readonly length: number }): Range {
  return { start: document.positionAt(at.offset), end: document.positionAt(at.offset + at.length) };
}

/** Properties of the schema, as JSON Schema: what completion and hover read. */
interface SchemaNode {
  readonly description?: string;
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
}
const rootSchema = z.toJSONSchema(ContractSource, { io: 'input', target: 'draft-7' }) as SchemaNode;

/** The schema at a path; of an alternative, the branch that has what the path goes on with. */
function schemaAt(path: JSONPath, from: SchemaNode = rootSchema): SchemaNode | undefined {
  const [segment, ...rest] = path;
  if (segment === undefined) return from;
  for (const branch of from.anyOf ?? [from]) {
    const next = typeof segment === 'number' ? branch.items : branch.properties?.[segment];
    if (next !== undefined && (typeof segment === 'number' || Object.hasOwn(branch.properties ?? {}, segment))) {
      return schemaAt(rest, next);
    }
  }
  return undefined;
}

async function completion(
  scope: ScopeChecker,
  path: string,
  text: string,
  position: Position,
): Promise<readonly CompletionItem[]> {
  const document = documentOf(path, text);
  const offset = document.offsetAt(position);
  const location = getLocation(text, offset);
  if (location.isAtPropertyKey) return keyItems(document, text, location, offset);
  const range = valueRange(document, location, offset);
  const schema = schemaAt(location.path);
  const values = new Set<unknown>(schema?.enum ?? schema?.anyOf?.flatMap((branch) => branch.enum ?? []) ?? []);
  if (schema?.type === 'boolean') for (const value of [true, false]) values.add(value);
  if (values.size > 0) {
    return [...values].map((value, n) => ({
      label: String(value),
      kind: CompletionItemKind.EnumMember,
      sortText: String(n).padStart(4, '0'),
      filterText: JSON.stringify(value),
      textEdit: { range, newText: JSON.stringify(value) },
    }));
  }
  const place = patternOf(location.path);
  if (symbolPlace.test(place) || newSymbolPlace.test(place)) {
    const named = await namedIn(scope, path, text, location.path);
    if (named === undefined) return [];
    return symbolPlace.test(place) ? symbolItems(named.outline, range) : newSymbolItems(named, range);
  }
  if (!takesPath(location.path)) return [];
  const tracked = await trackedPathsFor(path);
  return pathSuggestions(location.path, tracked)
    .slice(0, maxPathItems)
    .map((file) => ({
      label: file,
      kind: file.endsWith('/**') ? CompletionItemKind.Folder : CompletionItemKind.File,
      filterText: JSON.stringify(file),
      textEdit: { range, newText: JSON.stringify(file) },
    }));
}

function keyItems(document: TextDocument, text: string, location: Location, offset: number): readonly CompletionItem[] {
  const parent = location.path.slice(0, -1);
  const tree = parseTree(text, [], { allowTrailingComma: true });
  const present = new Set(tree === undefined ? [] : keysAt(tree, parent));
  const node = location.previousNode;
  const inKey = node !== undefined && node.offset <= offset && offset <= node.offset + node.length;
  const range = inKey ? rangeOf(document, node) : rangeOf(document, { offset, length: 0 });
  const typed = inKey ? String(node.value) : '';
  const hasValue = /^\s*:/.test(text.slice(inKey ? node.offset + node.length : offset));
  return knownKeys(parent)
    .filter((key) => !present.has(key) || key === typed)
    .map((key, n) => {
      const help = helpFor([...parent, key]);
      const schema = schemaAt([...parent, key]);
      return {
        label: key,
        kind: CompletionItemKind.Property,
        sortText: String(n).padStart(4, '0'),
        filterText: JSON.stringify(key),
        insertTextFormat: InsertTextFormat.Snippet,
        textEdit: {
          range,
          newText: hasValue ? JSON.stringify(key) : `${JSON.stringify(key)}: ${valueSnippet(key, schema)}`,
        },
        ...(help === undefined ? {} : { documentation: { kind: MarkupKind.Markdown, value: help } }),
      };
    });
}

/** What stands after a key that is being written: the default where there is one, else the empty form of its type. */
function valueSnippet(key: string, schema: SchemaNode | undefined): string {
  if (key === 'path') return '"$1"';
  if (schema?.enum !== undefined) return `\${1|${schema.enum.map((v) => JSON.stringify(v)).join(',')}|}`;
  if (schema?.type === 'integer' || schema?.type === 'number')
    return `\${1:${typeof schema.default === 'number' ? schema.default : 1}}`;
  if (schema?.type === 'array') return '[$1]';
  if (schema?.type === 'object') return '{ $1 }';
  return '"$1"';
}

function keysAt(tree: Node, path: JSONPath): readonly string[] {
  let node: Node | undefined = tree;
  for (const segment of path) {
    node =
      typeof segment === 'number'
        ? node?.children?.[segment]
        : node?.children?.find((property) => property.children?.[0]?.value === segment)?.children?.[1];
  }
  if (node?.type !== 'object') return [];
  return (node.children ?? []).map((property) => String(property.children?.[0]?.value));
}

function valueRange(document: TextDocument, location: Location, offset: number): Range {
  const node = location.previousNode;
  if (node !== undefined && node.offset <= offset && offset <= node.offset + node.length)
    return rangeOf(document, node);
  return rangeOf(document, { offset, length: 0 });
}

const globPlaces = [
  /^snapshot\/(?:include|exclude)\/\*$/,
  /^readable\/\*$/,
  /^protected\/\*$/,
  /^supplemental\/\*\/path(?:\/\*)?$/,
];
const exactPlaces = [/^writable\/\*(?:\/path)?$/, /^acceptance\/\*\/argv\/\*$/, /^supplemental\/\*\/argv\/\*$/];

function patternOf(path: JSONPath): string {
  return path.map((segment) => (typeof segment === 'number' ? '*' : segment)).join('/');
}

function takesPath(path: JSONPath): boolean {
  const pattern = patternOf(path);
  if (pattern.endsWith('/argv/*')) return path.at(-1) !== 0;
  return [...globPlaces, ...exactPlaces].some((place) => place.test(pattern));
}

/** Tracked files and, where a glob may stand, their folders as `folder/**`. Folders first: they are shorter to choose. */
function pathSuggestions(path: JSONPath, tracked: readonly string[]): readonly string[] {
  const pattern = patternOf(path);
  if (!globPlaces.some((place) => place.test(pattern))) return tracked;
  const folders = new Set<string>();
  for (const file of tracked) {
    const segments = file.split('/');
    for (let n = 1; n < segments.length; n += 1) folders.add(`${segments.slice(0, n).join('/')}/**`);
  }
  return [...[...folders].toSorted(), ...tracked];
}

async function hover(scope: ScopeChecker, path: string, text: string, position: Position): Promise<Hover | null> {
  const document = documentOf(path, text);
  const offset = document.offsetAt(position);
  const location = getLocation(text, offset);
  const node = location.previousNode;
  if (node === undefined || offset < node.offset || offset > node.offset + node.length) return null;
  const range = rangeOf(document, node);
  const said = (value: string): Hover => ({ contents: { kind: MarkupKind.Markdown, value }, range });
  const place = patternOf(location.path);
  if (symbolPlace.test(place) || newSymbolPlace.test(place)) {
    const named = await namedIn(scope, path, text, location.path);
    const name = String(node.value);
    const tell = symbolPlace.test(place) ? aboutSymbol : aboutNewSymbol;
    const about = named === undefined ? undefined : tell(name, named);
    if (about !== undefined) return said(about);
  }
  // On a value inside a list the list's own help is the nearest there is.
  for (let length = location.path.length; length > 0; length -= 1) {
    const at = location.path.slice(0, length);
    const help = helpFor(at) ?? schemaAt(at)?.description;
    if (help !== undefined) return said(help);
  }
  return null;
}

/** Ids that the extension registers; titles are its business where it translates them (see `package.nls.json`). */
const lensCommands = [
  ['Freeze', 'escrow.contract.freeze'],
  ['Check baseline', 'escrow.contract.baseline'],
  ['Start session', 'escrow.session.start'],
] as const;

function codeLenses(path: string, text: string): Promise<readonly CodeLens[]> {
  const { tree } = parseContract(text);
  if (tree?.type !== 'object') return Promise.resolve([]);
  const document = documentOf(path, text);
  const range = rangeOf(document, { offset: tree.offset, length: 1 });
  return Promise.resolve(
    lensCommands.map(([title, command]) => ({ range, command: { title, command, arguments: [fileUri(path)] } })),
  );
}

function fileUri(path: string): string {
  return new URL(`file://${encodeURI(path).replaceAll('?', '%3F').replaceAll('#', '%23')}`).href;
}
