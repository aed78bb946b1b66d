import { unreachable } from '../../protocol/primitives.ts';
import type { FileScope, FrozenSymbol, ScopeGrammar, ScopeReason } from '../../protocol/contract.ts';
import { readRunReason } from '../../protocol/run-reason.ts';
import { visible } from '../visible-text.ts';
import type { Localize } from './tree-node.ts';
import { shortDigest } from './words.ts';

/** What of a file may change: `timestamp, imports, new parse`. */
export function symbolWords(symbols: readonly FrozenSymbol[], t: Localize): string {
  return symbols.map(({ name, exists }) => (exists ? visible(name, 200) : t('new {0}', visible(name, 200)))).join(', ');
}

/** Whether a file stayed within its symbols, and where not. */
export function scopeWords(scope: FileScope, t: Localize): string {
  switch (scope.outcome) {
    case 'inside':
      return t('only {0} changed', symbolWords(scope.symbols, t));
    case 'not-checked':
      return t('not compared, so nothing is known');
    case 'outside':
      return t('outside of {0}: {1}', symbolWords(scope.symbols, t), reasonWords(scope, t));
    default:
      return unreachable(scope.outcome, 'scope');
  }
}

/** What compared a file: package and version, and the grammar by the beginning of its hash. */
export function grammarWords({ package: name, version, language, grammar }: ScopeGrammar): string {
  return `${visible(name)} ${visible(version)}, ${visible(language)} ${shortDigest(grammar)}`;
}

/** True for a reason of a verification that its scope says better. */
export function isScopeReason(reason: string): boolean {
  const { kind } = readRunReason(reason);
  return kind === 'out-of-scope' || kind === 'scope-not-checked';
}

function reasonWords({ reason, line, found, expected }: FileScope, t: Localize): string {
  const at = line ?? 0;
  const is = visible(found ?? '', 160);
  const was = visible(expected ?? '', 160);
  const code: ScopeReason = reason ?? 'parser-failed';
  switch (code) {
    case 'changed':
      return t('line {0} is “{1}”, it was “{2}”', at, is, was);
    case 'added':
      return t('line {0} is new, “{1}”', at, is);
    case 'removed':
      return t('gone at line {0}, “{1}”', at, was);
    case 'layout':
      return t('line {0} is broken, indented or nested in another way, “{1}”', at, is);
    case 'moved':
      return t('line {0} stands at another place, “{1}”', at, is);
    case 'does-not-parse':
      return t('line {0} does not parse, “{1}”', at, is);
    case 'ambiguous':
    case 'unreadable':
      return t('line {0} can be read in more than one way, “{1}”', at, is);
    case 'encoding':
      return t('line {0} declares another encoding than UTF-8', at);
    case 'not-text':
      return t('the file is not UTF-8 text');
    case 'too-large':
      return t('the file is too large to be compared');
    case 'too-slow':
      return t('the file takes too long to parse');
    case 'parser-failed':
      return t('the file could not be parsed');
    case 'deleted':
      return t('the file is gone');
    case 'mode':
      return t('the mode of the file changed');
    default:
      return unreachable(code, 'scope reason');
  }
}
