import type { ScopeReason } from '../../protocol/contract.ts';
import { compareScope, lineOf } from './compare-scope.ts';
import { definitionsOf } from './definitions.ts';
import { lineAt, type FlatTree } from './flat-tree.ts';
import { otherReading } from './one-reading.ts';
import type { Comparison, Outline, ScopeFault, ScopeLanguage, SymbolInfo } from './port.ts';
import { readText } from './read-text.ts';
import type { SyntaxParser } from './syntax-parser.ts';

/** Names that one file yields; a file with more is none that somebody completes names of. */
const mostSymbols = 5000;

/** A file that can be spoken about: read in one way, parsed without a fault. */
type Known =
  | { readonly ok: true; readonly tree: FlatTree; readonly bom: boolean }
  | { readonly ok: false; readonly fault: ScopeFault };

function look(parse: SyntaxParser, language: ScopeLanguage, bytes: Uint8Array): Known {
  const no = (reason: ScopeReason, text: string, line: number | null): Known => {
    const start = line === null ? 0 : startOfLine(text, line);
    return { ok: false, fault: { reason, line, found: line === null ? null : lineOf(text, start), expected: null } };
  };
  const read = readText(bytes, language);
  if (!read.ok) return no(read.reason, read.text, read.text === '' ? null : lineAt(read.text, read.offset));
  const parsed = parse(language, read.text);
  if (!parsed.ok) return no('does-not-parse', read.text, parsed.line);
  const odd = otherReading(parsed.tree, language);
  if (odd !== null) return no('ambiguous', read.text, lineAt(read.text, odd));
  return { ok: true, tree: parsed.tree, bom: read.bom };
}

function startOfLine(text: string, line: number): number {
  let at = 0;
  for (let n = 1; n < line; n += 1) at = text.indexOf('\n', at) + 1;
  return at;
}

/** What can be named in a file. Throws what the parser throws. */
export function outline(parse: SyntaxParser, language: ScopeLanguage, bytes: Uint8Array): Outline {
  const file = look(parse, language, bytes);
  if (!file.ok) return file;
  const { symbols, imports } = definitionsOf(file.tree, language);
  const found = new Map<string, SymbolInfo>();
  let line = 1;
  let counted = 0;
  for (const { name, kind, from } of symbols) {
    if (found.size >= mostSymbols) break;
    // They come in the order of the text.
    const start = file.tree.start[from] ?? 0;
    line += lineAt(file.tree.text.slice(counted, start), start) - 1;
    counted = start;
    if (!found.has(name)) found.set(name, { name, kind, line });
  }
  return { ok: true, symbols: [...found.values()], imports: imports.length > 0 };
}

/** Whether a change stayed within its names: null where it did. Throws what the parser throws. */
export function compare(parse: SyntaxParser, { language, before, after, names }: Comparison): ScopeFault | null {
  const now = look(parse, language, after);
  if (!now.ok) return now.fault;
  const old = look(parse, language, before);
  // A contract with such a file is refused at its freeze; nothing was shown to be the same.
  if (!old.ok) return { ...old.fault, line: null, found: null };
  if (old.bom !== now.bom) return { reason: 'layout', line: 1, found: null, expected: null };
  return compareScope(old.tree, now.tree, language, names);
}
