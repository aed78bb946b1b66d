import { chmod, cp, mkdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { build, type BuildOptions, type Plugin } from 'esbuild';
import { dist, root } from './root.ts';

/** The four programs that Escrow consists of. */
export const bundleNames = ['executor', 'kernel', 'cli', 'extension'] as const;
export type BundleName = (typeof bundleNames)[number];

const entries: Readonly<Record<BundleName, string>> = {
  executor: 'src/executor/main.ts',
  kernel: 'src/server/main.ts',
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

/** Beside a bundle there is no package folder: the prebuilt SQLite bindings lie in `dist/prebuilds`. */
const sqliteBinding: Plugin = {
  name: 'sqlite-binding-beside-the-bundle',
  setup(builder) {
    builder.onLoad({ filter: /better-sqlite3[\\/]lib[\\/]binding\.js$/ }, async (args) => {
      const source = await readFile(args.path, 'utf8');
      const contents = source.replaceAll(`path.join(__dirname, '..', `, `path.join(__dirname, `);
      if (contents === source) throw new Error('better-sqlite3 finds its binding in another way than we know');
      return { contents, loader: 'js' };
    });
  },
};

function options(name: BundleName, production: boolean): BuildOptions {
  const shared: BuildOptions = {
    absWorkingDir: root,
    entryPoints: [entries[name]],
    outfile: path.join(dist, `${name}.cjs`),
    bundle: true,
    platform: 'node',
    format: 'cjs',
    logLevel: 'silent',
    legalComments: 'inline',
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
    kernel: { ...maps, target: 'node22', banner: { js: fileUrl }, plugins: [unusedByUs, sqliteBinding] },
    cli: { ...maps, target: 'node22', banner: { js: `#!/usr/bin/env node\n${fileUrl}` } },
    extension: { ...maps, target: 'node22', banner: { js: fileUrl }, external: ['vscode'] },
  };
  return { ...shared, ...each[name] };
}

/** Writes one bundle into `dist/`. Throws esbuild's BuildFailure. */
export async function bundle(name: BundleName, production: boolean): Promise<void> {
  await build(options(name, production));
  if (name === 'cli') await chmod(path.join(dist, 'cli.cjs'), 0o755);
}

/** Copies what the bundles read at run time: SQLite's bindings, the examples with their rehearsal scripts. */
export async function copyAssets(): Promise<void> {
  await mkdir(dist, { recursive: true });
  const copies = [
    ['node_modules/better-sqlite3/prebuilds', 'prebuilds'],
    ['examples', 'examples'],
  ] as const;
  for (const [from, to] of copies) {
    await rm(path.join(dist, to), { recursive: true, force: true });
    await cp(path.join(root, from), path.join(dist, to), {
      recursive: true,
      filter: (source) =>
        !/(^|[\\/])(__pycache__|node_modules|\.git)([\\/]|$)/.test(
          path.relative(root, source).replace(/^node_modules/, ''),
        ),
    });
  }
}
