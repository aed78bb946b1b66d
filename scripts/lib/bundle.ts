import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { build, type BuildOptions, type Plugin } from 'esbuild';
import { grammarFiles } from '../../src/server/scope/grammar-files.ts';
import { dist, root } from './root.ts';

/** The four programs that Escrow consists of, and the thread of the Kernel that parses what a candidate holds. */
export const bundleNames = ['executor', 'kernel', 'scope', 'cli', 'extension'] as const;
export type BundleName = (typeof bundleNames)[number];

const entries: Readonly<Record<BundleName, string>> = {
  executor: 'src/executor/main.ts',
  kernel: 'src/server/main.ts',
  scope: 'src/server/scope/scope-thread.ts',
  cli: 'src/cli/main.ts',
  extension: 'src/extension/extension.ts',
};

/**
 * dockerode loads an SSH client, gRPC and protobuf at start for engines and builders that Escrow does not use: an
 * engine is reached by its local socket or pipe. A stub that says so by name when it is called keeps the Kernel's start
 * at a third (facts/feasibility: 271 against 126 ms) and three native modules out of the package.
 */
const unusedByUs: Plugin = {
  name: 'unused-parts-of-dockerode',
  setup(builder) {
    const filter = /^(ssh2|@grpc\/grpc-js|@grpc\/proto-loader|protobufjs)$/;
    builder.onResolve({ filter }, (args) => ({ path: args.path, namespace: 'unused' }));
    builder.onLoad({ filter: /.*/, namespace: 'unused' }, (args) => ({
      contents: `const refuse = () => { throw new Error('${args.path} is not part of Escrow: engines are reached by a local socket or pipe'); };
        module.exports = new Proxy(class {}, { get: () => refuse, construct: refuse, apply: refuse });`,
    }));
  },
};

function options(name: BundleName, production: boolean, folder: string): BuildOptions {
  const shared: BuildOptions = {
    absWorkingDir: root,
    entryPoints: [entries[name]],
    outfile: path.join(folder, `${name}.cjs`),
    bundle: true,
    platform: 'node',
    format: 'cjs',
    logLevel: 'silent',
    legalComments: 'inline',
    // Its main entry is UMD, whose requires a bundler cannot follow.
    alias: { 'jsonc-parser': 'jsonc-parser/lib/esm/main.js' },
    // A bundle is CommonJS, the sources are not: what they ask of import.meta is what CommonJS has under other names.
    define: {
      'import.meta.dirname': '__dirname',
      'import.meta.filename': '__filename',
      'import.meta.url': '__escrowFileUrl',
    },
  };
  const fileUrl = `const __escrowFileUrl = require('node:url').pathToFileURL(__filename).href;`;
  const maps: BuildOptions = production
    ? { minify: true, keepNames: true }
    : { sourcemap: 'linked', sourcesContent: false };
  const each: Readonly<Record<BundleName, BuildOptions>> = {
    // Its hash is part of every binding and names the prepared image: the same bytes in every mode and on every
    // machine, and readable, because it is what a careful person looks at first. Debian's Node 20 runs it.
    executor: { target: 'node20', banner: { js: fileUrl } },
    kernel: { ...maps, target: 'node22', banner: { js: fileUrl }, plugins: [unusedByUs] },
    scope: { ...maps, target: 'node22', banner: { js: fileUrl } },
    cli: { ...maps, target: 'node22', banner: { js: `#!/usr/bin/env node\n${fileUrl}` } },
    extension: { ...maps, target: 'node22', banner: { js: fileUrl }, external: ['vscode'] },
  };
  return { ...shared, ...each[name] };
}

/** What is in dist/ after all bundles and `copyAssets`. */
export const builtNames: readonly string[] = [
  ...bundleNames.map((name) => `${name}.cjs`),
  'prebuilds',
  'grammars',
  'examples',
];

/** Where a file of dist/ is written until it is whole: apart, because others copy what is in dist/ meanwhile. */
const drafts = '.drafts';

/**
 * Writes a file of a folder, as far as it is not there yet, and then moves it to its place: a program that reads it
 * meanwhile has the old one or the new one, whole.
 */
async function place(folder: string, name: string, contents: Uint8Array, mode: number): Promise<void> {
  const target = path.join(folder, name);
  const held = await readFile(target).catch(() => null);
  if (held?.equals(contents) === true) return;
  const draft = path.join(folder, drafts, randomBytes(8).toString('hex'));
  for (const file of [target, draft]) await mkdir(path.dirname(file), { recursive: true });
  await writeFile(draft, contents, { mode });
  await rename(draft, target);
}

/** The files below a folder, relative to it; none where there is no such folder. */
async function filesBelow(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));
}

/**
 * Brings `to` in a folder to hold these files of another one and no others. Others may do the same at the same time, and
 * what runs from it may read it meanwhile: a file that is right is not touched, none is ever absent or half.
 */
async function mirror(
  source: string,
  folder: string,
  to: string,
  wanted: (relative: string) => boolean,
): Promise<void> {
  const names = (await filesBelow(source)).filter(wanted);
  for (const name of names) {
    const file = path.join(source, name);
    await place(folder, path.join(to, name), await readFile(file), (await stat(file)).mode & 0o777);
  }
  const kept = new Set(names);
  for (const name of await filesBelow(path.join(folder, to))) {
    if (!kept.has(name)) await rm(path.join(folder, to, name), { force: true });
  }
}

/**
 * Writes one bundle into a folder, as far as it is not there yet. Returns the packages that went into it. Throws
 * esbuild's BuildFailure.
 */
export async function bundle(
  name: BundleName,
  production: boolean,
  folder: string = dist,
): Promise<ReadonlySet<string>> {
  const { metafile, outputFiles } = await build({ ...options(name, production, folder), metafile: true, write: false });
  for (const { path: target, contents } of outputFiles) {
    await place(folder, path.relative(folder, target), contents, target.endsWith('cli.cjs') ? 0o755 : 0o644);
  }
  const packages = Object.keys(metafile.inputs).flatMap((input) => {
    const within = /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[0];
    return within === undefined ? [] : [within.slice(0, -1)];
  });
  return new Set(packages);
}

/**
 * Copies what the bundles read at run time: SQLite's bindings (all, or those of one platform), the grammars of the
 * languages in which symbols can be named, and the examples, which bring their rehearsal scripts.
 */
export async function copyAssets(folder: string = dist, binding?: string): Promise<void> {
  const grammars: ReadonlySet<string> = new Set(Object.values(grammarFiles));
  const skipped = /(^|[\\/])(__pycache__|node_modules|\.git)([\\/]|$)/;
  const copies: readonly (readonly [from: string, to: string, wanted: (relative: string) => boolean])[] = [
    [
      'node_modules/better-sqlite3/prebuilds',
      'prebuilds',
      (name) => binding === undefined || name === `${binding}.node`,
    ],
    ['node_modules/@vscode/tree-sitter-wasm/wasm', 'grammars', (name) => grammars.has(name)],
    ['examples', 'examples', (name) => !skipped.test(name)],
  ];
  for (const [from, to, wanted] of copies) {
    await mirror(path.join(root, from), folder, to, wanted);
  }
}
