import { constants } from 'node:fs';
import { chmod, chown, link, lstat, mkdir, open, realpath, rename, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';

/** What stands at a path of the tree right now. */
export type Seen =
  | { readonly kind: 'absent' }
  | {
      readonly kind: 'file';
      readonly sha256: Sha256;
      readonly size: number;
      /** Permission bits, without set-id. */
      readonly mode: number;
      readonly uid: number;
      readonly gid: number;
    }
  /** Something that must not be read or replaced: a link, a folder, a device, or a parent that is no real folder. */
  | { readonly kind: 'unsafe'; readonly reason: string };

/**
 * Every touch of the user's tree by an integration, one method each, so that a test can end the process between any two
 * of them. Paths are relative to `root`; a failing call throws the system's own error.
 */
export interface TreeFiles {
  readonly root: string;
  /** No link is followed, nowhere on the way. At most `limit` bytes are read; a larger file is `unsafe`. */
  look(path: string, limit: number): Promise<Seen>;
  /** Creates a folder; false when it was there. */
  makeFolder(path: string): Promise<boolean>;
  /** Removes a folder if it is empty; false otherwise. */
  removeFolder(path: string): Promise<boolean>;
  /** Writes a new file (never an existing one) and makes it durable. `like`: owner and mode to take over. */
  writeNew(
    path: string,
    bytes: Uint8Array,
    like: { readonly mode: number; readonly uid: number; readonly gid: number } | { readonly executable: boolean },
  ): Promise<void>;
  /** Puts `from` in the place of `to`. `exclusive`: only if nothing is there (throws EEXIST). */
  replace(from: string, to: string, exclusive: boolean): Promise<void>;
  /** Removes a file; false when it was not there. */
  remove(path: string): Promise<boolean>;
  /** Makes names in a folder durable. */
  syncFolder(path: string): Promise<void>;
}

function errno(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

/** The real tree. Throws when the root is not a real folder at exactly this path. */
export async function openTreeFiles(root: string): Promise<TreeFiles> {
  const real = await realpath(root);
  if (real !== root) throw new Error(`${root} is reached through a link`);
  const at = (path: string): string => join(root, path);

  return {
    root,
    look: (path, limit) => look(root, path, limit),
    async makeFolder(path) {
      try {
        await mkdir(at(path));
        return true;
      } catch (error) {
        if (errno(error) === 'EEXIST') return false;
        throw error;
      }
    },
    async removeFolder(path) {
      try {
        await rmdir(at(path));
        return true;
      } catch (error) {
        if (['ENOENT', 'ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(errno(error))) return false;
        throw error;
      }
    },
    async writeNew(path, bytes, like) {
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
      // New files take the person's umask, as an editor's would; others are opened to nobody else until they are whole.
      const file = await open(at(path), flags, 'executable' in like ? (like.executable ? 0o777 : 0o666) : 0o600);
      try {
        await file.writeFile(bytes);
        if ('mode' in like) {
          const own = await file.stat();
          if (own.uid !== like.uid || own.gid !== like.gid) await chown(at(path), like.uid, like.gid);
          await chmod(at(path), like.mode);
        }
        await file.sync();
      } finally {
        await file.close();
      }
    },
    async replace(from, to, exclusive) {
      if (!exclusive) {
        await rename(at(from), at(to));
        return;
      }
      try {
        // A second name fails where one exists, which a rename never does.
        await link(at(from), at(to));
      } catch (error) {
        if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'].includes(errno(error))) throw error;
        // File systems without hard links: looked at right before, which is the best they offer.
        const there = await lstat(at(to)).then(
          () => true,
          () => false,
        );
        if (there) throw Object.assign(new Error(`${to} exists`), { code: 'EEXIST' });
        await rename(at(from), at(to));
        return;
      }
      await unlink(at(from));
    },
    async remove(path) {
      try {
        await unlink(at(path));
        return true;
      } catch (error) {
        if (errno(error) === 'ENOENT') return false;
        throw error;
      }
    },
    async syncFolder(path) {
      // Windows cannot open a folder; NTFS journals the rename itself.
      if (process.platform === 'win32') return;
      const folder = await open(at(path), 'r');
      try {
        await folder.sync();
      } finally {
        await folder.close();
      }
    },
  };
}

async function look(root: string, path: string, limit: number): Promise<Seen> {
  const segments = path.split('/');
  for (let n = 1; n < segments.length; n += 1) {
    const parent = segments.slice(0, n).join('/');
    try {
      const stat = await lstat(join(root, parent));
      if (stat.isSymbolicLink()) return { kind: 'unsafe', reason: `parent-link: ${parent}` };
      if (!stat.isDirectory()) return { kind: 'unsafe', reason: `parent-file: ${parent}` };
    } catch (error) {
      if (errno(error) === 'ENOENT') return { kind: 'absent' };
      return { kind: 'unsafe', reason: errno(error) };
    }
  }
  try {
    const stat = await lstat(join(root, path));
    if (stat.isSymbolicLink()) return { kind: 'unsafe', reason: 'link' };
    if (!stat.isFile()) return { kind: 'unsafe', reason: 'not-a-regular-file' };
    if (stat.size > limit) return { kind: 'unsafe', reason: 'too-large' };
  } catch (error) {
    if (errno(error) === 'ENOENT') return { kind: 'absent' };
    return { kind: 'unsafe', reason: errno(error) };
  }
  // O_NONBLOCK: between the look and the open the file could have become a pipe.
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  let file;
  try {
    file = await open(join(root, path), flags);
  } catch (error) {
    return errno(error) === 'ENOENT' ? { kind: 'absent' } : { kind: 'unsafe', reason: errno(error) };
  }
  try {
    const stat = await file.stat();
    if (!stat.isFile()) return { kind: 'unsafe', reason: 'not-a-regular-file' };
    if (stat.size > limit) return { kind: 'unsafe', reason: 'too-large' };
    const bytes = await file.readFile();
    return {
      kind: 'file',
      sha256: sha256(bytes),
      size: bytes.byteLength,
      mode: stat.mode & 0o1777,
      uid: stat.uid,
      gid: stat.gid,
    };
  } catch (error) {
    return { kind: 'unsafe', reason: errno(error) };
  } finally {
    await file.close();
  }
}
