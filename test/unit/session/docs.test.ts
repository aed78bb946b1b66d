import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { recoveryTableMarkdown, verificationTableMarkdown } from '../../../src/server/session/recovery-table.ts';

/** A table without the padding that the formatter adds. */
const bare = (text: string): string =>
  text
    .replaceAll(/[ \t]*\|[ \t]*/g, '|')
    .replaceAll(/-{3,}/g, '---')
    .trim();

it('docs/lifecycle.md shows the recovery tables that the code uses', async () => {
  const text = await readFile(path.resolve(import.meta.dirname, '../../../docs/lifecycle.md'), 'utf8');
  const rows = bare(text).split('\n');
  for (const table of [recoveryTableMarkdown(), verificationTableMarkdown()]) {
    for (const row of bare(table).split('\n')) expect(rows).toContain(row);
  }
});
