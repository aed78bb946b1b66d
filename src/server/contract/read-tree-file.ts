import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { join } from 'node:path';

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
  const segments = path.split('/');
  for (let n = 1; n < segments.length; n += 1) {
    const at = segments.slice(0, n).join('/');
    try {
      const stat = await lstat(join(root, at));
      if (stat.isSymbolicLink()) return { ok: false, fault: 'parent-link', at };
      if (!stat.isDirectory()) return { ok: false, fault: 'parent-file', at };
    } catch (error) {
      return { ok: false, fault: errno(error) === 'EACCES' ? 'unreadable' : 'missing', at };
    }
  }
  try {
    const stat = await lstat(join(root, path));
    if (stat.isSymbolicLink()) return { ok: false, fault: 'link', at: path };
    if (stat.isDirectory()) return { ok: false, fault: 'folder', at: path };
    if (!stat.isFile()) return { ok: false, fault: 'not-regular', at: path };
    return { ok: true, size: stat.size, executable: (stat.mode & 0o111) !== 0 };
  } catch (error) {
    return { ok: false, fault: errno(error) === 'EACCES' ? 'unreadable' : 'missing', at: path };
  }
}

/**
 * Bytes of a regular file of the working tree, at most `limit`. No link is followed, a pipe or device never blocks or
 * acts, and a file that changes while it is read is told (once tried again). Never throws.
 */
export async function readTreeFile(root: string, path: string, limit: number): Promise<TreeFile> {
  const first = await readOnce(root, path, limit);
  return first.ok || first.fault !== 'changing' ? first : readOnce(root, path, limit);
}

async function readOnce(root: string, path: string, limit: number): Promise<TreeFile> {
  const entry = await statTreeFile(root, path);
  if (!entry.ok) return entry;
  if (entry.size > limit) return { ok: false, fault: 'too-large', at: path };
  // O_NONBLOCK: between the look and the open the file could have become a pipe. Both flags are absent on Windows.
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  let file;
  try {
    file = await open(join(root, path), flags);
  } catch (error) {
    const code = errno(error);
    const fault = code === 'ENOENT' ? 'missing' : code === 'ELOOP' ? 'link' : 'unreadable';
    return { ok: false, fault, at: path };
  }
  try {
    const before = await file.stat({ bigint: true });
    if (!before.isFile()) return { ok: false, fault: 'not-regular', at: path };
    // Actual bytes count, not the size that was promised; one more than allowed shows that there is more.
    const bytes = Buffer.alloc(Math.min(limit, Number(before.size)) + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(bytes, length, bytes.byteLength - length, length);
      if (bytesRead === 0) break;
      length += bytesRead;
      if (length === bytes.byteLength) break;
    }
    const after = await file.stat({ bigint: true });
    const name = await lstat(join(root, path), { bigint: true });
    const same =
      after.size === before.size &&
      after.mtimeNs === before.mtimeNs &&
      BigInt(length) === after.size &&
      name.ino === after.ino &&
      name.dev === after.dev;
    if (!same) return { ok: false, fault: length > limit ? 'too-large' : 'changing', at: path };
    // The parents are looked at again: one that was swapped for a link in between has another inode behind the name.
    const again = await statTreeFile(root, path);
    if (!again.ok) return again;
    return { ok: true, bytes: bytes.subarray(0, length), executable: (Number(after.mode) & 0o111) !== 0 };
  } catch (error) {
    return { ok: false, fault: errno(error) === 'ENOENT' ? 'missing' : 'unreadable', at: path };
  } finally {
    await file.close();
  }
}
