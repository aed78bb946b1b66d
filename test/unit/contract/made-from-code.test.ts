import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { contractDocs } from '../../../scripts/lib/contract-docs.ts';
import { formatted } from '../../../scripts/lib/formatted.ts';
import { contractJsonSchema } from '../../../src/server/contract/contract-json-schema.ts';

const written = (file: string): Promise<string> =>
  readFile(path.resolve(import.meta.dirname, '../../..', file), 'utf8');

it('docs/contracts.md is what the editor says of the fields (npm run docs)', async () => {
  expect(await written('docs/contracts.md')).toBe(await formatted('docs/contracts.md', contractDocs()));
});

it('media/contract.schema.json is the schema that contracts are parsed with (npm run docs)', async () => {
  expect(JSON.parse(await written('media/contract.schema.json'))).toEqual(contractJsonSchema());
});
