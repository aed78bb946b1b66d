import { closestWord } from '../../protocol/closest-word.ts';
import type { ContractSource, FrozenSymbol, ScopeReason } from '../../protocol/contract.ts';
import { importsName } from '../scope/definition.ts';
import { scopeEndings, scopeLanguageOf } from '../scope/language-of.ts';
import type { Outline, ScopeFault } from '../scope/port.ts';
import { maxScopeBytes } from '../scope/read-text.ts';
import type { FileOutline } from './file-outlines.ts';
import type { Remarks } from './remarks.ts';
import { shownPath } from './shown-path.ts';

type Writable = ContractSource['writable'][number];

/** Names that one remark lists. */
const mostListed = 12;
/** `name`, `Class.method`, `Class.#private`: what a definition can be called in any of the languages. */
const nameForm = /^#?[\p{ID_Start}$_][\p{ID_Continue}$]*(?:\.#?[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;

/**
 * Why a name cannot be that of something new in a file: it is there already, no definition can be called so, or what it
 * would lie in is not there. Undefined where it can. Pure.
 */
export function newNameFault(
  name: string,
  known: ReadonlySet<string>,
  newSymbols: readonly string[],
): 'known' | 'form' | 'owner' | undefined {
  if (name === importsName || known.has(name)) return 'known';
  if (!nameForm.test(name)) return 'form';
  const owner = ownerOf(name);
  return owner === '' || known.has(owner) || newSymbols.includes(owner) ? undefined : 'owner';
}

/** What a name lies in: `Class` of `Class.method`; empty at the top of a file. */
export function ownerOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf('.')));
}

/**
 * What of a writable file may change: null for all of it. Each fault where it is written; undefined where there was one.
 * Pure.
 */
export function resolveSymbols(
  entry: Writable,
  n: number,
  isNew: boolean,
  outlines: ReadonlyMap<string, FileOutline>,
  { error, warning }: Remarks,
): readonly FrozenSymbol[] | null | undefined {
  const { path, symbols = [], newSymbols = [] } = entry;
  if (entry.symbols === undefined && entry.newSymbols === undefined) return null;
  const at = ['writable', n, entry.symbols === undefined ? 'newSymbols' : 'symbols'];
  const shown = shownPath(path);
  if (scopeLanguageOf(path) === null) {
    error('symbols-language', `Symbols can't be named in ${shown}, only in ${scopeEndings.join(', ')}.`, at);
    return undefined;
  }
  if (isNew) {
    error('symbols-new-file', `${shown} does not exist yet: all of it is new. Leave the symbols out.`, at);
    return undefined;
  }
  // What the file itself may not be was said already.
  const outline = outlines.get(path)?.outline;
  if (outline === undefined) return undefined;
  if (!outline.ok) {
    error('symbols-unreadable', `Symbols can't be named in ${shown}: ${faultText(outline.fault)}.`, at);
    return undefined;
  }
  const known = new Set(outline.symbols.map(({ name }) => name));
  const seen = new Set<string>();
  let failed = false;
  const remark = (code: string, message: string, list: 'symbols' | 'newSymbols', place: number): void => {
    failed = true;
    error(code, message, ['writable', n, list, place]);
  };
  const isTwice = (name: string, list: 'symbols' | 'newSymbols', place: number): boolean => {
    const twice = seen.has(name);
    if (twice) remark('duplicate-symbol', `${shownPath(name)} is already named.`, list, place);
    seen.add(name);
    return twice;
  };
  symbols.forEach((name, place) => {
    if (isTwice(name, 'symbols', place) || name === importsName || known.has(name)) return;
    const hint = proposal(name, outline);
    remark('unknown-symbol', `${shown} defines no ${shownPath(name)}. ${hint}`, 'symbols', place);
  });
  newSymbols.forEach((name, place) => {
    if (isTwice(name, 'newSymbols', place)) return;
    switch (newNameFault(name, known, newSymbols)) {
      case 'known': {
        const what = name === importsName ? `"${importsName}" stands for what is imported` : `${shown} defines ${name}`;
        remark('known-symbol', `${what}: name it in "symbols".`, 'newSymbols', place);
        break;
      }
      case 'form':
        remark('unknown-symbol', `${shownPath(name)} is no name that a definition can have.`, 'newSymbols', place);
        break;
      case 'owner': {
        const owner = ownerOf(name);
        remark('unknown-symbol', `${shown} defines no ${owner}. ${proposal(owner, outline)}`, 'newSymbols', place);
        break;
      }
      case undefined:
    }
  });
  if (failed) return undefined;
  const all = [...seen];
  for (const inner of all) {
    const outer = all.find((name) => inner.startsWith(`${name}.`));
    if (outer !== undefined) warning('symbol-within', `${inner} lies within ${outer}, all of which may change.`, at);
  }
  const frozen = all.map((name) => ({ name, exists: !newSymbols.includes(name) }));
  return frozen.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function proposal(name: string, outline: Extract<Outline, { ok: true }>): string {
  const names = outline.symbols.map((symbol) => symbol.name);
  const near = closestWord(name, [...names, importsName]);
  if (near !== undefined) return `Did you mean ${shownPath(near)}?`;
  const listed = names.slice(0, mostListed).map(shownPath).join(', ');
  const more = names.length > mostListed ? ` and ${names.length - mostListed} more` : '';
  const what = names.length === 0 ? 'It defines nothing that has a name.' : `It defines ${listed}${more}.`;
  return `${what} What is to be added is named in "newSymbols".`;
}

const reasonText: Readonly<Partial<Record<ScopeReason, string>>> = {
  'does-not-parse': 'it does not parse, at least not by the grammar that Escrow has',
  ambiguous: 'something in it is read in different ways by different programs',
  unreadable: 'it holds a character that ends a line or a text for some programs and not for others',
  encoding: 'it declares another encoding than UTF-8',
  'not-text': 'it is not UTF-8 text',
  'too-large': `it has more than ${maxScopeBytes / 1024} KiB`,
  'too-slow': 'it takes too long to parse',
};

function faultText({ reason, line, found }: ScopeFault): string {
  const text = reasonText[reason] ?? 'it could not be parsed';
  if (line === null) return text;
  return `${text} (line ${line}${found === null || found === '' ? '' : `: ${shownPath(found)}`})`;
}
