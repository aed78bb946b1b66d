import { createTwoFilesPatch } from 'diff';
import type { CandidateFile } from '../protocol/views.ts';

/** Edits beyond which a file is shown as replaced: the work grows with their square (4,000 take about half a second). */
const maxEdits = 4000;

/** One line of a diff. `text` has neither the line end nor a prefix; a line that ends in CR keeps it. */
export interface DiffLine {
  readonly kind: 'header' | 'hunk' | 'same' | 'added' | 'removed' | 'remark' | 'not-shown';
  readonly text: string;
}

/** Text of bytes that are UTF-8 without NUL; undefined for anything else, which is not shown as lines. */
function textOf(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

const octal = (mode: number): string => (0o100000 | mode).toString(8);

/** The whole old text removed and the whole new one added, as one hunk. */
function replaced(old: string, now: string): DiffLine[] {
  const side = (text: string, kind: 'removed' | 'added'): DiffLine[] => {
    const lines = text.split('\n');
    const ended = lines.at(-1) === '';
    if (ended) lines.pop();
    const shown = lines.map((line): DiffLine => ({ kind, text: line }));
    return ended ? shown : [...shown, { kind: 'remark', text: 'No newline at end of file' }];
  };
  const removed = side(old, 'removed');
  const added = side(now, 'added');
  const count = (lines: readonly DiffLine[]): number => lines.filter((line) => line.kind !== 'remark').length;
  return [{ kind: 'hunk', text: `@@ -1,${count(removed)} +1,${count(added)} @@` }, ...removed, ...added];
}

/** A unified diff of exact bytes. Nothing is normalised: line ends, a byte order mark and a missing final newline show. */
export function unifiedDiff(file: CandidateFile, before: Uint8Array | null, after: Uint8Array | null): DiffLine[] {
  const oldName = before === null ? '/dev/null' : `a/${file.path}`;
  const newName = after === null ? '/dev/null' : `b/${file.path}`;
  const modes: DiffLine[] =
    file.beforeMode !== null && file.afterMode !== null && file.beforeMode !== file.afterMode
      ? [
          { kind: 'header', text: `old mode ${octal(file.beforeMode)}` },
          { kind: 'header', text: `new mode ${octal(file.afterMode)}` },
        ]
      : before === null && file.afterMode !== null
        ? [{ kind: 'header', text: `new file mode ${octal(file.afterMode)}` }]
        : after === null && file.beforeMode !== null
          ? [{ kind: 'header', text: `deleted file mode ${octal(file.beforeMode)}` }]
          : [];
  const names: DiffLine[] = [
    { kind: 'header', text: `--- ${oldName}` },
    { kind: 'header', text: `+++ ${newName}` },
  ];
  const old = textOf(before ?? new Uint8Array());
  const now = textOf(after ?? new Uint8Array());
  if (old === undefined || now === undefined) {
    return [
      ...modes,
      ...names,
      { kind: 'not-shown', text: `not text: ${before?.length ?? 0} bytes before, ${after?.length ?? 0} after` },
    ];
  }
  // `string | undefined`: undefined when the bound on edits was reached.
  const patch: string | undefined = createTwoFilesPatch(oldName, newName, old, now, '', '', {
    context: 3,
    maxEditLength: maxEdits,
  });
  if (patch === undefined) return [...modes, ...names, ...replaced(old, now)];
  const lines = patch.split('\n');
  const first = lines.findIndex((line) => line.startsWith('@@'));
  if (first === -1) return [...modes, ...names];
  return [
    ...modes,
    ...names,
    ...lines.slice(first, lines.at(-1) === '' ? -1 : undefined).map((line): DiffLine => {
      const rest = line.slice(1);
      if (line.startsWith('@@')) return { kind: 'hunk', text: line };
      if (line.startsWith('+')) return { kind: 'added', text: rest };
      if (line.startsWith('-')) return { kind: 'removed', text: rest };
      if (line.startsWith('\\')) return { kind: 'remark', text: line.slice(2) };
      return { kind: 'same', text: rest };
    }),
  ];
}
