import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { needsOf } from './elf-needs.ts';
import type { ContainerEngine } from './engine.ts';
import { followFile, readPlatform } from './image-platform.ts';

/** Where loaders look without being told, and where distributions and compilers' images put libraries besides. */
const libraryFolders = (triplet: string): readonly string[] => [
  `/lib/${triplet}`,
  `/usr/lib/${triplet}`,
  '/lib64',
  '/usr/lib64',
  '/lib',
  '/usr/lib',
  '/usr/local/lib64',
  '/usr/local/lib',
];

/**
 * What of a Node program's needs an image lacks: its loader, libraries, versions of symbols. Empty: it can start there.
 * From the files of a container that was never started; nothing of the image is run.
 */
export async function missingFor(
  engine: ContainerEngine,
  container: string,
  nodePath: string,
  architecture: string,
): Promise<readonly string[]> {
  const { loader, libraries } = await needsOf(nodePath);
  if (loader === null) return [];
  const lacking: string[] = [];
  if ((await followFile(engine, container, loader)) === undefined) lacking.push(loader);
  const triplet = architecture === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
  for (const [name, versions] of libraries) {
    const folders = name === path.posix.basename(loader) ? [path.posix.dirname(loader)] : libraryFolders(triplet);
    let found: Buffer | undefined;
    for (const folder of folders) {
      found ??= (await followFile(engine, container, `${folder}/${name}`))?.bytes;
    }
    if (found === undefined) lacking.push(name);
    else {
      const absent = versions.filter((version) => found?.includes(`\0${version}\0`) !== true);
      if (absent.length > 0) lacking.push(`${name} with ${absent.join(', ')}`);
    }
  }
  return lacking;
}

/** Whether an image, as the engine describes it, has instructions that run when something is built from it. */
export function hasOnBuild(image: { readonly Config: { readonly OnBuild?: unknown } }): boolean {
  return ((image.Config.OnBuild ?? []) as unknown[]).length > 0;
}

/** Refuses a base with such instructions, before anything is fetched for it. Throws EscrowError ImageUnavailable. */
export function refuseOnBuild({ reference, onBuild }: { readonly reference: string; readonly onBuild: boolean }): void {
  if (!onBuild) return;
  throw new EscrowError(
    'ImageUnavailable',
    `${reference} has ONBUILD instructions, which would run when something is built from it.`,
    'Name a base image without ONBUILD in the contract.',
    { base: reference },
  );
}

/**
 * Refuses a base in which the supervisor could not start, before anything is made of it: Node is built for glibc, and
 * there is no build for musl among the pinned packages. Throws EscrowError ImageUnavailable, EngineFault.
 */
export async function refuseUnfit(
  engine: ContainerEngine,
  container: string,
  base: { readonly reference: string; readonly architecture: string },
  nodePath: string,
): Promise<void> {
  const { reference, architecture } = base;
  const lacking = await missingFor(engine, container, nodePath, architecture);
  if (lacking.length === 0) return;
  const platform = await readPlatform(engine, container, architecture);
  throw new EscrowError(
    'ImageUnavailable',
    platform?.libc?.kind === 'musl'
      ? `${reference} is built on musl; the supervisor’s Node needs glibc (${lacking.join('; ')}).`
      : `The supervisor’s Node can’t start in ${reference}, which lacks ${lacking.join('; ')}.`,
    'Name a base of Debian, Ubuntu, Fedora or another system with glibc 2.28 or newer and libstdc++: of many images the variant without “-alpine”.',
    { base: reference, lacking: lacking.join('; '), libc: platform?.libc?.kind ?? null },
  );
}
