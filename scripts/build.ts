// npm run build [-- NAME…] [--production]: bundles into dist/, and what the bundles read at run time beside them.
import { parseArgs } from 'node:util';
import { bundle, bundleNames, copyAssets, type BundleName } from './lib/bundle.ts';

const { values, positionals } = parseArgs({ options: { production: { type: 'boolean' } }, allowPositionals: true });
const unknown = positionals.filter((name) => !bundleNames.some((known) => known === name));
if (unknown.length > 0) {
  process.stderr.write(`error: no bundle is called ${unknown.join(', ')}\n→ There are: ${bundleNames.join(', ')}\n`);
  process.exit(2);
}
const names = positionals.length === 0 ? bundleNames : (positionals as BundleName[]);

const started = performance.now();
const results = await Promise.allSettled([
  ...names.map((name) => bundle(name, values.production === true)),
  ...(positionals.length === 0 ? [copyAssets()] : []),
]);
for (const [index, result] of results.entries()) {
  if (result.status === 'rejected') {
    process.stderr.write(`error: ${names[index] ?? 'assets'}: ${(result.reason as Error).message}\n`);
    process.exitCode = 1;
  }
}
const written = names.filter((_, index) => results[index]?.status === 'fulfilled');
process.stderr.write(`build: ${written.join(', ') || 'nothing'} in ${Math.round(performance.now() - started)} ms\n`);
