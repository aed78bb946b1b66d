import { describe, expect, it } from 'vitest';
import { unifiedDiff } from '../../../src/cli/unified-diff.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { RelPath } from '../../../src/protocol/primitives.ts';
import type { CandidateFile } from '../../../src/protocol/views.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
function file(
  before: Uint8Array | null,
  after: Uint8Array | null,
  modes: readonly [number | null, number | null],
): CandidateFile {
  const ref = (b: Uint8Array | null): CandidateFile['before'] =>
    b === null ? null : { sha256: sha256(b), size: b.length };
  return {
    path: RelPath.parse('src/a.py'),
    change: before === null ? 'added' : after === null ? 'deleted' : 'modified',
    before: ref(before),
    after: ref(after),
    beforeMode: modes[0],
    afterMode: modes[1],
  };
}
const show = (
  before: string | null,
  after: string | null,
  modes: readonly [number | null, number | null] = [0o644, 0o644],
): string[] => {
  const b = before === null ? null : bytes(before);
  const a = after === null ? null : bytes(after);
  return unifiedDiff(file(b, a, modes), b, a).map((line) => `${line.kind}|${line.text}`);
};

describe('unified diff of exact bytes', () => {
  it('shows changed lines in their context', () => {
    expect(show('a\nb\nc\n', 'a\nB\nc\n')).toEqual([
      'header|--- a/src/a.py',
      'header|+++ b/src/a.py',
      'hunk|@@ -1,3 +1,3 @@',
      'same|a',
      'removed|b',
      'added|B',
      'same|c',
    ]);
  });

  it('shows a change of line ends and of the final newline', () => {
    expect(show('a\n', 'a\r\n')).toContain('added|a\r');
    expect(show('a\n', 'a')).toContain('remark|No newline at end of file');
    expect(show('a\n', '\ufeffa\n')).toContain('added|\ufeffa');
  });

  it('names new, deleted and re-moded files', () => {
    expect(show(null, 'x\n', [null, 0o644]).slice(0, 3)).toEqual([
      'header|new file mode 100644',
      'header|--- /dev/null',
      'header|+++ b/src/a.py',
    ]);
    expect(show('x\n', null, [0o644, null])[0]).toBe('header|deleted file mode 100644');
    expect(show('x\n', 'x\n', [0o644, 0o755]).slice(0, 2)).toEqual([
      'header|old mode 100644',
      'header|new mode 100755',
    ]);
  });

  it('does not show bytes that are not text as lines', () => {
    const before = bytes('a\n');
    const after = new Uint8Array([0xff, 0xfe, 0x00]);
    expect(unifiedDiff(file(before, after, [0o644, 0o644]), before, after).at(-1)).toEqual({
      kind: 'not-shown',
      text: 'not text: 2 bytes before, 3 after',
    });
  });

  it('shows a file whole where the differences are too many to match', () => {
    const many = (from: number): string => Array.from({ length: 3000 }, (_, i) => `${i + from}\n`).join('');
    const lines = show(many(0), many(1_000_000));
    expect(lines[2]).toBe('hunk|@@ -1,3000 +1,3000 @@');
    expect(lines).toHaveLength(2 + 1 + 6000);
  });
});
