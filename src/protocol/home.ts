import { lstat, mkdir, readFile, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import envPaths from 'env-paths';
import { EscrowError } from './errors.ts';

/** Where the state of this user is: `ESCROW_HOME`, else the platform's folder for state. Absolute; not checked. */
export function homePath(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const chosen = env['ESCROW_HOME'];
  if (chosen !== undefined && chosen !== '') return path.resolve(chosen);
  const paths = envPaths('escrow', { suffix: '' });
  // On Linux that is XDG_STATE_HOME; macOS and Windows have no such thing and keep state with data.
  return process.platform === 'linux' ? paths.log : paths.data;
}

const unsafe = (reason: string, folder: string, message: string, next: string): EscrowError =>
  new EscrowError('UnsafePath', message, next, { reason, path: folder });

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

/** File systems whose locks or shared memory SQLite cannot rely on, as Linux names them in mountinfo. */
const remoteTypes =
  /^(nfs\d?|cifs|smb\w*|smbfs|9p|afs|ceph|lustre|gfs2?|ocfs2|glusterfs|virtiofs|vboxsf|prl_fs|ncpfs|davfs|coda|beegfs|fuse\.(?!portal|snapfuse).*)$/;

/** Folder names that sync programs use; the folder below them is copied while it is in use. */
const cloudName =
  /^(dropbox( \(.*\))?|onedrive( ?- ?.*)?|icloud ?drive|mobile documents|cloudstorage|google ?drive|my drive|nextcloud|owncloud|pcloud ?drive|box sync|megasync|syncthing)$/i;

/** The file system that a path is on, from the text of `/proc/self/mountinfo`; undefined when no line covers it. */
export function mountType(mountinfo: string, folder: string): string | undefined {
  let best: { readonly length: number; readonly type: string } | undefined;
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ');
    const mount = left
      ?.split(' ')[4]
      ?.replaceAll(/\\([0-7]{3})/g, (_, o: string) => String.fromCodePoint(Number.parseInt(o, 8)));
    const type = right?.split(' ')[0];
    if (mount === undefined || type === undefined) continue;
    const inside = folder === mount || folder.startsWith(mount.endsWith('/') ? mount : `${mount}/`);
    // A later line of the same mount point lies on top.
    if (inside && (best === undefined || mount.length >= best.length)) best = { length: mount.length, type };
  }
  return best?.type;
}

/** The part of a path that names a cloud-synced folder, or undefined. */
export function cloudFolder(
  folder: string,
  env: Readonly<Record<string, string | undefined>> = process.env,
): string | undefined {
  const bySegment = folder.split(/[\\/]/).find((segment) => cloudName.test(segment));
  if (bySegment !== undefined) return bySegment;
  for (const variable of ['OneDrive', 'OneDriveConsumer', 'OneDriveCommercial']) {
    const root = env[variable];
    if (root !== undefined && root !== '' && folder.toLowerCase().startsWith(root.toLowerCase() + path.sep))
      return root;
  }
  return undefined;
}

async function refuseRemote(folder: string): Promise<void> {
  const next = 'Set ESCROW_HOME to a folder on a local disk that no program synchronises.';
  const cloud = cloudFolder(folder);
  if (cloud !== undefined) {
    throw unsafe('cloud-synced', folder, `The state folder ${folder} is in a cloud-synced folder (${cloud}).`, next);
  }
  if (folder.startsWith('\\\\')) {
    throw unsafe('network', folder, `The state folder ${folder} is on a network share.`, next);
  }
  if (process.platform !== 'linux') return;
  const type = mountType(await readFile('/proc/self/mountinfo', 'utf8').catch(() => ''), folder);
  if (type !== undefined && remoteTypes.test(type)) {
    throw unsafe('network', folder, `The state folder ${folder} is on a ${type} file system.`, next);
  }
}

async function refuseOpenParents(folder: string): Promise<void> {
  if (process.platform === 'win32') return;
  for (let parent = path.dirname(folder); ; parent = path.dirname(parent)) {
    const info = await stat(parent);
    const others = (info.mode & 0o002) !== 0 && (info.mode & 0o1000) === 0;
    if (others) {
      throw unsafe(
        'parent-open',
        folder,
        `Anybody may replace the state folder: ${parent} is writable for all.`,
        `Run: chmod o-w ${parent}`,
      );
    }
    if (parent === path.dirname(parent)) return;
  }
}

/**
 * Makes a folder and those above it, mode 0700. By hand, because Node's recursive mkdir never returns where the kernel
 * answers ENOENT below a folder that exists (as /proc does).
 */
async function makeFolders(folder: string): Promise<void> {
  const fault = await makeFolder(folder);
  if (fault === undefined) return;
  const parent = path.dirname(folder);
  if (codeOf(fault) !== 'ENOENT' || parent === folder) throw fault;
  if ((await lstat(parent).catch(() => undefined)) === undefined) await makeFolders(parent);
  // Also where the parent is there by now: another process may have made it since. Where it is not that, the same comes again.
  const again = await makeFolder(folder);
  if (again !== undefined) throw again;
}

/** What kept a folder from being made, or undefined where it is there. */
async function makeFolder(folder: string): Promise<NodeJS.ErrnoException | undefined> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') return error as NodeJS.ErrnoException;
  }
  return undefined;
}

/**
 * Makes the state folder when it is absent (mode 0700) and checks it: a real folder, ours, closed to others, on a
 * local disk. Returns its path with the links above it resolved. Throws EscrowError UnsafePath, StorageUnwritable.
 */
export async function prepareHome(folder: string): Promise<string> {
  try {
    await makeFolders(folder);
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOTDIR') {
      throw unsafe('not-a-folder', folder, `${folder} is not a folder.`, 'Set ESCROW_HOME to a folder.');
    }
    throw new EscrowError(
      'StorageUnwritable',
      `The state folder ${folder} could not be made (${code}).`,
      'Set ESCROW_HOME to a folder that you may write.',
      { path: folder, cause: code },
    );
  }
  return checkHome(folder);
}

/** As `prepareHome`, for a folder that must exist already. Throws EscrowError NotFound too. */
export async function checkHome(folder: string): Promise<string> {
  const info = await lstat(folder).catch(() => undefined);
  if (info === undefined) {
    throw new EscrowError('NotFound', `There is no state folder ${folder}.`, 'Start Escrow once to make it.', {
      path: folder,
    });
  }
  if (info.isSymbolicLink()) {
    throw unsafe('symlink', folder, `The state folder ${folder} is a link.`, 'Set ESCROW_HOME to the folder itself.');
  }
  if (!info.isDirectory()) {
    throw unsafe('not-a-folder', folder, `${folder} is not a folder.`, 'Set ESCROW_HOME to a folder.');
  }
  if (process.getuid !== undefined) {
    if (info.uid !== process.getuid()) {
      throw unsafe(
        'owner',
        folder,
        `The state folder ${folder} belongs to somebody else (uid ${info.uid}).`,
        'Set ESCROW_HOME to a folder of your own.',
      );
    }
    if ((info.mode & 0o077) !== 0) {
      throw unsafe(
        'mode',
        folder,
        `The state folder ${folder} is open to others (mode ${(info.mode & 0o777).toString(8)}).`,
        `Run: chmod 700 ${folder}`,
      );
    }
  }
  const real = path.join(await realpath(path.dirname(folder)), path.basename(folder));
  await refuseRemote(real);
  await refuseOpenParents(real);
  return real;
}
