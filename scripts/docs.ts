// npm run docs: writes the documents that are made from the code.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { contractJsonSchema } from '../src/server/contract/contract-json-schema.ts';
import { cliDocs } from './lib/cli-docs.ts';
import { contractDocs } from './lib/contract-docs.ts';
import { formatted } from './lib/formatted.ts';
import { root } from './lib/root.ts';

await writeFile(path.join(root, 'docs', 'cli.md'), cliDocs());
await writeFile(path.join(root, 'docs', 'contracts.md'), await formatted('docs/contracts.md', contractDocs()));
await writeFile(
  path.join(root, 'media', 'contract.schema.json'),
  await formatted('media/contract.schema.json', JSON.stringify(contractJsonSchema())),
);
