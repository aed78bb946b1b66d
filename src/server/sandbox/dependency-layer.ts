import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import path from 'node:path';
import type { Pack } from 'tar-stream';
import type { FrozenDependencies } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { dependencyPaths, insidePaths } from '../../protocol/executor.ts';
import { canonicalJson, digestOf, sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { addBytes, addEmpty, addStream, rootOwned, type Header } from './tar-writing.ts';

/** 2000-01-01: the same tree makes the same layer, whenever it is made; some tools dislike the year 1970. */
const fixedTime = new Date(946_684_800_000);
/** Twice what a large front end with its tools has. */
const maxEntries = 400_000;
/** Files up to this size are read at once. */
const wholeBytes = 1024 * 1024;

/** What makes two sets of packages the same, apart from the base that they are for. */
export function dependenciesDigest(dependencies: FrozenDependencies): Sha256 {
  const { npm, python } = dependencies;
  const of = ({ path: at, sha256: hash }: { readonly path: string; readonly sha256: Sha256 }) => ({ at, hash });
  return digestOf({
    npm: npm === undefined ? null : { lock: of(npm.lock), manifests: npm.manifests.map(of) },
    // Where Python's lock lies does not matter, and where its modules lie is no matter of the image.
    python: python === undefined ? null : { lock: python.lock.sha256 },
  });
}

export interface PackedTree {
  readonly files: number;
  readonly bytes: number;
  /** Digest over path, mode and hash (or target) of every entry, in the order of their paths. */
  readonly tree: Sha256;
}

export interface InstalledPackages {
  /** Laid out as the repository is, below it everything that npm made; null without npm. */
  readonly npm: { readonly tree: string; readonly lockFolder: string; readonly members: readonly string[] } | null;
  /** Holds `venv`; null without Python. */
  readonly python: { readonly tree: string } | null;
}

/**
 * Writes installed packages as a layer: below /deps, all of root, only folders, plain files and links that stay inside.
 * Throws EscrowError PreparationFailed for anything else.
 */
export async function packPackages(layer: Pack, installed: InstalledPackages, maxBytes: number): Promise<PackedTree> {
  const writer = new TreeWriter(layer, installed, maxBytes);
  const top = dependencyPaths.root.slice(1);
  await addEmpty(layer, folderHeader(top));
  if (installed.npm !== null) {
    await writer.walk(installed.npm.tree, top, (name) => !isContext(name));
    const own = path.posix.join(dependencyPaths.root, installed.npm.lockFolder, 'node_modules');
    await addEmpty(layer, {
      name: dependencyPaths.modules.slice(1),
      type: 'symlink',
      linkname: own,
      mode: 0o777,
      ...rootOwned,
    });
  }
  if (installed.python !== null) await writer.walk(installed.python.tree, top, () => true);
  return writer.facts();
}

/** Manifests and lock files were the context, they are no packages: outside node_modules nothing of them is kept. */
function isContext(relative: string): boolean {
  return /^(?:[^/]+\/)*package(?:-lock)?\.json$/.test(relative) && !relative.includes('node_modules/');
}

function folderHeader(name: string) {
  return { name, type: 'directory', mode: 0o755, mtime: fixedTime, ...rootOwned } as const;
}

class TreeWriter {
  readonly #layer: Pack;
  readonly #installed: InstalledPackages;
  readonly #hash: Hash = createHash('sha256');
  #files = 0;
  #bytes = 0;
  #entries = 0;
  readonly #maxBytes: number;

  constructor(layer: Pack, installed: InstalledPackages, maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#layer = layer;
    this.#installed = installed;
  }

  facts(): PackedTree {
    return { files: this.#files, bytes: this.#bytes, tree: this.#hash.digest('hex') as Sha256 };
  }

  async walk(root: string, top: string, wanted: (relative: string) => boolean, folder = ''): Promise<void> {
    const names = (await readdir(path.join(root, folder))).toSorted();
    for (const name of names) {
      const relative = folder === '' ? name : `${folder}/${name}`;
      if (!wanted(relative)) continue;
      this.#entries += 1;
      if (this.#entries > maxEntries) throw failed(`more than ${maxEntries} files`);
      const source = path.join(root, relative);
      const stats = await lstat(source);
      const target = `${top}/${relative}`;
      if (stats.isDirectory()) {
        await addEmpty(this.#layer, folderHeader(target));
        this.#note(target, 0o755, 'folder');
        await this.walk(root, top, wanted, relative);
      } else if (stats.isSymbolicLink()) {
        const linkname = this.#linkTarget(root, relative, await readlink(source));
        await addEmpty(this.#layer, {
          name: target,
          type: 'symlink',
          linkname,
          mode: 0o777,
          mtime: fixedTime,
          ...rootOwned,
        });
        this.#note(target, 0o777, linkname);
      } else if (stats.isFile()) {
        const mode = (stats.mode & 0o111) === 0 ? 0o644 : 0o755;
        const header = { name: target, mode, mtime: fixedTime, size: stats.size, ...rootOwned };
        const hash =
          stats.size <= wholeBytes ? await this.#whole(header, source) : await this.#streamed(header, source);
        this.#files += 1;
        this.#bytes += stats.size;
        if (this.#bytes > this.#maxBytes) throw failed(`more than ${Math.round(this.#maxBytes / 1e6)} MB`);
        this.#note(target, mode, hash);
      } else throw failed(`${relative} is neither a file nor a folder`);
    }
  }

  /** Thousands of small files: a stream for each would cost more than reading it. */
  async #whole(header: Header & { readonly size: number }, source: string): Promise<string> {
    const bytes = await readFile(source);
    if (bytes.length !== header.size) throw failed(`${header.name} changed while it was read`);
    await addBytes(this.#layer, header, bytes);
    return sha256(bytes);
  }

  async #streamed(header: Header, source: string): Promise<string> {
    const content = createHash('sha256');
    const hashing = async function* () {
      for await (const chunk of createReadStream(source)) {
        content.update(chunk as Buffer);
        yield chunk as Buffer;
      }
    };
    await addStream(this.#layer, header, hashing());
    return content.digest('hex');
  }

  /** Links stay below the packages; those to the workspace's own packages lead into the workspace. */
  #linkTarget(root: string, relative: string, found: string): string {
    const { npm, python } = this.#installed;
    // The image's own Python, put there by us.
    if (python !== null && root === python.tree && relative === 'venv/bin/python3') return found;
    const resolved = path.isAbsolute(found)
      ? path.relative(root, found).split(path.sep).join('/')
      : path.posix.join(path.posix.dirname(relative), found.split(path.sep).join('/'));
    if (resolved === '..' || resolved.startsWith('../') || path.posix.isAbsolute(resolved)) {
      throw failed(`${relative} leads out of its folder`);
    }
    const ofMember = npm?.members.some((one) => {
      const folder = path.posix.join(npm.lockFolder, one);
      return resolved === folder || (resolved.startsWith(`${folder}/`) && !resolved.includes('node_modules/'));
    });
    if (ofMember === true) return `${insidePaths.workspace}/${resolved}`;
    return path.posix.relative(path.posix.dirname(relative), resolved);
  }

  #note(name: string, mode: number, what: string): void {
    this.#hash.update(`${canonicalJson([name, mode, what])}\n`);
  }
}

function failed(what: string): EscrowError {
  return new EscrowError(
    'PreparationFailed',
    `The installed packages can't be used: ${what}.`,
    'Leave the package out of the lock file, or use a base image that has it.',
  );
}
