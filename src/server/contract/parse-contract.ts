import { createScanner, findNodeAtLocation, parseTree, printParseErrorCode } from 'jsonc-parser';
import type { JSONPath, Node, ParseError } from 'jsonc-parser';
import type * as z from 'zod';
import { ContractSource } from '../../protocol/contract.ts';
import type { ContractDiagnostic } from '../../protocol/contract.ts';
import { closestWord } from '../../protocol/closest-word.ts';

/** Longest contract text in UTF-16 code units: the bound of `contract/check`. */
export const maxContractText = 1_000_000;
/** A valid contract nests five deep; the tree parser recurses, so hostile text is stopped before it. */
const maxDepth = 32;
/** One file never yields more remarks than this; the rest would not be read. */
const maxDiagnostics = 200;
/** Of jsonc-parser's SyntaxKind, a const enum that isolated modules cannot import; so are the numbers in `tooDeep`. */
const endOfFile = 17;

export type Locate = (path: JSONPath, part?: 'value' | 'key') => { readonly offset: number; readonly length: number };

export interface ParsedContract {
  /** Null when the text is not a contract; then `diagnostics` holds at least one error. */
  readonly source: ContractSource | null;
  readonly diagnostics: readonly ContractDiagnostic[];
  readonly tree: Node | undefined;
  /** Where a value (or the key that names it) stands; for what is not written, its nearest written parent. */
  readonly locate: Locate;
}

/** Reads a contract's text. Pure; never throws, whatever the text. */
export function parseContract(text: string): ParsedContract {
  const whole = { offset: 0, length: Math.min(text.length, 1) };
  const nowhere: Locate = () => whole;
  const refuse = (code: string, message: string, at = whole): ParsedContract => ({
    source: null,
    diagnostics: [{ severity: 'error', code, message, ...at }],
    tree: undefined,
    locate: nowhere,
  });
  if (text.length > maxContractText) return refuse('too-long', `A contract has at most ${maxContractText} characters.`);
  const deep = tooDeep(text);
  if (deep !== undefined)
    return refuse('too-deep', `Nested more than ${maxDepth} levels.`, { offset: deep, length: 1 });
  // Before the parser, whose many remarks on text of another kind would say less.
  const start = firstToken(text);
  if (start === undefined) return refuse('syntax', 'The file is empty.');
  if (text[start] !== '{') {
    const message = 'A contract begins with "{": it is JSON, with comments if you like.';
    return refuse('syntax', message, { offset: start, length: 1 });
  }

  const faults: ParseError[] = [];
  const tree = parseTree(text, faults, { allowTrailingComma: true, disallowComments: false });
  const diagnostics: ContractDiagnostic[] = faults.map((fault) => ({
    severity: 'error',
    code: 'syntax',
    message: syntaxMessages[printParseErrorCode(fault.error)] ?? 'Not valid JSON.',
    ...clamp(fault, text),
  }));
  if (tree === undefined) {
    if (diagnostics.length === 0) return refuse('syntax', 'The file is empty.');
    return { source: null, diagnostics, tree, locate: nowhere };
  }
  const locate = locator(tree);
  collectDuplicates(tree, diagnostics);
  if (faults.length > 0) return { source: null, diagnostics: diagnostics.slice(0, maxDiagnostics), tree, locate };

  const parsed = ContractSource.safeParse(toValue(tree));
  if (parsed.success) {
    const bad = diagnostics.some((d) => d.severity === 'error');
    return { source: bad ? null : parsed.data, diagnostics, tree, locate };
  }
  for (const issue of parsed.error.issues) diagnostics.push(...issueDiagnostics(issue, [], tree, locate));
  return { source: null, diagnostics: diagnostics.slice(0, maxDiagnostics), tree, locate };
}

const syntaxMessages: Readonly<Record<string, string>> = {
  InvalidSymbol: 'Not a value of JSON.',
  InvalidNumberFormat: 'Not a number.',
  PropertyNameExpected: 'A property name in double quotes is expected.',
  ValueExpected: 'A value is expected.',
  ColonExpected: 'A colon is expected.',
  CommaExpected: 'A comma is expected.',
  CloseBraceExpected: 'A closing brace is expected.',
  CloseBracketExpected: 'A closing bracket is expected.',
  EndOfFileExpected: 'The file should end here.',
  UnexpectedEndOfComment: 'The comment is not closed.',
  UnexpectedEndOfString: 'The string is not closed.',
  UnexpectedEndOfNumber: 'The number is not complete.',
  InvalidUnicode: 'Not a valid \\u sequence.',
  InvalidEscapeCharacter: 'Not a valid escape in a string.',
  InvalidCharacter: 'A control character must be escaped in a string.',
};

function clamp(at: { offset: number; length: number }, text: string): { offset: number; length: number } {
  const offset = Math.min(Math.max(0, at.offset), text.length);
  return { offset, length: Math.max(0, Math.min(at.length, text.length - offset)) };
}

/** Offset of the first thing that is neither space nor comment; undefined where there is none. */
function firstToken(text: string): number | undefined {
  const scanner = createScanner(text, true);
  const kind: number = scanner.scan();
  return kind === endOfFile ? undefined : scanner.getTokenOffset();
}

/** Offset of the bracket that goes beyond the depth, or undefined. A flat scan: no recursion. */
export function tooDeep(text: string): number | undefined {
  const openBrace = 1;
  const closeBrace = 2;
  const openBracket = 3;
  const closeBracket = 4;
  const scanner = createScanner(text, true);
  let depth = 0;
  for (let kind: number = scanner.scan(); kind !== endOfFile; kind = scanner.scan()) {
    if (kind === openBrace || kind === openBracket) {
      depth += 1;
      if (depth > maxDepth) return scanner.getTokenOffset();
    } else if (kind === closeBrace || kind === closeBracket) depth -= 1;
  }
  return undefined;
}

function locator(tree: Node): Locate {
  return (path, part = 'value') => {
    for (let length = path.length; length > 0; length -= 1) {
      const node = findNodeAtLocation(tree, path.slice(0, length));
      if (node === undefined) continue;
      const key = node.parent?.type === 'property' ? node.parent.children?.[0] : undefined;
      const shown =
        part === 'key' && length === path.length ? (key ?? node) : length < path.length ? (key ?? node) : node;
      return { offset: shown.offset, length: shown.length };
    }
    return { offset: tree.offset, length: 1 };
  };
}

/** The last of two equal keys would win silently. */
function collectDuplicates(node: Node, into: ContractDiagnostic[]): void {
  const seen = new Set<unknown>();
  for (const child of node.children ?? []) {
    const key = child.type === 'property' ? child.children?.[0] : undefined;
    if (key !== undefined) {
      const name: unknown = key.value;
      if (seen.has(name)) {
        into.push({
          severity: 'error',
          code: 'duplicate-key',
          message: `"${String(name)}" is already given above.`,
          offset: key.offset,
          length: key.length,
        });
      }
      seen.add(name);
    }
    collectDuplicates(child, into);
  }
}

/** Plain data of a tree. Own data properties only, so that a key `__proto__` is a key like any other. */
function toValue(node: Node): unknown {
  if (node.type === 'array') return (node.children ?? []).map(toValue);
  if (node.type !== 'object') return node.value as unknown;
  const out: Record<string, unknown> = {};
  for (const property of node.children ?? []) {
    const [key, value] = property.children ?? [];
    if (key === undefined || value === undefined) continue;
    Object.defineProperty(out, String(key.value), {
      value: toValue(value),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return out;
}

type Issue = z.core.$ZodIssue;

function issueDiagnostics(issue: Issue, base: JSONPath, tree: Node, locate: Locate): ContractDiagnostic[] {
  const path: JSONPath = [...base, ...issue.path.filter((s) => typeof s !== 'symbol')];
  const at = locate(path);
  if (issue.code === 'unrecognized_keys') {
    const parent = findNodeAtLocation(tree, path);
    const known = knownKeys(path);
    return issue.keys.map((key) => {
      const near = closestWord(key, known);
      return {
        severity: 'error',
        code: 'unknown-key',
        message:
          `"${shortened(key)}" is not known here.` +
          (near === undefined ? ` Known: ${known.join(', ')}.` : ` Did you mean "${near}"?`),
        ...(parent === undefined ? at : locate([...path, key], 'key')),
      };
    });
  }
  if (issue.code === 'invalid_union') {
    const node = findNodeAtLocation(tree, path);
    // The unions of the schema are "text or something bigger": the written form says which was meant.
    const branch = node === undefined || node.type === 'string' ? issue.errors[0] : issue.errors.at(-1);
    if (branch !== undefined && branch.length > 0) {
      return branch.flatMap((inner) => issueDiagnostics(inner, path, tree, locate));
    }
  }
  if (issue.code === 'invalid_key') {
    const reason = issue.issues[0]?.message ?? issue.message;
    return [{ severity: 'error', code: 'invalid-key', message: sentence(reason), ...locate(path, 'key') }];
  }
  const missing = issue.code === 'invalid_type' && findNodeAtLocation(tree, path) === undefined;
  if (missing) {
    const name = String(path.at(-1) ?? 'value');
    return [{ severity: 'error', code: 'missing', message: `"${name}" is missing.`, ...at }];
  }
  const message = schemaMessage(issue, path) ?? sentence(issue.message);
  return [{ severity: 'error', code: `schema-${issue.code.replaceAll('_', '-')}`, message, ...at }];
}

const typeWords: Readonly<Record<string, string>> = {
  string: 'text in double quotes',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list, in [ ]',
  object: 'members in { }',
  record: 'members in { }',
};

/** The schema's complaint in the words of a contract; undefined where the schema's own words are ours already. */
function schemaMessage(issue: Issue, path: JSONPath): string | undefined {
  const name = [...path].reverse().find((segment) => typeof segment === 'string');
  const what =
    name === undefined ? 'The contract' : typeof path.at(-1) === 'number' ? `An entry of "${name}"` : `"${name}"`;
  switch (issue.code) {
    case 'invalid_type':
      return `${what} must be ${typeWords[issue.expected] ?? issue.expected}.`;
    case 'too_small':
      if (issue.origin === 'string' || issue.origin === 'array') return `${what} is empty.`;
      return `${what} must be at least ${issue.minimum}.`;
    case 'too_big':
      if (issue.origin === 'string') return `${what} has more than ${issue.maximum} characters.`;
      if (issue.origin === 'array') return `${what} has more than ${issue.maximum} entries.`;
      return `${what} must be at most ${issue.maximum}.`;
    case 'invalid_value':
      return `${what} must be ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}.`;
    case 'invalid_format':
      return issue.message.startsWith('Invalid string') ? undefined : `${what}: ${issue.message}.`;
    default:
      return undefined;
  }
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(first) ? first : `${first}.`;
}

function shortened(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** Keys that the schema knows at a path, for suggestions and completion. */
export function knownKeys(path: JSONPath): readonly string[] {
  const pattern = path.map((segment) => (typeof segment === 'number' ? '*' : segment)).join('/');
  const shape = ContractSource.shape;
  switch (pattern) {
    case '':
      return Object.keys(shape);
    case 'snapshot':
      return Object.keys(shape.snapshot.unwrap().shape);
    case 'acceptance/*':
      return Object.keys(shape.acceptance.element.shape);
    case 'supplemental/*':
      return Object.keys(shape.supplemental.unwrap().element.shape);
    case 'writable/*':
      return ['path', 'symbols', 'newSymbols'];
    case 'budget':
      return Object.keys(shape.budget.unwrap().shape);
    case 'image':
      return Object.keys(shape.image.unwrap().shape);
    case 'image/dependencies':
      return ['npm', 'python'];
    case 'image/dependencies/python':
      return ['lock', 'sources'];
    case 'image/steps/*':
      return ['argv', 'network'];
    default:
      return [];
  }
}
