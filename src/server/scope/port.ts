import type { ScopeGrammar, ScopeReason } from '../../protocol/contract.ts';

/** Languages in which symbols can be named: one grammar each. */
export type ScopeLanguage = 'python' | 'javascript' | 'typescript' | 'tsx';

/** What a definition is, in a word for people. */
export type SymbolKind =
  'class' | 'enum' | 'field' | 'function' | 'interface' | 'member' | 'method' | 'namespace' | 'type' | 'variable';

export interface SymbolInfo {
  /** As a contract names it: `timestamp`, `Class.method`. */
  readonly name: string;
  readonly kind: SymbolKind;
  /** Of the first definition, from 1. */
  readonly line: number;
}

/** Why a file is out of scope, and where. */
export interface ScopeFault {
  readonly reason: ScopeReason;
  /** In the file that was looked at (after the change), from 1; null where no place can be named. */
  readonly line: number | null;
  /** What stands there, and what stood there before: hostile text, one line, bounded. */
  readonly found: string | null;
  readonly expected: string | null;
}

/** What can be named in a file; or why nothing can. */
export type Outline =
  | { readonly ok: true; readonly symbols: readonly SymbolInfo[]; readonly imports: boolean }
  | { readonly ok: false; readonly fault: ScopeFault };

/** Names that may change, and names that may be added. */
export interface ScopeNames {
  readonly existing: readonly string[];
  readonly added: readonly string[];
}

export interface Comparison {
  readonly language: ScopeLanguage;
  readonly before: Uint8Array;
  readonly after: Uint8Array;
  readonly names: ScopeNames;
}

/** Null fault: everything outside the names is the same. `grammar`: what said so; null where nothing was parsed. */
export interface Compared {
  readonly fault: ScopeFault | null;
  readonly grammar: ScopeGrammar | null;
}

/** Thrown where files can't be looked at at all, whatever is in them: the parser does not start, or was ended. */
export class ScopeUnavailable extends Error {
  override readonly name = 'ScopeUnavailable';

  static is(value: unknown): value is ScopeUnavailable {
    return value instanceof ScopeUnavailable;
  }
}

/**
 * Reads files and compares their versions, apart from the Kernel's own thread. Whatever the bytes are, an answer comes in
 * bounded time; one that could not be worked out is a fault, never "inside".
 */
export interface ScopeChecker {
  /** What can be named in a file. Throws ScopeUnavailable. */
  outline(language: ScopeLanguage, bytes: Uint8Array): Promise<Outline>;
  /** Throws ScopeUnavailable. */
  compare(comparison: Comparison): Promise<Compared>;
}
