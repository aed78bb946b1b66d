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

/**
 * Looks at paths without opening them: each parent must be a real folder, the leaf a regular file. Never throws; the
 * answer has every path.
 */
export function statTreeFiles(root: string, paths: readonly string[]): Promise<ReadonlyMap<string, TreeEntry>> {
  return eachLeaf(root, paths, statLeaf);
}

/**
 * Bytes of regular files of the working tree, each at most `limitOf` it. No link is followed, a pipe or device never
 * blocks or acts, and a file that changes while it is read is told (once tried again). Never throws; the answer has every
 * path.
 */
export function readTreeFiles(
  root: string,
  paths: readonly string[],
  limitOf: (path: string) => number,
): Promise<ReadonlyMap<string, TreeFile>> {
  return eachLeaf(root, paths, async (leaf, path): Promise<TreeFile> => {
    const first = await readLeaf(leaf, path, limitOf(path));
    return first.ok || first.fault !== 'changing' ? first : readLeaf(leaf, path, limitOf(path));
  });
}

type Refused = { readonly ok: false; readonly fault: TreeFileFault; readonly at: string };

/** Files and folders that are open at once: a few more than the thread pool has threads. */
const atOnce = 8;

/** Calls back for each path with its folder open, folder by folder: a big repository is looked at on each edit. */
async function eachLeaf<T>(
  root: string,
  paths: readonly string[],
  act: (leaf: string, path: string) => Promise<T>,
): Promise<ReadonlyMap<string, T | Refused>> {
  const found = new Map<string, T | Refused>();
  const folders = Map.groupBy(paths, (path) => splitPath(path).folder);
  await inParallel([...folders], async ([folder, inside]) => {
    try {
      await inFolder(root, folder, (at) =>
        inParallel(inside, async (path) => {
          const result = await act(`${at}/${splitPath(path).name}`, path).catch((error: unknown) =>
            refused(path, error),
          );
          found.set(path, result);
        }),
      );
    } catch (error) {
      for (const path of inside) found.set(path, refused(path, error));
    }
  });
  return found;
}

async function inParallel<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const left = items.values();
  const worker = async (): Promise<void> => {
    for (const item of left) await act(item);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
}

function refused(path: string, error: unknown): Refused {
  if (error instanceof FolderFault) return { ok: false, fault: error.fault, at: error.at };
  return { ok: false, fault: errno(error) === 'ENOENT' ? 'missing' : 'unreadable', at: path };
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
