// npm run docs: writes the documents that are made from the code.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { cliDocs } from './lib/cli-docs.ts';
import { root } from './lib/root.ts';

await writeFile(path.join(root, 'docs', 'cli.md'), cliDocs());
