import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  opendirSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { join } from 'node:path';
import {
  channelBounds,
  dependencyPaths,
  placedMode,
  workerId,
  type ExecutorFailure,
  type WorkspaceReport,
} from '../protocol/executor.ts';
import { sha256 } from '../protocol/hash.ts';
import { parseRelPath } from '../protocol/paths.ts';
import type { FileEntry, RelPath, Sha256 } from '../protocol/primitives.ts';

/** A refusal that is an answer, not a defect. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly code: ExecutorFailure;
  constructor(code: ExecutorFailure, message: string) {
    super(message);
    this.code = code;
  }
}

export interface FoundFile {
  readonly bytes: Buffer;
  /** As declared at placing, not as widened for the worker. */
  readonly mode: number;
  readonly sha256: Sha256;
}

const readOnly = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const folderOnly = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const createOnly = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** Walk bound: folders and odd entries count as well. */
const maxEntries = 40_000;

/**
 * The files in the sandbox. Everything outside scratch belongs to root and can't be written by the worker, so nobody
 * can swap a folder for a link between a check and its use; the checks are made all the same. All calls are
 * synchronous: the files are in memory, and a thread pool that starts at the process limit would end the supervisor.
 */
export class Workspace {
  readonly #root: string;
  readonly #declaredModes = new Map<string, number>();
  #scratch: readonly string[] = [];
  #temporaries = 0;

  constructor(root: string) {
    this.#root = root;
  }

  makeScratch(paths: readonly RelPath[]): void {
    this.#scratch = paths;
    for (const path of paths) {
      this.#makeFolders(path.split('/'), path);
      chmodSync(join(this.#root, path), 0o755);
      chownSync(join(this.#root, path), workerId, workerId);
    }
  }

  /**
   * Makes each folder `node_modules` with one link for each package that the image has for it. A folder of links rather
   * than one link, so that a scratch folder (a tool's cache) can lie in it. Folders that the image lacks are left out.
   */
  linkModules(folders: readonly RelPath[], packages: string): void {
    for (const folder of folders) {
      const source = `${packages}/${folder}`;
      let names: readonly string[];
      try {
        names = readdirSync(source);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
        throw refusalOf(error, source);
      }
      this.#makeFolders(folder.split('/'), folder);
      try {
        for (const name of names) symlinkSync(`${source}/${name}`, join(this.#root, folder, name));
      } catch (error) {
        throw refusalOf(error, folder);
      }
    }
  }

  /** Puts a file that must not exist yet. Throws Refusal. */
  place(path: RelPath, mode: number, bytes: Buffer): void {
    this.#makeFolders(parentsOf(path), path);
    if (this.#lstat(path) !== undefined) throw new Refusal('conflict', 'exists already');
    this.#put(path, mode, bytes);
  }

  /** Throws Refusal: not-found, invalid (no regular file), too-large. */
  read(path: RelPath): FoundFile {
    this.#checkParents(path);
    const bytes = this.#bytes(path);
    return { bytes, mode: this.#modeOf(path), sha256: sha256(bytes) };
  }

  /**
   * Replaces a file's bytes if it still has the expected hash (null: if it does not exist). The new bytes are written
   * beside it and renamed over it, so that a full file system leaves the old ones. Throws Refusal: conflict, no-space.
   */
  write(path: RelPath, bytes: Buffer, expected: Sha256 | null): void {
    this.#checkWritePlace(path);
    const exists = this.#lstat(path) !== undefined;
    if (expected === null) {
      if (exists) throw new Refusal('conflict', 'exists already');
    } else {
      if (!exists) throw new Refusal('conflict', 'does not exist any more');
      if (sha256(this.#bytes(path)) !== expected) throw new Refusal('conflict', 'has other bytes than expected');
    }
    this.#makeFolders(parentsOf(path), path);
    this.#put(path, exists ? this.#modeOf(path) : 0o644, bytes);
  }

  /** All regular files outside scratch, by path; everything else there is odd. Bounded. */
  report(): WorkspaceReport {
    const files: FileEntry[] = [];
    const odd: string[] = [];
    const folders = [''];
    let entries = 0;
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      const directory = opendirSync(join(this.#root, folder));
      try {
        for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
          entries += 1;
          if (entries > maxEntries || odd.length >= 256 || files.length >= 20_000) return { files, odd, whole: false };
          const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
          if (this.#scratch.includes(path)) continue;
          const stats = lstatSync(join(this.#root, path));
          if (stats.isDirectory()) {
            if (stats.uid !== 0) odd.push(path.slice(0, 2000));
            folders.push(path);
            continue;
          }
          if (stats.isSymbolicLink() && stats.uid === 0 && this.#isPackageLink(path)) continue;
          const parsed = parseRelPath(path);
          if (!parsed.ok || !isPlain(stats) || stats.size > channelBounds.fileBytes) {
            odd.push(path.slice(0, 2000));
            continue;
          }
          const bytes = this.#bytes(parsed.path);
          files.push({ path: parsed.path, mode: this.#modeOf(parsed.path), size: bytes.length, sha256: sha256(bytes) });
        }
      } finally {
        directory.closeSync();
      }
    }
    return { files, odd, whole: true };
  }

  /** Only root can have made it: the worker owns no folder outside scratch. All the same it must lead where ours do. */
  #isPackageLink(path: string): boolean {
    return (
      /(?:^|\/)node_modules\/[^/]+$/.test(path) &&
      readlinkSync(join(this.#root, path)) === `${dependencyPaths.root}/${path}`
    );
  }

  #put(path: RelPath, declared: number, bytes: Buffer): void {
    this.#temporaries += 1;
    const name = `.escrow-${process.pid}-${this.#temporaries}.tmp`;
    this.#within(path, (folder) => this.#putIn(`${folder}/${nameOf(path)}`, `${folder}/${name}`, declared, bytes));
    this.#declaredModes.set(path, declared);
  }

  #putIn(target: string, beside: string, declared: number, bytes: Buffer): void {
    let file: number | undefined;
    try {
      file = openSync(beside, createOnly, 0o600);
      writeAll(file, bytes);
      fchmodSync(file, placedMode(declared));
      closeSync(file);
      file = undefined;
      renameSync(beside, target);
    } catch (error) {
      if (file !== undefined) closeSync(file);
      removeIfThere(beside);
      throw refusalOf(error);
    }
  }

  #bytes(path: RelPath): Buffer {
    const file = this.#within(path, (folder) => openSync(`${folder}/${nameOf(path)}`, readOnly));
    try {
      const stats = fstatSync(file);
      if (!isPlain(stats)) throw new Refusal('invalid', 'is not a plain file of the workspace');
      if (stats.size > channelBounds.fileBytes) throw new Refusal('too-large', `has ${stats.size} bytes`);
      return readAll(file, stats.size);
    } finally {
      closeSync(file);
    }
  }

  /**
   * Hands out a name for the folder that holds a path. Each folder is opened in the one before, and none that is a link
   * is: whatever is swapped meanwhile, by whomever, the name leads to a folder of the workspace.
   */
  #within<T>(path: RelPath, use: (folder: string) => T): T {
    let folder: number | undefined;
    try {
      folder = openSync(this.#root, folderOnly);
      for (const segment of parentsOf(path)) {
        const next = openSync(`/proc/self/fd/${folder}/${segment}`, folderOnly);
        closeSync(folder);
        folder = next;
      }
      return use(`/proc/self/fd/${folder}`);
    } catch (error) {
      throw refusalOf(error);
    } finally {
      if (folder !== undefined) closeSync(folder);
    }
  }

  #modeOf(path: RelPath): number {
    const actual = lstatSync(join(this.#root, path)).mode & 0o777;
    const declared = this.#declaredModes.get(path);
    return declared !== undefined && placedMode(declared) === actual ? declared : actual;
  }

  #lstat(path: string): Stats | undefined {
    try {
      return lstatSync(join(this.#root, path), { throwIfNoEntry: false });
    } catch (error) {
      throw refusalOf(error);
    }
  }

  #checkWritePlace(path: RelPath): void {
    for (const parent of prefixesOf(parentsOf(path))) {
      const stats = this.#lstat(parent);
      if (stats !== undefined) checkFolder(stats, parent);
    }
  }

  #checkParents(path: RelPath): void {
    for (const parent of prefixesOf(parentsOf(path))) {
      const stats = this.#lstat(parent);
      if (stats === undefined) throw new Refusal('not-found', 'does not exist');
      checkFolder(stats, parent);
    }
  }

  #makeFolders(segments: readonly string[], what: string): void {
    for (const folder of prefixesOf(segments)) {
      const stats = this.#lstat(folder);
      if (stats !== undefined) {
        checkFolder(stats, folder);
        continue;
      }
      try {
        mkdirSync(join(this.#root, folder), 0o755);
      } catch (error) {
        throw refusalOf(error, what);
      }
    }
  }
}

/** A regular file of root with one name: nothing that could stand for another file. */
function isPlain(stats: Stats): boolean {
  return stats.isFile() && stats.nlink === 1 && stats.uid === 0;
}

function checkFolder(stats: Stats, folder: string): void {
  if (!stats.isDirectory() || stats.uid !== 0) throw new Refusal('invalid', `${folder} is not a folder of root`);
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

function parentsOf(path: string): string[] {
  return path.split('/').slice(0, -1);
}

function prefixesOf(segments: readonly string[]): string[] {
  return segments.map((_, index) => segments.slice(0, index + 1).join('/'));
}

/** At most `size` bytes and one more to see growth; a file that changes while it is read is refused. */
function readAll(file: number, size: number): Buffer {
  const buffer = Buffer.alloc(size + 1);
  let length = 0;
  while (length <= size) {
    const got = readSync(file, buffer, length, buffer.length - length, null);
    if (got === 0) break;
    length += got;
  }
  if (length !== size) throw new Refusal('conflict', 'changed while it was read');
  return buffer.subarray(0, size);
}

function writeAll(file: number, bytes: Buffer): void {
  let offset = 0;
  while (offset < bytes.length) offset += writeSync(file, bytes, offset, bytes.length - offset, null);
}

function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It was never made, or has been renamed.
  }
}

function refusalOf(error: unknown, what = 'the file'): unknown {
  if (error instanceof Refusal) return error;
  const code = (error as NodeJS.ErrnoException).code;
  switch (code) {
    case 'ENOENT':
      return new Refusal('not-found', 'does not exist');
    case 'ELOOP':
    case 'ENOTDIR':
    case 'EISDIR':
    case 'ENXIO':
      return new Refusal('invalid', `${what} is not a plain file (${code})`);
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return new Refusal('no-space', `no room for ${what} (${code})`);
    case 'ENAMETOOLONG':
      return new Refusal('invalid', 'the name is too long');
    case undefined:
      return error;
    default:
      return new Refusal('io', `${what}: ${code}`);
  }
}
