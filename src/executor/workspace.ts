import { createHash } from 'node:crypto';
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
  type Dir,
  type Stats,
} from 'node:fs';
import { join } from 'node:path';
import { channelBounds, dependencyPaths, placedMode, workerId, type ExecutorFailure } from '../protocol/executor.ts';
import type { WorkspaceReport } from '../protocol/executor-answers.ts';
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

/** A file that is open for reading: what was opened is what is read, whatever happens to its name meanwhile. */
export interface OpenFile {
  readonly size: number;
  /** As declared at placing, not as widened for the worker. */
  readonly mode: number;
  /**
   * The next bytes, put into the buffer that is given, and a view of them: one fewer than it holds, less only at the
   * end. (The one more is for seeing growth.) Throws Refusal `conflict` where the file turns out to have another size
   * than at its opening.
   */
  read(into: Buffer): Buffer;
  close(): void;
}

/** One thing that lies in the workspace. What is no plain file of root is odd. */
export type WalkEntry =
  | { readonly kind: 'file'; readonly path: RelPath }
  | { readonly kind: 'odd'; readonly path: string }
  /** A bound ended the walk. */
  | { readonly kind: 'cut' };

/** New bytes on their way into the workspace, beside what they will replace. */
export interface Draft {
  /** Throws Refusal `no-space`. */
  add(bytes: Uint8Array): void;
  /** Makes it a file of that name with the declared mode. Throws Refusal. */
  keep(path: RelPath, mode: number): void;
  /** Nothing is left of it; also after `keep`. Never throws. */
  discard(): void;
}

const readOnly = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const folderOnly = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const createOnly = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** Walk bounds: folders and odd entries count as well. */
const maxEntries = 40_000;
const maxFiles = 20_000;
const maxOdd = 256;
const maxOddPath = 2000;
/** For files that are only hashed: one call does it from its beginning to its end. */
const hashed = Buffer.allocUnsafeSlow(256 * 1024);

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
  /** Open from the first use on: it is a mount, and stays what it was. */
  #rootFolder: number | undefined;

  constructor(root: string) {
    this.#root = root;
  }

  /** These folders are the worker's: what lies in them is not looked at. */
  leaveOut(scratch: readonly RelPath[]): void {
    this.#scratch = scratch;
  }

  makeScratch(paths: readonly RelPath[]): void {
    this.leaveOut(paths);
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

  /** Throws Refusal `no-space`. The caller keeps or discards it. */
  draft(): Draft {
    this.#temporaries += 1;
    const name = join(this.#root, `.escrow-${process.pid}-${this.#temporaries}.tmp`);
    let file: number | undefined;
    try {
      file = openSync(name, createOnly, 0o600);
    } catch (error) {
      throw refusalOf(error);
    }
    const close = (): void => {
      if (file !== undefined) closeSync(file);
      file = undefined;
    };
    return {
      add: (bytes) => {
        if (file === undefined) throw new Error('the draft is closed');
        try {
          writeAll(file, bytes);
        } catch (error) {
          throw refusalOf(error);
        }
      },
      keep: (path, mode) => {
        if (file === undefined) throw new Error('the draft is closed');
        try {
          fchmodSync(file, placedMode(mode));
          close();
          this.#within(path, (folder) => renameSync(name, `${folder}/${nameOf(path)}`));
        } catch (error) {
          throw refusalOf(error);
        }
        this.#declaredModes.set(path, mode);
      },
      discard: () => {
        close();
        removeIfThere(name);
      },
    };
  }

  /** Makes a draft a file that must not exist yet. Throws Refusal. */
  place(path: RelPath, mode: number, draft: Draft): void {
    this.#makeFolders(parentsOf(path), path);
    if (this.#lstat(path) !== undefined) throw new Refusal('conflict', 'exists already');
    draft.keep(path, mode);
  }

  /**
   * Replaces a file by a draft if it still has the expected hash (null: if it does not exist). The draft is renamed over
   * it, so that a full file system leaves the old bytes. Throws Refusal: conflict, no-space.
   */
  write(path: RelPath, draft: Draft, expected: Sha256 | null): void {
    this.#checkWritePlace(path);
    const exists = this.#lstat(path) !== undefined;
    if (expected === null) {
      if (exists) throw new Refusal('conflict', 'exists already');
    } else {
      if (!exists) throw new Refusal('conflict', 'does not exist any more');
      if (this.entry(path).sha256 !== expected) throw new Refusal('conflict', 'has other bytes than expected');
    }
    this.#makeFolders(parentsOf(path), path);
    draft.keep(path, exists ? this.#modeOf(path) : 0o644);
  }

  /** Throws Refusal: not-found, invalid (no plain file, or behind a link), too-large. The caller closes it. */
  open(path: RelPath): OpenFile {
    const file = this.#within(path, (folder) => openSync(`${folder}/${nameOf(path)}`, readOnly));
    try {
      const stats = fstatSync(file);
      if (!isPlain(stats)) throw new Refusal('invalid', 'is not a plain file of the workspace');
      if (stats.size > channelBounds.fileBytes) throw new Refusal('too-large', `has ${stats.size} bytes`);
      return openFile(file, stats.size, this.#declared(path, stats));
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }

  /** A file's size, mode and hash. Throws as `open` does. */
  entry(path: RelPath): FileEntry {
    const file = this.open(path);
    try {
      return { path, mode: file.mode, size: file.size, sha256: hashOf(file) };
    } finally {
      file.close();
    }
  }

  /** All regular files outside scratch, by path; everything else there is odd. Bounded. */
  report(): WorkspaceReport {
    const files: FileEntry[] = [];
    const odd: string[] = [];
    for (const found of this.walk()) {
      if (found.kind === 'cut') return { files, odd, whole: false };
      if (found.kind === 'odd') odd.push(found.path);
      else files.push(this.entry(found.path));
    }
    return { files, odd, whole: true };
  }

  /** What lies in the workspace outside scratch, in the order of its folders. Bounded; what can't be looked at is odd. */
  *walk(): Generator<WalkEntry> {
    const folders = [''];
    let entries = 0;
    let files = 0;
    let odd = 0;
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      let directory: Dir;
      try {
        directory = opendirSync(join(this.#root, folder));
      } catch {
        odd += 1;
        yield { kind: 'odd', path: folder.slice(0, maxOddPath) };
        continue;
      }
      try {
        for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
          entries += 1;
          if (entries > maxEntries || odd >= maxOdd || files >= maxFiles) {
            yield { kind: 'cut' };
            return;
          }
          const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
          if (this.#scratch.includes(path)) continue;
          const kind = this.#kindOf(path);
          if (kind === 'folder' || kind === 'odd-folder') folders.push(path);
          if (kind === 'file') {
            files += 1;
            yield { kind: 'file', path: path as RelPath };
          } else if (kind === 'odd' || kind === 'odd-folder') {
            odd += 1;
            yield { kind: 'odd', path: path.slice(0, maxOddPath) };
          }
        }
      } finally {
        directory.closeSync();
      }
    }
  }

  #kindOf(path: string): 'file' | 'folder' | 'package-link' | 'odd' | 'odd-folder' {
    let stats: Stats;
    try {
      stats = lstatSync(join(this.#root, path));
    } catch {
      return 'odd';
    }
    if (stats.isDirectory()) return stats.uid === 0 ? 'folder' : 'odd-folder';
    if (stats.isSymbolicLink() && stats.uid === 0 && this.#isPackageLink(path)) return 'package-link';
    const plain = parseRelPath(path).ok && isPlain(stats) && stats.size <= channelBounds.fileBytes;
    return plain ? 'file' : 'odd';
  }

  /** Only root can have made it: the worker owns no folder outside scratch. All the same it must lead where ours do. */
  #isPackageLink(path: string): boolean {
    return (
      /(?:^|\/)node_modules\/[^/]+$/.test(path) &&
      readlinkSync(join(this.#root, path)) === `${dependencyPaths.root}/${path}`
    );
  }

  /**
   * Hands out a name for the folder that holds a path. Each folder is opened in the one before, none that is a link, and
   * each belongs to root: whatever is swapped meanwhile, by whomever, the name leads to a folder of the workspace.
   */
  #within<T>(path: RelPath, use: (folder: string) => T): T {
    let opened: number | undefined;
    try {
      this.#rootFolder ??= openSync(this.#root, folderOnly);
      for (const segment of parentsOf(path)) {
        const next = openSync(`/proc/self/fd/${opened ?? this.#rootFolder}/${segment}`, folderOnly);
        if (opened !== undefined) closeSync(opened);
        opened = next;
        checkFolder(fstatSync(opened), segment);
      }
      return use(`/proc/self/fd/${opened ?? this.#rootFolder}`);
    } catch (error) {
      throw refusalOf(error);
    } finally {
      if (opened !== undefined) closeSync(opened);
    }
  }

  #modeOf(path: RelPath): number {
    return this.#declared(path, lstatSync(join(this.#root, path)));
  }

  #declared(path: RelPath, stats: Stats): number {
    const actual = stats.mode & 0o777;
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

/** At the end one more byte is asked for, to see growth: a file that changes while it is read is refused. */
function openFile(file: number, size: number, mode: number): OpenFile {
  let left = size;
  let open = true;
  return {
    size,
    mode,
    read(into) {
      const wanted = Math.min(into.length - 1, left);
      const asked = wanted === left ? wanted + 1 : wanted;
      let length = 0;
      while (length < asked) {
        const got = readSync(file, into, length, asked - length, null);
        if (got === 0) break;
        length += got;
        // A regular file gives less than was asked for at its end only.
        if (length === wanted) break;
      }
      if (length !== wanted) throw new Refusal('conflict', 'changed while it was read');
      left -= wanted;
      return into.subarray(0, wanted);
    },
    close() {
      if (open) closeSync(file);
      open = false;
    },
  };
}

function hashOf(file: OpenFile): Sha256 {
  if (file.size < hashed.length) return sha256(file.read(hashed));
  const hash = createHash('sha256');
  for (let left = file.size; left > 0;) {
    const bytes = file.read(hashed);
    hash.update(bytes);
    left -= bytes.length;
  }
  return hash.digest('hex') as Sha256;
}

function writeAll(file: number, bytes: Uint8Array): void {
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
