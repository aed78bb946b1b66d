import type { FrozenContract } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import { SandboxFault } from '../sandbox/port.ts';
import type { AgentSandbox } from './port.ts';
import { decodeText } from './text-file.ts';
import { shownPath } from './workspace-path.ts';

/**
 * Bounds of a search. Each read is an entry of some 300 bytes in an audit log of 8 MiB, so an attempt's searches take
 * less than half of it; 500 reads one after the other take about as many milliseconds. Sizes are in bytes, `line` and
 * `query` in UTF-16 code units: fifty lines are some five thousand tokens at most.
 */
export const searchLimits = {
  lines: 50,
  line: 300,
  query: 200,
  files: 500,
  filesOfAttempt: 10_000,
  fileBytes: 2 * 1024 * 1024,
  bytes: 16 * 1024 * 1024,
} as const;

/** What is wrong with a text to look for, as an answer for the model; null where it can be looked for. Pure. */
export function queryFault(query: string): string | null {
  if (query.trim() === '') return 'Not searched: query is empty. Give a word or a part of a line.';
  if (/[\n\r]/.test(query))
    return 'Not searched: query has more than one line, and results are lines. Give one of them.';
  if (query.length > searchLimits.query)
    return `Not searched: query has ${query.length} characters, at most ${searchLimits.query} are possible. Give a shorter part.`;
  return query.isWellFormed() ? null : 'Not searched: query is not valid Unicode.';
}

/** A line that has the text, counted from 1, clipped around its first place there. */
export interface FoundLine {
  readonly line: number;
  readonly text: string;
}

/** At most `most` lines of a text (line ends LF) that have `query` (no line end, not empty), in order. One pass. Pure. */
export function linesWith(text: string, query: string, most: number): readonly FoundLine[] {
  const found: FoundLine[] = [];
  let line = 1;
  let next = text.indexOf('\n');
  for (let at = text.indexOf(query); at !== -1 && found.length < most;) {
    for (; next !== -1 && next < at; next = text.indexOf('\n', next + 1)) line += 1;
    const start = text.lastIndexOf('\n', at) + 1;
    const end = next === -1 ? text.length : next;
    found.push({ line, text: clipped(text.slice(start, end), at - start, query.length) });
    at = next === -1 ? -1 : text.indexOf(query, end);
  }
  return found;
}

/** A long line around the place that was looked for: its beginning alone might not have it. */
function clipped(line: string, at: number, length: number): string {
  const { line: limit } = searchLimits;
  if (line.length <= limit) return line;
  const before = Math.floor((limit - length) / 2);
  const from = Math.max(0, Math.min(at - before, line.length - limit));
  // Half a character at an end is none.
  const part = line.slice(from, from + limit).replaceAll(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, '');
  const cut = `(${line.length - part.length} more characters)`;
  return `${from > 0 ? '…' : ''}${part}${from + limit < line.length ? '…' : ''} ${cut}`;
}

/** Looks for a text in files, in their order. `text` is what the model is answered. Throws SandboxFault as `read` does. */
export type Search = (
  paths: readonly RelPath[],
  query: string,
  signal: AbortSignal,
) => Promise<{ readonly ok: boolean; readonly text: string }>;

/**
 * The search of one attempt. Every file is read through the sandbox when it is searched, so each look is audited and what
 * is found is what the files hold then. `paths` must be ones that the model may read, `query` one without a fault.
 */
export function createSearch(contract: FrozenContract, sandbox: Pick<AgentSandbox, 'read'>): Search {
  let ofAttempt = 0;
  return async (paths, query, signal) => {
    const sizes = new Map(contract.files.map((file) => [file.path, file.size]));
    const found: string[] = [];
    let looked = 0;
    let bytes = 0;
    let hits = 0;
    let large = 0;
    let other = 0;
    let cut: string | null = null;
    for (const path of paths) {
      const size = sizes.get(path) ?? 0;
      if (size > searchLimits.fileBytes) {
        large += 1;
        continue;
      }
      if (looked >= searchLimits.files || bytes + size > searchLimits.bytes) {
        cut = `stopped after ${looked} files, ${paths.length} in all; name a file or folder with path`;
        break;
      }
      if (ofAttempt >= searchLimits.filesOfAttempt) {
        cut = `stopped: the searches of this task have read ${ofAttempt} files, as many as they may; use view`;
        break;
      }
      looked += 1;
      ofAttempt += 1;
      const file = await sandbox.read(path, 'agent', signal).catch((error: unknown) => {
        // A writable file that was not created yet.
        if (SandboxFault.is(error, 'not-found')) return null;
        throw error;
      });
      if (file === null) continue;
      bytes += file.bytes.length;
      const text = decodeText(file.bytes);
      if (text === null) {
        other += 1;
        continue;
      }
      // One more than is shown tells whether there are more.
      const lines = linesWith(text.lf, query, searchLimits.lines + 1 - found.length);
      if (lines.length > 0) hits += 1;
      found.push(...lines.map(({ line, text: shown }) => `${shownPath(path)}:${line}: ${shown}`));
      if (found.length > searchLimits.lines) break;
    }
    const more = found.length > searchLimits.lines;
    const notes = [
      more ? 'more lines have it; name a file or folder with path, or a longer text' : null,
      cut,
      large > 0 ? `${counted(large, 'file')} larger than ${searchLimits.fileBytes >> 20} MiB not searched` : null,
      other > 0 ? `${counted(other, 'file')} not searched: no UTF-8 text` : null,
    ].filter((note) => note !== null);
    const shown = found.slice(0, searchLimits.lines);
    const heading =
      shown.length === 0
        ? `No line has it in ${counted(looked, 'file')}. The text is taken literally: no patterns, and letter case counts.`
        : more
          ? `The first ${shown.length} lines that have it:`
          : `${counted(shown.length, 'line')} in ${hits} of ${counted(looked, 'file')}:`;
    return {
      ok: looked > 0 || cut === null,
      text: [heading, ...shown, ...notes.map((note) => `[${note}]`)].join('\n'),
    };
  };
}

function counted(n: number, what: string): string {
  return n === 1 ? `1 ${what}` : `${n} ${what}s`;
}
