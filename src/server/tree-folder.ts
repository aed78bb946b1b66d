import { constants, existsSync } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';

/** A parent of a path is not a real folder. */
export class FolderFault extends Error {
  override readonly name = 'FolderFault';
  readonly fault: 'missing' | 'parent-link' | 'parent-file' | 'unreadable';
  /** The parent, relative to the root; empty for the root itself. */
  readonly at: string;
  constructor(fault: FolderFault['fault'], at: string) {
    super(`${fault}: ${at}`);
    this.fault = fault;
    this.at = at;
  }
}

/** Through an open folder's entry here a name is looked up in that very folder, wherever its own name points by now. */
const openFolders = '/proc/self/fd';
const hasOpenFolders = process.platform === 'linux' && existsSync(openFolders);

/**
 * Acts on names in a folder below `root`, reached without following a link. `act` gets the folder's path to put names
 * behind. On Linux each folder on the way is opened in the one before, so that a folder that is swapped for a link in the
 * meantime can't lead elsewhere (adversarial 38); where there is no such thing, each is looked at right before.
 *
 * Throws FolderFault; what `act` throws passes.
 */
export async function inFolder<T>(root: string, folder: string, act: (path: string) => Promise<T>): Promise<T> {
  const segments = folder === '' || folder === '.' ? [] : folder.split('/');
  if (!hasOpenFolders) {
    for (let n = 0; n <= segments.length; n += 1) await mustBeFolder(root, segments.slice(0, n).join('/'));
    return act(join(root, folder));
  }
  let current = await openFolder(root, '', () => mustBeFolder(root, ''));
  try {
    for (const [n, segment] of segments.entries()) {
      const at = segments.slice(0, n + 1).join('/');
      const name = `${openFolders}/${current.fd}/${segment}`;
      const next = await openFolder(name, at, () => faultOf(name, at));
      await current.close();
      current = next;
    }
    return await act(`${openFolders}/${current.fd}`);
  } finally {
    await current.close();
  }
}

async function openFolder(path: string, at: string, explain: () => Promise<void>): Promise<FileHandle> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') throw new FolderFault('missing', at);
    if (code === 'ENOTDIR' || code === 'ELOOP') await explain();
    throw new FolderFault('unreadable', at);
  }
}

async function mustBeFolder(root: string, at: string): Promise<void> {
  await faultOf(join(root, at), at);
}

/** Throws what is wrong with a folder; returns when nothing is. */
async function faultOf(path: string, at: string): Promise<void> {
  const stat = await lstat(path).catch((error: unknown) => {
    throw new FolderFault((error as NodeJS.ErrnoException).code === 'ENOENT' ? 'missing' : 'unreadable', at);
  });
  if (stat.isSymbolicLink()) throw new FolderFault('parent-link', at);
  if (!stat.isDirectory()) throw new FolderFault('parent-file', at);
}

/** Folder and name of a path that has passed the rules of `paths.ts`. */
export function splitPath(path: string): { readonly folder: string; readonly name: string } {
  const slash = path.lastIndexOf('/');
  return { folder: slash < 0 ? '' : path.slice(0, slash), name: path.slice(slash + 1) };
}
