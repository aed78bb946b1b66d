import { constants } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { EscrowError } from '../protocol/errors.ts';
import { parseRelPath, pathKey, type PathFault } from '../protocol/paths.ts';

/**
 * Why bytes were not written: their name breaks a rule of paths, is (on some file system) that of another one here, or is
 * not taken by this file system.
 */
export type NameFault = PathFault | 'name-taken' | 'name-not-taken-here';

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? '';
/** What a file system says of a name that it does not take: too long together, or of another form. */
const nameErrors: ReadonlySet<string> = new Set(['ENAMETOOLONG', 'EINVAL', 'EILSEQ']);

/**
 * A folder into which bytes of unknown origin are written: new or empty when it is opened, and everything in it made by
 * this object. No link is followed in it, nothing that is there is written over, nothing can be executed.
 */
export class FreshFolder {
  /** Absolute, without links. */
  readonly root: string;
  /** Names that are taken, folded as the least particular file system does: a folder's with its path, a file's with null. */
  readonly #taken = new Map<string, string | null>();

  private constructor(root: string) {
    this.root = root;
  }

  /** Makes the folder, or takes an empty one. Throws EscrowError UnsafePath, NotFound, StorageFull. */
  static async open(folder: string): Promise<FreshFolder> {
    const absolute = path.resolve(folder);
    const refused = (what: string): EscrowError =>
      new EscrowError('UnsafePath', `${absolute} ${what}`, 'Name a folder that is new or empty.', { path: absolute });
    try {
      await mkdir(absolute, { mode: 0o700 });
      return new FreshFolder(await realpath(absolute));
    } catch (error) {
      if (codeOf(error) === 'ENOTDIR') throw refused('cannot be made: what it is to be in is no folder');
      if (codeOf(error) !== 'EEXIST') throw failed(error, absolute);
    }
    const there = await lstat(absolute).catch((error: unknown) => {
      throw failed(error, absolute);
    });
    if (there.isSymbolicLink()) throw refused('is a link');
    if (!there.isDirectory()) throw refused('is no folder');
    const inside = await readdir(absolute).catch((error: unknown) => {
      throw failed(error, absolute);
    });
    if (inside.length > 0) throw refused('is not empty');
    return new FreshFolder(await realpath(absolute));
  }

  /**
   * Writes one file, readable by its owner alone; `under`: a folder of the caller's own choice for it. Null when it was
   * written, else what is wrong with its name. Throws EscrowError UnsafePath (somebody else writes into the folder, or it
   * can't be written), StorageFull.
   */
  async write(name: string, bytes: Uint8Array, under?: string): Promise<NameFault | null> {
    const parsed = parseRelPath(name);
    if (!parsed.ok) return parsed.reason;
    const segments = [...(under === undefined ? [] : [under]), ...parsed.path.split('/')];
    const key = pathKey(segments.join('/'));
    if (this.#taken.has(key)) return 'name-taken';
    let folder = this.root;
    try {
      for (const [i, segment] of segments.slice(0, -1).entries()) {
        const folderKey = pathKey(segments.slice(0, i + 1).join('/'));
        const taken = this.#taken.get(folderKey);
        folder = path.join(folder, segment);
        if (taken !== undefined && taken !== folder) return 'name-taken';
        if (taken === undefined) {
          await mkdir(folder, { mode: 0o700 });
          this.#taken.set(folderKey, folder);
        } else if (!(await lstat(folder)).isDirectory()) throw changed(folder);
      }
      const file = path.join(folder, segments.at(-1) ?? '');
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      const handle = await open(file, flags, 0o600);
      try {
        await handle.writeFile(bytes);
      } finally {
        await handle.close();
      }
    } catch (error) {
      if (nameErrors.has(codeOf(error))) return 'name-not-taken-here';
      throw codeOf(error) === 'ENOENT' ? changed(folder) : failed(error, folder);
    }
    this.#taken.set(key, null);
    return null;
  }
}

/** Only this object makes anything in its folder. */
function changed(where: string): EscrowError {
  return new EscrowError(
    'UnsafePath',
    `${where} was changed by somebody else meanwhile`,
    'Name a folder that nobody else writes into.',
    { path: where },
  );
}

function failed(error: unknown, where: string): unknown {
  const code = codeOf(error);
  switch (code) {
    case '':
      return error;
    case 'EEXIST':
    case 'ENOTDIR':
    case 'ELOOP':
      return changed(where);
    case 'ENOENT':
      return new EscrowError('NotFound', `${path.dirname(where)} does not exist`, 'Make it first, or name another.');
    case 'ENOSPC':
    case 'EDQUOT':
      return new EscrowError('StorageFull', `there is no room left in ${where}`, 'Make room, or name another folder.');
    default:
      return new EscrowError(
        'UnsafePath',
        `${where} can't be written (${code})`,
        'Name a folder that you may write to.',
      );
  }
}
