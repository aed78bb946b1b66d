import { cp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createVSIX, listFiles, PackageManager } from '@vscode/vsce';
import { bundle, bundleNames, copyAssets } from './bundle.ts';
import { root } from './root.ts';

/** VS Code's platforms for which better-sqlite3 brings a binary, and the binary's name. */
export const vsixTargets = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'alpine-x64': 'linuxmusl-x64',
  'alpine-arm64': 'linuxmusl-arm64',
  'darwin-x64': 'darwin-x64',
  'darwin-arm64': 'darwin-arm64',
  'win32-x64': 'win32-x64',
  'win32-arm64': 'win32-arm64',
} as const;
export type VsixTarget = keyof typeof vsixTargets;

/** The target of this machine. */
export function ownTarget(): VsixTarget {
  const name = `${process.platform}-${process.arch}`;
  if (!(name in vsixTargets)) throw new Error(`no VSIX target for ${name}`);
  return name as VsixTarget;
}

/** What the extension needs beside its bundles, by its path in the repository; where it exists. */
const companions = ['media', 'l10n', 'package.nls.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'docs/images'];

/** Keys of package.json that say something to VS Code; the rest is about developing Escrow. */
const developerKeys = ['private', 'scripts', 'bin', 'type', 'devDependencies', 'dependencies', 'optionalDependencies'];

/**
 * Builds for production into a folder of its own (dist/ is left alone) and writes a VSIX for one platform. Returns its
 * path, its size in bytes and the files in it.
 */
export async function packageVsix(
  target: VsixTarget,
  folder: string = root,
): Promise<{ readonly file: string; readonly bytes: number; readonly files: readonly string[] }> {
  const staging = path.join(root, '.cache', `vsix-${target}`);
  await rm(staging, { recursive: true, force: true });
  await mkdir(staging, { recursive: true });
  try {
    const dist = path.join(staging, 'dist');
    await Promise.all(bundleNames.map((name) => bundle(name, true, dist)));
    await copyAssets(dist, vsixTargets[target]);
    for (const name of companions) {
      await cp(path.join(root, name), path.join(staging, name), { recursive: true }).catch(
        (error: NodeJS.ErrnoException) => {
          if (error.code !== 'ENOENT') throw error;
        },
      );
    }
    const manifest = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as Record<string, unknown>;
    for (const key of developerKeys) Reflect.deleteProperty(manifest, key);
    await writeFile(path.join(staging, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    const file = path.join(folder, `escrow-${target}.vsix`);
    await createVSIX({
      cwd: staging,
      packagePath: file,
      target,
      dependencies: false,
      allowMissingRepository: true,
      rewriteRelativeLinks: false,
    });
    const files = await listFiles({ cwd: staging, packageManager: PackageManager.None });
    return { file, bytes: (await stat(file)).size, files: files.toSorted() };
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}
