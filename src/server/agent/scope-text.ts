import type { FrozenSymbol, ScopeReason } from '../../protocol/contract.ts';
import { importsName } from '../scope/definition.ts';
import type { ScopeFault } from '../scope/port.ts';

/** What of a file may change, in the fewest words: `timestamp, imports, new parse`. */
export function symbolList(symbols: readonly FrozenSymbol[]): string {
  return symbols.map(({ name, exists }) => (exists ? name : `new ${name}`)).join(', ');
}

/** The answer to an edit that was not made, for the model: what may change, what would, and where. */
export function deniedEdit(shown: string, symbols: readonly FrozenSymbol[], fault: ScopeFault): string {
  const isImport = /^(?:import|from)\b|\brequire\(/.test(fault.found ?? '');
  const named = symbols.some(({ name }) => name === importsName);
  const also = isImport && !named ? ' Imports may not change.' : '';
  return `Denied: in ${shown} only ${symbolList(symbols)} may change. ${scopeFaultText(fault)}${also} Nothing was changed.`;
}

/** One sentence on why a file is out of scope, for the model. */
export function scopeFaultText(fault: ScopeFault): string {
  const { line, found, expected } = fault;
  const at = line === null ? '' : `Line ${line}`;
  const is = found === null || found === '' ? '' : ` \`${found}\``;
  const was = expected === null || expected === '' ? 'its original' : `\`${expected}\``;
  const text = texts[fault.reason];
  return typeof text === 'string' ? text : text({ at: at === '' ? 'A line' : at, is, was });
}

interface Parts {
  readonly at: string;
  readonly is: string;
  readonly was: string;
}

const texts: Readonly<Record<ScopeReason, string | ((parts: Parts) => string)>> = {
  changed: ({ at, is, was }) => `${at} is outside and would be${is} instead of ${was}.`,
  added: ({ at, is }) => `${at} is outside and would be new:${is}.`,
  removed: ({ at, was }) => `${at}: what is outside would be gone: ${was}.`,
  layout: ({ at, is }) => `${at}${is} is outside: its line breaks, indentation and nesting must stay as they were.`,
  moved: ({ at, is }) => `${at}${is} stands at another place than in the original.`,
  'does-not-parse': ({ at, is }) => `It does not parse: ${at.toLowerCase()}${is}.`,
  ambiguous: ({ at, is }) => `${at}${is} could be read in more than one way: write it plainly.`,
  unreadable: ({ at }) => `${at} holds a control character or an unusual line end.`,
  encoding: ({ at }) => `${at} declares another encoding than UTF-8.`,
  'not-text': 'It would not be UTF-8 text.',
  'too-large': 'It would be too large.',
  'too-slow': 'It takes too long to parse.',
  'parser-failed': 'It could not be parsed.',
  deleted: 'It is gone.',
  mode: 'Its mode was changed.',
};
