// What is made from the code is written as `npm run format` would leave it.
import path from 'node:path';
import * as prettier from 'prettier';
import { root } from './root.ts';

/** Text of a file of the repository, formatted by the repository's own rules. */
export async function formatted(file: string, text: string): Promise<string> {
  const filepath = path.join(root, file);
  return prettier.format(text, { ...(await prettier.resolveConfig(filepath)), filepath });
}
