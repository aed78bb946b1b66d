import { unreachable } from './primitives.ts';

/**
 * Why a verification did not pass, or what a baseline did not show: a code and what it is about. Recorded and sent as one
 * line each (`utc: tests-failed`, `files-changed: src/a.py`, `engine: …`); people read it in the words of their client.
 */
export type RunReason =
  /** A check by its id. `declared`: what a contract says that it does at the baseline, where it did not. */
  | { readonly kind: 'check'; readonly id: string; readonly code: string; readonly declared: 'pass' | 'fail' | null }
  | { readonly kind: 'files-changed'; readonly path: string }
  | { readonly kind: 'out-of-scope'; readonly path: string; readonly code: string }
  | { readonly kind: 'scope-not-checked'; readonly path: string }
  /** The whole run. `detail`: text of the engine or the channel, hostile; null where the code says all. */
  | { readonly kind: 'run'; readonly code: string; readonly detail: string | null };

/** The line that is recorded. */
export function runReasonLine(reason: RunReason): string {
  switch (reason.kind) {
    case 'check': {
      const { id, code, declared } = reason;
      return declared === null ? `${id}: ${code}` : `${id}: declared-${declared}-but-${code}`;
    }
    case 'files-changed':
    case 'scope-not-checked':
      return `${reason.kind}: ${reason.path}`;
    case 'out-of-scope':
      return `${reason.kind}: ${reason.path} (${reason.code})`;
    case 'run':
      return reason.detail === null ? reason.code : `${reason.code}: ${reason.detail}`;
    default:
      return unreachable(reason, 'reason of a run');
  }
}

/** Codes of a check are one word; what an engine says of itself is a sentence. */
const oneWord = /^[\w-]+$/;

/** What a recorded line says. A line of another form is a code of the run: nothing is hidden. */
export function readRunReason(line: string): RunReason {
  const [, subject, rest] = /^([\w-]+): ([\s\S]*)$/.exec(line) ?? [];
  if (subject === undefined || rest === undefined) return { kind: 'run', code: line, detail: null };
  if (subject === 'files-changed' || subject === 'scope-not-checked') return { kind: subject, path: rest };
  if (subject === 'out-of-scope') {
    const [, path = rest, code = 'unknown'] = /^([\s\S]*) \(([\w-]+)\)$/.exec(rest) ?? [];
    return { kind: subject, path, code };
  }
  if (!oneWord.test(rest)) return { kind: 'run', code: subject, detail: rest };
  const [, declared, code = rest] = /^declared-(pass|fail)-but-(.+)$/.exec(rest) ?? [];
  return { kind: 'check', id: subject, code, declared: declared === 'pass' || declared === 'fail' ? declared : null };
}
