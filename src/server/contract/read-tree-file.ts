import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { FolderFault, inFolder, splitPath } from '../tree-folder.ts';

/** Why a file of the working tree can't be taken. */
export type TreeFileFault =
  | 'missing'
  | 'link'
  | 'parent-link'
  | 'parent-file'
  | 'folder'
  | 'not-regular'
  | 'too-large'
  | 'unreadable'
  | 'changing';

export type TreeFile =
  | { readonly ok: true; readonly bytes: Uint8Array; readonly executable: boolean }
  | { readonly ok: false; readonly fault: TreeFileFault; readonly at: string };

export type TreeEntry =
  | { readonly ok: true; readonly size: number; readonly executable: boolean }
  | { readonly ok: false; readonly fault: TreeFileFault; readonly at: string };

function errno(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

/** Looks at a path without opening it: each parent must be a real folder, the leaf a regular file. Never throws. */
export async function statTreeFile(root: string, path: string): Promise<TreeEntry> {
  const { folder, name } = splitPath(path);
  return guarded(path, () => inFolder(root, folder, (at) => statLeaf(`${at}/${name}`, path)));
}

/**
 * Bytes of a regular file of the working tree, at most `limit`. No link is followed, a pipe or device never blocks or
 * acts, and a file that changes while it is read is told (once tried again). Never throws.
 */
export async function readTreeFile(root: string, path: string, limit: number): Promise<TreeFile> {
  const { folder, name } = splitPath(path);
  const once = (): Promise<TreeFile> =>
    guarded(path, () => inFolder(root, folder, (at) => readLeaf(`${at}/${name}`, path, limit)));
  const first = await once();
  return first.ok || first.fault !== 'changing' ? first : once();
}

type Refused = { readonly ok: false; readonly fault: TreeFileFault; readonly at: string };

async function guarded<T>(path: string, act: () => Promise<T>): Promise<T | Refused> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof FolderFault) return { ok: false, fault: error.fault, at: error.at };
    return { ok: false, fault: errno(error) === 'ENOENT' ? 'missing' : 'unreadable', at: path };
  }
}

async function statLeaf(leaf: string, path: string): Promise<TreeEntry> {
  const stat = await lstat(leaf);
  if (stat.isSymbolicLink()) return { ok: false, fault: 'link', at: path };
  if (stat.isDirectory()) return { ok: false, fault: 'folder', at: path };
  if (!stat.isFile()) return { ok: false, fault: 'not-regular', at: path };
  return { ok: true, size: stat.size, executable: (stat.mode & 0o111) !== 0 };
}

async function readLeaf(leaf: string, path: string, limit: number): Promise<TreeFile> {
  const entry = await statLeaf(leaf, path);
  if (!entry.ok) return entry;
  if (entry.size > limit) return { ok: false, fault: 'too-large', at: path };
  // O_NONBLOCK: between the look and the open the file could have become a pipe. Both flags are absent on Windows.
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  let file;
  try {
    file = await open(leaf, flags);
  } catch (error) {
    if (errno(error) === 'ELOOP') return { ok: false, fault: 'link', at: path };
    throw error;
  }
  try {
    const before = await file.stat({ bigint: true });
    if (!before.isFile()) return { ok: false, fault: 'not-regular', at: path };
    // Actual bytes count, not the size that was promised; one more than allowed shows that there is more.
    const bytes = Buffer.alloc(Math.min(limit, Number(before.size)) + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(bytes, length, bytes.byteLength - length, length);
      length += bytesRead;
      if (bytesRead === 0 || length === bytes.byteLength) break;
    }
    const after = await file.stat({ bigint: true });
    const named = await lstat(leaf, { bigint: true });
    const same =
      after.size === before.size &&
      after.mtimeNs === before.mtimeNs &&
      BigInt(length) === after.size &&
      named.ino === after.ino &&
      named.dev === after.dev;
    if (!same) return { ok: false, fault: length > limit ? 'too-large' : 'changing', at: path };
    return { ok: true, bytes: bytes.subarray(0, length), executable: (Number(after.mode) & 0o111) !== 0 };
  } finally {
    await file.close();
  }
}
