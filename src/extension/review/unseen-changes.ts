import { diffArrays } from 'diff';
import { codePointName, unsafeCharacters } from '../../client/unsafe-characters.ts';

/**
 * What a diff in VS Code does not show of a change although the bytes have it. An editor shows text, not bytes: who
 * decides about bytes has to be told of the rest.
 */
export type Unseen =
  /** Not shown as text at all. */
  | { readonly kind: 'binary' }
  /** Not UTF-8: different bytes may look the same. */
  | { readonly kind: 'not-text' }
  /** Lines that differ only in the white space at their ends; null: too much to compare, so some may. */
  | { readonly kind: 'white-space'; readonly lines: number | null }
  /** `crlf`, `lf` or `mixed`. */
  | { readonly kind: 'line-ends'; readonly before: string; readonly after: string }
  | { readonly kind: 'byte-order-mark' }
  /** Changed lines with characters that have no shape; at most three of them by name. */
  | { readonly kind: 'invisible'; readonly lines: number; readonly names: readonly string[] }
  /** Changed lines of which the editor draws only the first characters. */
  | { readonly kind: 'long-lines'; readonly lines: number; readonly limit: number };

/** The settings of VS Code that decide what a diff shows. */
export interface DiffSettings {
  /** `diffEditor.ignoreTrimWhitespace`; on by default. */
  readonly ignoreTrimWhitespace: boolean;
  /** `editor.stopRenderingLineAfter`; below zero: never. */
  readonly stopRenderingLineAfter: number;
}

/** VS Code takes a file for binary when one of so many first bytes is zero. */
const lookedAt = 512;
/** Edits after which lines are no longer compared: a hostile file could keep the window busy. */
const mostEdits = 1000;

const isBinary = (bytes: Uint8Array): boolean => bytes.subarray(0, lookedAt).includes(0);
const hasMark = (bytes: Uint8Array): boolean => bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;

function textOf(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function lineEnds(text: string): 'none' | 'lf' | 'crlf' | 'mixed' {
  const all = text.match(/\n/g)?.length ?? 0;
  const crlf = text.match(/\r\n/g)?.length ?? 0;
  if (all === 0) return 'none';
  return crlf === 0 ? 'lf' : crlf === all ? 'crlf' : 'mixed';
}

/** Lines that are the same without the white space at their ends, and not with it. */
function whiteSpaceOnly(before: readonly string[], after: readonly string[]): number | null {
  const trimmed = (lines: readonly string[]): string[] => lines.map((line) => line.trim());
  // Undefined when the bound on edits was reached; the types do not say so.
  const parts: ReturnType<typeof diffArrays<string>> | undefined = diffArrays(trimmed(before), trimmed(after), {
    maxEditLength: mostEdits,
  });
  if (parts === undefined) return null;
  let [old, now, count] = [0, 0, 0];
  for (const { added, removed, value } of parts) {
    if (removed) old += value.length;
    else if (added) now += value.length;
    else for (let each = 0; each < value.length; each++) if (before[old++] !== after[now++]) count += 1;
  }
  return count;
}

/**
 * Characters of a line without a shape of their own. The editor draws control characters, and marks the others in some
 * languages only (not in Markdown, not in plain text). A tab is what it looks like.
 */
function invisibleIn(line: string): readonly string[] {
  return (line.match(unsafeCharacters) ?? []).filter((character) => !/\p{Cc}/u.test(character));
}

/** What of one file's change a reader of its diff would not see. `null`: the file is not there on that side. Pure. */
export function unseenChanges(
  before: Uint8Array | null,
  after: Uint8Array | null,
  { ignoreTrimWhitespace, stopRenderingLineAfter }: DiffSettings,
): readonly Unseen[] {
  const sides = [before, after].filter((bytes) => bytes !== null);
  if (sides.some(isBinary)) return [{ kind: 'binary' }];
  const [old, now] = [before, after].map((bytes) => (bytes === null ? '' : textOf(bytes)));
  if (old === undefined || now === undefined) return [{ kind: 'not-text' }];
  const unseen: Unseen[] = [];
  const [oldLines, nowLines] = [old, now].map((text) => text.split(/\r\n|\r|\n/)) as [string[], string[]];
  if (before !== null && after !== null) {
    if (hasMark(before) !== hasMark(after)) unseen.push({ kind: 'byte-order-mark' });
    const [wasEnd, isEnd] = [lineEnds(old), lineEnds(now)];
    if (wasEnd !== isEnd && wasEnd !== 'none' && isEnd !== 'none')
      unseen.push({ kind: 'line-ends', before: wasEnd, after: isEnd });
    if (ignoreTrimWhitespace) {
      const lines = whiteSpaceOnly(oldLines, nowLines);
      if (lines !== 0) unseen.push({ kind: 'white-space', lines });
    }
  }
  const known = new Set(oldLines);
  const kept = new Set(nowLines);
  const changed = [...nowLines.filter((line) => !known.has(line)), ...oldLines.filter((line) => !kept.has(line))];
  const invisible = changed.map((line) => invisibleIn(line)).filter((found) => found.length > 0);
  if (invisible.length > 0) {
    const names = [...new Set(invisible.flat())].slice(0, 3).map(codePointName);
    unseen.push({ kind: 'invisible', lines: invisible.length, names });
  }
  const limit = stopRenderingLineAfter;
  if (limit >= 0) {
    const lines = changed.filter((line) => line.length > limit).length;
    if (lines > 0) unseen.push({ kind: 'long-lines', lines, limit });
  }
  return unseen;
}
