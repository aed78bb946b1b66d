import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { cliDocs } from '../../../scripts/lib/cli-docs.ts';

it('docs/cli.md is what the command line says of itself (npm run docs)', async () => {
  const written = await readFile(path.resolve(import.meta.dirname, '../../../docs/cli.md'), 'utf8');
  expect(written).toBe(cliDocs());
});
