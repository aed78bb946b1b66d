import { nearestRegion } from './nearest.ts';
import type { TextFile } from './text-file.ts';
import { linesOf, splice } from './text-file.ts';

/** An edit as computed, not yet written; or an answer that says why not. Pure functions; texts are for the model. */
export type EditResult =
  { readonly ok: true; readonly file: TextFile; readonly text: string } | { readonly ok: false; readonly text: string };

/** Characters of a file that one view shows; more is clipped in the middle, with line numbers kept right. */
const viewLimit = 16_000;
/** Characters of one line that a view shows. */
const lineLimit = 2000;
/** Lines shown on each side of an edit: enough to see that indentation and neighbours are right. */
const snippetLines = 2;

/**
 * Lines with number and tab, as `cat -n` prints them but without its padding, which costs a token a line. An empty line
 * between others is just empty, as the numbers around it tell which it is: in code that is every fourth line, and a view is
 * read again with every later request.
 */
export function numbered(lines: readonly string[], first: number): string {
  return lines
    .map((line, i) => (line === '' && i > 0 && i < lines.length - 1 ? '' : `${first + i}\t${cutLine(line)}`))
    .join('\n');
}

function cutLine(line: string): string {
  return line.length <= lineLimit ? line : `${line.slice(0, lineLimit)}… (${line.length - lineLimit} more characters)`;
}

/** Shows a file or a range of it. `range` counts from 1; an end of −1 is the end of the file. */
export function viewFile(
  file: TextFile,
  shown: string,
  range: readonly [number, number] | null,
): { ok: boolean; text: string } {
  const lines = linesOf(file.lf);
  if (lines.length === 0)
    return range === null
      ? { ok: true, text: `${shown} is empty.` }
      : { ok: false, text: `${shown} is empty: it has no lines to show.` };
  let first = 1;
  let last = lines.length;
  let note = '';
  if (range !== null) {
    const [start, end] = range;
    if (start < 1 || start > lines.length)
      return { ok: false, text: `view_range starts at ${start}, but ${shown} has the lines 1 to ${lines.length}.` };
    if (end !== -1 && end < start)
      return {
        ok: false,
        text: `view_range ends at ${end}, before its start ${start}. Use [start, end] or [start, -1].`,
      };
    first = start;
    last = end === -1 ? lines.length : Math.min(end, lines.length);
    if (end > lines.length) note = `\n(the file ends at line ${lines.length})`;
  }
  const extent =
    first === 1 && last === lines.length ? count(lines.length) : `lines ${first}-${last} of ${lines.length}`;
  return { ok: true, text: `${shown}, ${extent}:\n${clipped(lines, first, last)}${note}` };
}

const count = (lines: number): string => (lines === 1 ? '1 line' : `${lines} lines`);

/** Numbers the lines, leaving out the middle where they are too long together. */
function clipped(lines: readonly string[], first: number, last: number): string {
  const part = lines.slice(first - 1, last);
  const whole = numbered(part, first);
  if (whole.length <= viewLimit) return whole;
  const take = (from: readonly string[]): number => {
    let size = 0;
    let n = 0;
    for (const line of from) {
      size += Math.min(line.length, lineLimit) + 8;
      if (size > viewLimit / 2) break;
      n += 1;
    }
    return Math.max(1, n);
  };
  const head = take(part);
  const tail = Math.min(take(part.toReversed()), part.length - head);
  const from = first + head;
  const to = last - tail;
  if (to < from) return whole;
  return [
    numbered(part.slice(0, head), first),
    `       … lines ${from}-${to} are not shown; use view_range [${from}, ${to}] …`,
    numbered(part.slice(part.length - tail), to + 1),
  ].join('\n');
}

/** Replaces a text that occurs exactly once. */
export function strReplace(
  file: TextFile,
  shown: string,
  oldText: string,
  newText: string,
  help: { readonly nearest: boolean },
): EditResult {
  let old = oldText.replaceAll('\r\n', '\n');
  let replacement = newText.replaceAll('\r\n', '\n');
  if (old === '') return { ok: false, text: 'Not changed: old_str is empty. Use insert to add lines.' };
  if (!replacement.isWellFormed()) return { ok: false, text: 'Not changed: new_str is not valid Unicode.' };
  if (old === replacement) return { ok: false, text: 'Not changed: old_str and new_str are the same.' };
  let hits = occurrences(file.lf, old);
  if (hits.length === 0 && old.trim() !== '' && old.trim() !== old) {
    // White space around a text is what small models most often add or lose.
    const stripped = occurrences(file.lf, old.trim());
    if (stripped.length > 0 && old.trim() !== replacement.trim()) {
      hits = stripped;
      old = old.trim();
      replacement = replacement.trim();
    }
  }
  const [at] = hits;
  if (at === undefined && copiedNumbers(file.lf, old))
    return {
      ok: false,
      text: 'Not changed: old_str has the line numbers of the view. Leave number and tab out, in new_str too.',
    };
  if (at === undefined) {
    const near = help.nearest ? nearestRegion(linesOf(file.lf), linesOf(old)) : null;
    const shownNear =
      near === null
        ? ' View the file and copy the text exactly.'
        : ` ${near.whitespaceOnly ? 'Only white space differs from' : 'The most similar lines are'} lines ${near.first}-${near.last}:\n${numbered(linesOf(file.lf).slice(near.first - 1, near.last), near.first)}\nCopy them exactly, without the line numbers.`;
    return { ok: false, text: `Not changed: old_str does not occur verbatim in ${shown}.${shownNear}` };
  }
  if (hits.length > 1) {
    const where = hits.slice(0, 20).map((hit) => lineAt(file.lf, hit));
    return {
      ok: false,
      text: `Not changed: old_str occurs ${hits.length} times in ${shown}, at lines ${where.join(', ')}${hits.length > 20 ? ', …' : ''}. Add lines around it so that it is unique.`,
    };
  }
  const changed = splice(file, at, at + old.length, replacement);
  const line = lineAt(file.lf, at);
  return { ok: true, file: changed, text: snippet(changed, shown, line, line + newlines(replacement)) };
}

/** Inserts whole lines after line `after` (0: before the first). The file's final newline, or its lack, is kept. */
export function insertLines(file: TextFile, shown: string, after: number, text: string): EditResult {
  const lines = linesOf(file.lf);
  if (!Number.isInteger(after) || after < 0 || after > lines.length)
    return {
      ok: false,
      text: `Not changed: insert_line is ${after}, but ${shown} has ${lines.length} lines (0 to ${lines.length} are possible).`,
    };
  const added = text.replaceAll('\r\n', '\n');
  if (!added.isWellFormed()) return { ok: false, text: 'Not changed: new_str is not valid Unicode.' };
  if (added === '') return { ok: false, text: 'Not changed: new_str is empty.' };
  const body = added.endsWith('\n') ? added.slice(0, -1) : added;
  let at = 0;
  for (let n = 0; n < after; n += 1) {
    const next = file.lf.indexOf('\n', at);
    at = next === -1 ? file.lf.length : next + 1;
  }
  const atOpenEnd = after === lines.length && lines.length > 0 && !file.lf.endsWith('\n');
  const changed = splice(file, at, at, atOpenEnd ? `\n${body}` : `${body}\n`);
  return { ok: true, file: changed, text: snippet(changed, shown, after + 1, after + 1 + newlines(body)) };
}

/** The lines around an edit, numbered as they are now. */
function snippet(file: TextFile, shown: string, first: number, last: number): string {
  const lines = linesOf(file.lf);
  let from = Math.max(1, first - snippetLines);
  let to = Math.min(lines.length, last + snippetLines);
  // Empty lines at its ends show nothing.
  while (from < first && lines[from - 1] === '') from += 1;
  while (to > last && lines[to - 1] === '') to -= 1;
  return lines.length === 0
    ? `Changed; ${shown} is empty now.`
    : `Changed. Lines ${from}-${to} now:\n${clipped(lines, from, to)}`;
}

/** True for a text that occurs once the numbers are taken away that a view puts before its lines. */
function copiedNumbers(text: string, part: string): boolean {
  const lines = part.split('\n');
  const numbers = /^ *\d+\t/;
  if (!lines.every((line) => line === '' || numbers.test(line))) return false;
  return text.includes(lines.map((line) => line.replace(numbers, '')).join('\n'));
}

/** All places, overlapping ones too: an edit that could be meant in two ways is not made. */
function occurrences(text: string, part: string): readonly number[] {
  const found: number[] = [];
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + 1)) found.push(at);
  return found;
}

function lineAt(text: string, offset: number): number {
  return newlines(text.slice(0, offset)) + 1;
}

function newlines(text: string): number {
  return text.split('\n').length - 1;
}
