import type { ScopeReason } from '../../protocol/contract.ts';
import type { ScopeLanguage } from './port.ts';

/**
 * Largest file that symbols are looked for in, bytes. The parser's memory and time go with it; no file that a person
 * wrote comes near.
 */
export const maxScopeBytes = 512 * 1024;

export type ReadText =
  | { readonly ok: true; readonly text: string; readonly bom: boolean }
  | { readonly ok: false; readonly reason: ScopeReason; readonly offset: number; readonly text: string };

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Reads a file as every reader of it does, or says why readers would disagree: an encoding that is declared, characters
 * that end a line, a text or a file for some and not for others. Pure.
 */
export function readText(bytes: Uint8Array, language: ScopeLanguage): ReadText {
  const no = (reason: ScopeReason, text = '', offset = 0): ReadText => ({ ok: false, reason, offset, text });
  if (bytes.byteLength > maxScopeBytes) return no('too-large');
  let decoded: string;
  try {
    decoded = strictUtf8.decode(bytes);
  } catch {
    return no('not-text');
  }
  const bom = decoded.startsWith('\uFEFF');
  const text = bom ? decoded.slice(1) : decoded;
  // A lone CR ends a line for CPython and V8. U+2028 and U+2029 do for V8 only.
  const odd = (language === 'python' ? /\0|\r(?!\n)/ : /\0|\r(?!\n)|[\u2028\u2029]/).exec(text);
  if (odd !== null) return no('unreadable', text, odd.index);
  if (language === 'python') {
    const cookie = foreignCookie(text);
    if (cookie !== undefined) return no('encoding', text, cookie);
  }
  return { ok: true, text, bom };
}

/** Offset of a declaration (PEP 263) that CPython would read the file by another encoding for than UTF-8. */
function foreignCookie(text: string): number | undefined {
  let start = 0;
  for (let line = 0; line < 2; line += 1) {
    const end = text.indexOf('\n', start);
    const found = /^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)/.exec(text.slice(start, end === -1 ? undefined : end));
    const name = found?.[1]?.toLowerCase().replaceAll('_', '-');
    if (name !== undefined && name !== 'utf-8' && name !== 'utf8') return start;
    if (end === -1) return undefined;
    start = end + 1;
  }
  return undefined;
}
