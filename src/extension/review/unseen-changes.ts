import { diffArrays } from 'diff';
import { codePointName, unsafeCharacters } from '../../client/unsafe-characters.ts';
import type { CandidateFile } from '../../protocol/views.ts';

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
  /** Both `mixed`: lines that are the same end in another way. */
  | { readonly kind: 'line-ends'; readonly before: LineEnds; readonly after: LineEnds }
  | { readonly kind: 'byte-order-mark' }
  /** Changed lines with characters that have no shape; at most three of them by name. */
  | { readonly kind: 'invisible'; readonly lines: number; readonly names: readonly string[] }
  /** Changed lines of which the editor draws only the first characters. */
  | { readonly kind: 'long-lines'; readonly lines: number; readonly limit: number }
  /** Whether it can be started as a program changes, or a new file can be. */
  | { readonly kind: 'executable'; readonly now: boolean };

export type LineEnds = 'lf' | 'crlf' | 'cr' | 'mixed';

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

/** What VS Code takes for the end of a line, all three alike. */
const lineEnd = /\r\n|\r|\n/g;

function lineEnds(ends: readonly string[]): LineEnds | 'none' {
  const [first] = ends;
  if (first === undefined) return 'none';
  if (ends.some((end) => end !== first)) return 'mixed';
  return first === '\n' ? 'lf' : first === '\r' ? 'cr' : 'crlf';
}

/** Calls `same` with the places of each line that both sides have, by `key`; false when they are too different for that. */
function eachShared(
  before: readonly string[],
  after: readonly string[],
  key: (line: string) => string,
  same: (old: number, now: number) => void,
): boolean {
  // Undefined when the bound on edits was reached; the types do not say so.
  const parts: ReturnType<typeof diffArrays<string>> | undefined = diffArrays(before.map(key), after.map(key), {
    maxEditLength: mostEdits,
  });
  if (parts === undefined) return false;
  let [old, now] = [0, 0];
  for (const { added, removed, value } of parts) {
    if (removed) old += value.length;
    else if (added) now += value.length;
    else for (let each = 0; each < value.length; each++) same(old++, now++);
  }
  return true;
}

/** Whether the change of how lines end is hidden: the editor draws a line the same, however it ends. */
function lineEndsChange(before: Lines, after: Lines): Unseen | undefined {
  const [was, is] = [lineEnds(before.ends), lineEnds(after.ends)];
  if (was === 'none' || is === 'none') return undefined;
  if (was !== is) return { kind: 'line-ends', before: was, after: is };
  if (was !== 'mixed') return undefined;
  let moved = false;
  const compared = eachShared(
    before.lines,
    after.lines,
    (line) => line,
    (old, now) => {
      const [oldEnd, nowEnd] = [before.ends[old], after.ends[now]];
      // The last line has no end of its own: that one is drawn, as an empty line.
      if (oldEnd !== undefined && nowEnd !== undefined && oldEnd !== nowEnd) moved = true;
    },
  );
  return moved || !compared ? { kind: 'line-ends', before: was, after: is } : undefined;
}

interface Lines {
  readonly lines: readonly string[];
  /** One fewer than lines. */
  readonly ends: readonly string[];
}

const linesOf = (text: string): Lines => ({ lines: text.split(lineEnd), ends: text.match(lineEnd) ?? [] });

/** Lines that are the same without the white space at their ends, and not with it. */
function whiteSpaceOnly(before: readonly string[], after: readonly string[]): number | null {
  let count = 0;
  const compared = eachShared(
    before,
    after,
    (line) => line.trim(),
    (old, now) => {
      if (before[old] !== after[now]) count += 1;
    },
  );
  return compared ? count : null;
}

/**
 * Characters of a line without a shape of their own. The editor draws control characters, and marks the others in some
 * languages only (not in Markdown, not in plain text). A tab is what it looks like.
 */
function invisibleIn(line: string): readonly string[] {
  return (line.match(unsafeCharacters) ?? []).filter((character) => !/\p{Cc}/u.test(character));
}

/** What of a candidate's file a reader of its diff would not see: of its bytes, and that it can be started. Pure. */
export function unseenOf(
  { beforeMode, afterMode }: Pick<CandidateFile, 'beforeMode' | 'afterMode'>,
  before: Uint8Array | null,
  after: Uint8Array | null,
  settings: DiffSettings,
): readonly Unseen[] {
  const executable = (mode: number | null): boolean => mode !== null && (mode & 0o111) !== 0;
  const now = executable(afterMode);
  const changed = afterMode !== null && now !== executable(beforeMode);
  return [...unseenChanges(before, after, settings), ...(changed ? [{ kind: 'executable', now } as const] : [])];
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
  const [oldText, nowText] = [linesOf(old), linesOf(now)];
  const [oldLines, nowLines] = [oldText.lines, nowText.lines];
  if (before !== null && after !== null) {
    if (hasMark(before) !== hasMark(after)) unseen.push({ kind: 'byte-order-mark' });
    const ends = lineEndsChange(oldText, nowText);
    if (ends !== undefined) unseen.push(ends);
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
