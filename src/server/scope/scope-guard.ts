import type { FileScope, FrozenContract, ScopeReason } from '../../protocol/contract.ts';
import type { FileEntry, RelPath } from '../../protocol/primitives.ts';
import { scopeLanguageOf } from './language-of.ts';
import { ScopeUnavailable, type Compared, type ScopeChecker } from './port.ts';

/** A file after a change; null bytes: it is not there any more. */
export interface ChangedFile {
  readonly bytes: Uint8Array | null;
  readonly executable: boolean;
}

/** Holds the files of one contract against the symbols that it names. */
export interface ScopeGuard {
  /** True where the contract limits what of this file may change. */
  limits(path: RelPath): boolean;
  /** The file as it would be, against the snapshot: no fault where it stayed within its symbols. Throws ScopeUnavailable. */
  check(path: RelPath, now: ChangedFile): Promise<Compared>;
}

/**
 * The guard of one contract. `original`: the snapshot's bytes, by hash. A contract without symbols limits nothing, and
 * nothing is read or parsed for it.
 */
export function scopeGuard(
  contract: FrozenContract,
  checker: ScopeChecker,
  original: (entry: FileEntry) => Promise<Uint8Array>,
): ScopeGuard {
  const symbolsOf = new Map(contract.writable.map(({ path, symbols }) => [path, symbols]));
  const limitsOf = (path: RelPath): NonNullable<FrozenContract['writable'][number]['symbols']> | null =>
    symbolsOf.get(path) ?? null;
  return {
    limits: (path) => limitsOf(path) !== null,
    async check(path, now) {
      const symbols = limitsOf(path);
      if (symbols === null) return { fault: null, grammar: null };
      const entry = contract.files.find((file) => file.path === path);
      const language = scopeLanguageOf(path);
      // Freezing refuses both.
      if (entry === undefined || language === null) throw new Error(`${path} has symbols and can't be compared`);
      if (now.bytes === null) return unparsed('deleted');
      if (now.executable !== (entry.mode & 0o111) > 0) return unparsed('mode');
      return checker.compare({
        language,
        before: await original(entry),
        after: now.bytes,
        names: {
          existing: symbols.filter(({ exists }) => exists).map(({ name }) => name),
          added: symbols.filter(({ exists }) => !exists).map(({ name }) => name),
        },
      });
    },
  };
}

/** Out of scope whatever is in the file. */
function unparsed(reason: ScopeReason): Compared {
  return { fault: { reason, line: null, found: null, expected: null }, grammar: null };
}

/** The guard of a contract that names no symbols. */
export const unlimited: ScopeGuard = {
  limits: () => false,
  check: () => Promise.resolve({ fault: null, grammar: null }),
};

/** What a verification says of each file whose symbols a contract names. `fileOf`: the candidate's, changed or not. */
export async function scopeOf(
  contract: FrozenContract,
  guard: ScopeGuard,
  fileOf: (path: RelPath) => Promise<ChangedFile>,
): Promise<readonly FileScope[]> {
  const found: FileScope[] = [];
  for (const { path, symbols } of contract.writable) {
    if (symbols === null) continue;
    const of = { path, symbols: [...symbols] };
    try {
      const { fault, grammar } = await guard.check(path, await fileOf(path));
      const by = grammar === null ? {} : { grammar };
      found.push(
        fault === null
          ? { ...of, outcome: 'inside', reason: null, line: null, found: null, expected: null, ...by }
          : { ...of, outcome: 'outside', ...fault, ...by },
      );
    } catch (error) {
      if (!ScopeUnavailable.is(error)) throw error;
      found.push({ ...of, outcome: 'not-checked', reason: null, line: null, found: null, expected: null });
    }
  }
  return found;
}
