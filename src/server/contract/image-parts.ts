import { parse, type JSONPath } from 'jsonc-parser';
import type { FrozenDependencies } from '../../protocol/contract.ts';
import { sha256 } from '../../protocol/hash.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import type { FileEntry, RelPath } from '../../protocol/primitives.ts';
import { manifestFault, readNpmLock } from '../dependencies/npm-lock.ts';
import { readPythonLock } from '../dependencies/python-lock.ts';
import { entryFaultText } from './file-refusal.ts';
import { tooDeep } from './parse-contract.ts';
import { readTreeFiles } from './read-tree-file.ts';
import { imageReference, type ResolvedPackages } from './resolve-packages.ts';
import { shownPath } from './shown-path.ts';

/** A lock file of ten thousand packages has a few MiB. */
const maxFileBytes = 16 * 1024 * 1024;
/** Workspaces with more packages of their own do not fit a sandbox. */
const maxMembers = 60;

export interface ImageParts {
  readonly dependencies: FrozenDependencies | null;
  /** What a devcontainer.json names as its image. */
  readonly base: string | null;
  readonly bytes: ReadonlyMap<RelPath, Uint8Array>;
}

type Fault = (member: JSONPath, code: string, message: string) => void;

/**
 * Reads what the image is made from: lock files and manifests whole, and of a devcontainer.json only `image`. What can't
 * be used is told to `fault`; nothing is run and nothing else is read.
 */
export async function readImageParts(root: string, packages: ResolvedPackages, fault: Fault): Promise<ImageParts> {
  const bytes = new Map<RelPath, Uint8Array>();
  const read = async (paths: readonly RelPath[], member: JSONPath): Promise<readonly FileEntry[]> => {
    const found = await readTreeFiles(root, paths, () => maxFileBytes);
    const entries: FileEntry[] = [];
    for (const path of paths) {
      const file = found.get(path);
      if (file?.ok !== true) {
        const why = file === undefined ? 'missing' : file.fault;
        fault(member, why, `${shownPath(path)} can't be used: ${entryFaultText(why)}.`);
        continue;
      }
      bytes.set(path, file.bytes);
      entries.push({ path, mode: 0o644, size: file.bytes.byteLength, sha256: sha256(file.bytes) });
    }
    return entries;
  };
  const textOf = (path: RelPath): string => Buffer.from(bytes.get(path) ?? new Uint8Array()).toString('utf8');

  let base: string | null = null;
  if (packages.devcontainer !== null) {
    const [entry] = await read([packages.devcontainer], ['base']);
    base = entry === undefined ? null : imageOf(textOf(packages.devcontainer));
    if (entry !== undefined && base === null) {
      fault(
        ['base'],
        'no-image',
        `${shownPath(packages.devcontainer)} names no image. Only "image" is read, nothing is built.`,
      );
    }
    // Of this file only the name of the image counts.
    bytes.delete(packages.devcontainer);
  }
  const dependencies: { npm?: FrozenDependencies['npm']; python?: FrozenDependencies['python'] } = {};
  if (packages.npm !== null) {
    const npm = await npmParts(packages.npm, read, textOf, fault);
    if (npm !== null) dependencies.npm = npm;
  }
  if (packages.python !== null) {
    const member: JSONPath = ['dependencies', 'python'];
    const [lock] = await read([packages.python.lock], member);
    if (lock !== undefined) {
      const found = readPythonLock(textOf(lock.path));
      if (!found.ok) fault(member, 'bad-lock', `${shownPath(lock.path)}, ${found.reason}.`);
      dependencies.python = { lock, sources: [...packages.python.sources] };
    }
  }
  return { dependencies: Object.keys(dependencies).length === 0 ? null : dependencies, base, bytes };
}

async function npmParts(
  { lock: lockPath, manifest }: NonNullable<ResolvedPackages['npm']>,
  read: (paths: readonly RelPath[], member: JSONPath) => Promise<readonly FileEntry[]>,
  textOf: (path: RelPath) => string,
  fault: Fault,
): Promise<NonNullable<FrozenDependencies['npm']> | null> {
  const member: JSONPath = ['dependencies', 'npm'];
  const [lock, own] = await read([lockPath, manifest], member);
  if (lock === undefined || own === undefined) return null;
  const found = readNpmLock(textOf(lock.path));
  if (!found.ok) {
    fault(member, 'bad-lock', `${shownPath(lock.path)} can't be used: ${found.reason}.`);
    return null;
  }
  if (found.lock.members.length > maxMembers) {
    fault(member, 'bad-lock', `${shownPath(lock.path)} has more than ${maxMembers} packages of its own.`);
    return null;
  }
  const folder = lockPath.slice(0, lockPath.lastIndexOf('/') + 1);
  const members = found.lock.members.map((one) => parseRelPath(`${folder}${one}/package.json`));
  if (!members.every((one) => one.ok)) {
    fault(member, 'unsafe-path', `${shownPath(lock.path)} names a folder that can't be used.`);
    return null;
  }
  const manifests = [
    own,
    ...(await read(
      members.flatMap((one) => (one.ok ? [one.path] : [])),
      member,
    )),
  ];
  for (const { path } of manifests) {
    const why = manifestFault(textOf(path), path.slice(folder.length));
    if (why !== null) fault(member, 'bad-manifest', `${shownPath(path)} ${why}.`);
  }
  return { lock, manifests };
}

/** `image` of a devcontainer.json; null where there is none that could be one. Everything else in it is ignored. */
export function imageOf(text: string): string | null {
  // The parser calls itself for each level.
  if (tooDeep(text) !== undefined) return null;
  const value: unknown = parse(text, [], { allowTrailingComma: true });
  if (typeof value !== 'object' || value === null || !('image' in value)) return null;
  const { image } = value;
  return typeof image === 'string' && image.length <= 256 && imageReference.test(image) ? image : null;
}
