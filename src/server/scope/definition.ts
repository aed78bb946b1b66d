import type { SymbolKind } from './port.ts';

/** One definition of a symbol: a run of sibling nodes, with what belongs to it (decorators, `export`, a closing `;`). */
export interface Definition {
  readonly name: string;
  readonly kind: SymbolKind;
  readonly from: number;
  /** The first node that is not part of it any more. */
  readonly to: number;
}

/** What can be named in a file, in the order of the text. A name that is defined twice is there twice. */
export interface Definitions {
  readonly symbols: readonly Definition[];
  /** Import statements of the module itself: what the name `imports` stands for. */
  readonly imports: readonly { readonly from: number; readonly to: number }[];
}

/** Stands for the import statements of a file. */
export const importsName = 'imports';

/** Longest name that a contract can hold; what lies deeper in a file can't be named. */
export const longestName = 200;
