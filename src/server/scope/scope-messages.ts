import type { ScopeGrammar } from '../../protocol/contract.ts';
import type { Comparison, Outline, ScopeFault, ScopeLanguage } from './port.ts';

/** What the Kernel asks of the thread that parses; one at a time. */
export type ScopeQuestion =
  | { readonly kind: 'outline'; readonly language: ScopeLanguage; readonly bytes: Uint8Array }
  | { readonly kind: 'compare'; readonly comparison: Comparison };

/** `ready` once, then one answer to each question. `broken`: the parser's memory is used up, or it failed. */
export type ScopeReply =
  | { readonly kind: 'ready'; readonly grammars: Readonly<Record<ScopeLanguage, ScopeGrammar>> }
  | { readonly kind: 'outline'; readonly outline: Outline }
  | { readonly kind: 'compare'; readonly fault: ScopeFault | null }
  | { readonly kind: 'broken'; readonly message: string };
