import { constants } from 'node:fs';
import { chmod, chown, link, lstat, mkdir, open, realpath, rename, rmdir, unlink } from 'node:fs/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { FolderFault, inFolder, splitPath } from '../tree-folder.ts';

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
 * of them. Paths are relative to `root`; no link is followed on the way (FolderFault), and a failing call throws the
 * system's own error.
 */
export interface TreeFiles {
  readonly root: string;
  /** At most `limit` bytes are read; a larger file is `unsafe`. */
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
  /** Puts `from` in the place of `to`, in the same folder. `exclusive`: only if nothing is there (throws EEXIST). */
  replace(from: string, to: string, exclusive: boolean): Promise<void>;
  /** Removes a file; false when it was not there. */
  remove(path: string): Promise<boolean>;
  /** Makes names in a folder durable. */
  syncFolder(path: string): Promise<void>;
}

function errno(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

/** The real tree. Throws EscrowError UnsafePath unless a real folder stands at exactly this path. */
export async function openTreeFiles(root: string): Promise<TreeFiles> {
  const real = await realpath(root).catch(() => undefined);
  if (real !== root) {
    throw new EscrowError(
      'UnsafePath',
      `Nothing was written: ${root} ${real === undefined ? 'is not there' : 'is reached through a link'}`,
      'Open the folder that the contract was frozen in.',
      { paths: [root] },
    );
  }
  const inside = <T>(path: string, act: (at: string) => Promise<T>): Promise<T> => {
    const { folder, name } = splitPath(path);
    return inFolder(root, folder, (at) => act(`${at}/${name}`));
  };

  return {
    root,
    look: (path, limit) => look(root, path, limit),
    makeFolder: (path) =>
      inside(path, async (at) => {
        try {
          await mkdir(at);
          return true;
        } catch (error) {
          if (errno(error) === 'EEXIST') return false;
          throw error;
        }
      }),
    async removeFolder(path) {
      try {
        await inside(path, (at) => rmdir(at));
        return true;
      } catch (error) {
        if (error instanceof FolderFault) return false;
        if (['ENOENT', 'ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(errno(error))) return false;
        throw error;
      }
    },
    writeNew: (path, bytes, like) => inside(path, (at) => writeNew(at, bytes, like)),
    replace(from, to, exclusive) {
      const source = splitPath(from);
      const target = splitPath(to);
      if (source.folder !== target.folder) throw new Error('a file is only replaced from beside it');
      return inFolder(root, target.folder, (at) => replace(`${at}/${source.name}`, `${at}/${target.name}`, exclusive));
    },
    async remove(path) {
      try {
        await inside(path, (at) => unlink(at));
        return true;
      } catch (error) {
        if (errno(error) === 'ENOENT') return false;
        if (error instanceof FolderFault && error.fault === 'missing') return false;
        throw error;
      }
    },
    async syncFolder(path) {
      // Windows cannot open a folder; NTFS journals the rename itself.
      if (process.platform === 'win32') return;
      await inFolder(root, path, async (at) => {
        const folder = await open(at, 'r');
        try {
          await folder.sync();
        } finally {
          await folder.close();
        }
      });
    },
  };
}

async function writeNew(at: string, bytes: Uint8Array, like: Parameters<TreeFiles['writeNew']>[2]): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
  // New files take the person's umask, as an editor's would; others are opened to nobody else until they are whole.
  const file = await open(at, flags, 'executable' in like ? (like.executable ? 0o777 : 0o666) : 0o600);
  try {
    await file.writeFile(bytes);
    if ('mode' in like) {
      const own = await file.stat();
      if (own.uid !== like.uid || own.gid !== like.gid) await chown(at, like.uid, like.gid);
      await chmod(at, like.mode);
    }
    await file.sync();
  } finally {
    await file.close();
  }
}

async function replace(from: string, to: string, exclusive: boolean): Promise<void> {
  if (!exclusive) {
    await rename(from, to);
    return;
  }
  try {
    // A second name fails where one exists, which a rename never does.
    await link(from, to);
  } catch (error) {
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'].includes(errno(error))) throw error;
    // File systems without hard links: looked at right before, which is the best they offer.
    const there = await lstat(to).then(
      () => true,
      () => false,
    );
    if (there) throw Object.assign(new Error(`${to} exists`, { cause: error }), { code: 'EEXIST' });
    await rename(from, to);
    return;
  }
  await unlink(from);
}

async function look(root: string, path: string, limit: number): Promise<Seen> {
  const { folder, name } = splitPath(path);
  try {
    return await inFolder(root, folder, (at) => lookAt(`${at}/${name}`, limit));
  } catch (error) {
    if (error instanceof FolderFault) {
      return error.fault === 'missing' ? { kind: 'absent' } : { kind: 'unsafe', reason: error.message };
    }
    return errno(error) === 'ENOENT' ? { kind: 'absent' } : { kind: 'unsafe', reason: errno(error) };
  }
}

async function lookAt(leaf: string, limit: number): Promise<Seen> {
  const named = await lstat(leaf);
  if (named.isSymbolicLink()) return { kind: 'unsafe', reason: 'link' };
  if (!named.isFile()) return { kind: 'unsafe', reason: 'not-a-regular-file' };
  // O_NONBLOCK: between the look and the open the file could have become a pipe.
  const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
  const file = await open(leaf, flags);
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
  } finally {
    await file.close();
  }
}
