import type { ContractSource } from '../../protocol/contract.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { scopeLanguageOf } from '../scope/language-of.ts';
import { ScopeUnavailable, type Outline, type ScopeChecker } from '../scope/port.ts';
import { maxScopeBytes } from '../scope/read-text.ts';
import { readTreeFiles, type TreeEntry } from './read-tree-file.ts';

/** What can be named in a file of the tree, and the bytes that this was seen in. */
export interface FileOutline {
  readonly outline: Outline;
  readonly sha256: Sha256 | null;
}

const unread = (reason: 'too-large' | 'parser-failed'): FileOutline => ({
  outline: { ok: false, fault: { reason, line: null, found: null, expected: null } },
  sha256: null,
});

/** Looks into the files of which a contract names symbols. Files that are not there, or can't be named in, are left out. */
export async function outlinesOf(
  root: string,
  source: ContractSource,
  entries: ReadonlyMap<string, TreeEntry>,
  scope: ScopeChecker,
): Promise<ReadonlyMap<string, FileOutline>> {
  const wanted = source.writable
    .filter(({ symbols, newSymbols }) => symbols !== undefined || newSymbols !== undefined)
    .map(({ path }) => path)
    .filter((path) => entries.get(path)?.ok === true && scopeLanguageOf(path) !== null);
  return outlinesIn(root, [...new Set(wanted)], scope);
}

/** The same for files by name. */
export async function outlinesIn(
  root: string,
  paths: readonly string[],
  scope: ScopeChecker,
): Promise<ReadonlyMap<string, FileOutline>> {
  const found = new Map<string, FileOutline>();
  if (paths.length === 0) return found;
  const files = await readTreeFiles(root, paths, () => maxScopeBytes);
  for (const [path, file] of files) {
    const language = scopeLanguageOf(path);
    if (language === null) continue;
    if (!file.ok) {
      if (file.fault === 'too-large') found.set(path, unread('too-large'));
      continue;
    }
    try {
      found.set(path, { outline: await scope.outline(language, file.bytes), sha256: sha256(file.bytes) });
    } catch (error) {
      if (!ScopeUnavailable.is(error)) throw error;
      found.set(path, unread('parser-failed'));
    }
  }
  return found;
}
