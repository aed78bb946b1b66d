import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
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

/** The licences of everything that was bundled, as their authors ask. */
async function notices(packages: ReadonlySet<string>): Promise<string> {
  const parts: string[] = ['Escrow contains code of the following packages.'];
  for (const folder of [...packages].toSorted()) {
    const manifest = JSON.parse(await readFile(path.join(root, folder, 'package.json'), 'utf8')) as {
      readonly name: string;
      readonly version: string;
      readonly license?: string;
    };
    const file = (await readdir(path.join(root, folder))).find((name) => /^licen[cs]e/i.test(name));
    const text = file === undefined ? '' : await readFile(path.join(root, folder, file), 'utf8');
    parts.push(`${manifest.name} ${manifest.version} (${manifest.license ?? 'see below'})\n\n${text.trim()}`);
  }
  return `${parts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

/** Builds for production everything that an installed extension consists of into an empty folder. */
export async function stageExtension(target: VsixTarget, folder: string): Promise<void> {
  const dist = path.join(folder, 'dist');
  await mkdir(dist, { recursive: true });
  const packages = await Promise.all(bundleNames.map((name) => bundle(name, true, dist)));
  await copyAssets(dist, vsixTargets[target]);
  for (const name of companions) {
    const copied = cp(path.join(root, name), path.join(folder, name), { recursive: true });
    await copied.catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
  }
  const bundled = new Set([...packages.flatMap((each) => [...each]), 'node_modules/better-sqlite3']);
  await writeFile(path.join(folder, 'THIRD-PARTY-NOTICES.txt'), await notices(bundled));
  const manifest = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as Record<string, unknown>;
  for (const key of developerKeys) Reflect.deleteProperty(manifest, key);
  await writeFile(path.join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/**
 * Writes a VSIX for one platform; dist/ is left alone. Returns its path, its size in bytes and the files in it, relative
 * to the extension's folder.
 */
export async function packageVsix(
  target: VsixTarget,
  folder: string = root,
): Promise<{ readonly file: string; readonly bytes: number; readonly files: readonly string[] }> {
  const staging = await mkdtemp(path.join(tmpdir(), 'escrow-vsix-'));
  try {
    await stageExtension(target, staging);
    // Nothing to leave out: only what runs was staged.
    await writeFile(path.join(staging, '.vscodeignore'), '');
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
