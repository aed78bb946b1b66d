import { randomBytes } from 'node:crypto';
import { cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
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

/** What is in dist/ after all bundles and `copyAssets`; a build that is under way may have its drafts beside these. */
export const builtNames: readonly string[] = [
  ...bundleNames.map((name) => `${name}.cjs`),
  'prebuilds',
  'grammars',
  'examples',
];

async function holds(file: string, contents: Uint8Array): Promise<boolean> {
  const held = await readFile(file).catch(() => null);
  return held?.equals(contents) === true;
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
  await mkdir(folder, { recursive: true });
  for (const { path: target, contents } of outputFiles) {
    if (await holds(target, contents)) continue;
    // Beside its place and then renamed: a program that starts meanwhile has the old bundle or the new one, whole.
    const draft = `${target}.${process.pid}.${randomBytes(4).toString('hex')}`;
    await writeFile(draft, contents, { mode: target.endsWith('cli.cjs') ? 0o755 : 0o644 });
    await rename(draft, target);
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
  await mkdir(folder, { recursive: true });
  const grammars: ReadonlySet<string> = new Set(Object.values(grammarFiles));
  const skipped = /(^|[\\/])(__pycache__|node_modules|\.git)([\\/]|$)/;
  const copies: readonly (readonly [from: string, to: string, wanted: (relative: string) => boolean])[] = [
    [
      'node_modules/better-sqlite3/prebuilds',
      'prebuilds',
      (name) => binding === undefined || name === '' || name === `${binding}.node`,
    ],
    ['node_modules/@vscode/tree-sitter-wasm/wasm', 'grammars', (name) => name === '' || grammars.has(name)],
    ['examples', 'examples', (name) => !skipped.test(name)],
  ];
  for (const [from, to, wanted] of copies) {
    const source = path.join(root, from);
    await rm(path.join(folder, to), { recursive: true, force: true });
    await cp(source, path.join(folder, to), { recursive: true, filter: (file) => wanted(path.relative(source, file)) });
  }
}
