import path from 'node:path';
import * as z from 'zod';

/** A package of a lock file. `folder` is its place, e.g. `node_modules/a/node_modules/@b/c`. */
export interface NpmPackage {
  readonly folder: string;
  readonly name: string;
  readonly version: string;
  readonly integrity: string;
  /** Address that the lock names; null: the registry of the person's own configuration. */
  readonly resolved: string | null;
  /** May be left out where it is for another platform. */
  readonly optional: boolean;
}

export interface NpmLock {
  readonly packages: readonly NpmPackage[];
  /** Folders of the workspace's own packages, relative to the lock; without the one of the lock itself. */
  readonly members: readonly string[];
  /** Folders that have a `node_modules`, relative to the lock; `` is the lock's own. */
  readonly moduleFolders: readonly string[];
}

const Specs = z.record(z.string(), z.string().max(4096)).optional();
const Entry = z.object({
  version: z.string().max(256).optional(),
  name: z.string().max(256).optional(),
  resolved: z.string().max(4096).optional(),
  integrity: z.string().max(4096).optional(),
  link: z.boolean().optional(),
  inBundle: z.boolean().optional(),
  optional: z.boolean().optional(),
  devOptional: z.boolean().optional(),
  bundleDependencies: z.array(z.string()).optional().catch(undefined),
  dependencies: Specs,
  devDependencies: Specs,
  optionalDependencies: Specs,
  peerDependencies: Specs,
});
type Entry = z.infer<typeof Entry>;
const LockFile = z.object({
  lockfileVersion: z.number(),
  packages: z.record(z.string().max(1024), Entry),
});

/** Some ten thousand packages: more than any project that fits a sandbox. */
const maxPackages = 20_000;

/** npm takes more for a version, an address or a file among it. */
const plainVersion = /^\d{1,16}\.\d{1,16}\.\d{1,16}(?:[-+][\w.+-]*)?$/;
/** A range or a tag, of this name or of another one: what is asked of a registry. Not a folder, not an archive. */
const registrySpec = /^(?:npm:(?:@[\w.~-]+\/)?[\w.~-]+(?:@[^/:]*)?|(?!\.)[^/:]*(?<!\.(?:tgz|tar\.gz|tar)))$/i;
const packageName = /^(?:@[^/]+\/)?[^/]+$/;

type Read = { readonly ok: true; readonly lock: NpmLock } | { readonly ok: false; readonly reason: string };

/**
 * Reads a package-lock.json. Refused is whatever npm would fetch by another way than a package archive with a known
 * hash: git, files, links out of the workspace, plain HTTP, old lock files. Pure; the text is hostile.
 */
export function readNpmLock(text: string): Read {
  const refuse = (reason: string): Read => ({ ok: false, reason });
  const value = shallowJson(text);
  if (value === undefined) return refuse('it is not JSON, or nested too deeply');
  const parsed = LockFile.safeParse(value);
  if (!parsed.success) return refuse('it is not a lock file of npm 7 or newer (run npm install to renew it)');
  const { lockfileVersion, packages: entries } = parsed.data;
  if (lockfileVersion !== 2 && lockfileVersion !== 3) {
    return refuse(`lock file version ${lockfileVersion} is not supported (run npm install to renew it)`);
  }
  if (Object.keys(entries).length > maxPackages) return refuse(`it has more than ${maxPackages} packages`);
  const packages: NpmPackage[] = [];
  const links: { readonly folder: string; readonly target: string }[] = [];
  const members: string[] = [];
  const moduleFolders = new Set<string>();
  const bundled = bundledFolders(entries);
  for (const [folder, entry] of Object.entries(entries)) {
    // npm asks for what a lock file leaves out, wherever the word leads.
    const foreign = Object.entries(specsOf(entry)).find(([, spec]) => !isPlainSpec(spec, folder));
    if (foreign !== undefined)
      return refuse(`"${shortened(folder)}" wants ${shortened(foreign.join(' from '))}, which is no registry`);
    if (folder === '') continue;
    if (!isSafeFolder(folder)) return refuse(`"${shortened(folder)}" is no folder that a package may have`);
    const at = folder.indexOf('node_modules/');
    if (at < 0) {
      members.push(folder);
      continue;
    }
    moduleFolders.add(folder.slice(0, Math.max(0, at - 1)));
    if (entry.link === true) {
      links.push({ folder, target: entry.resolved ?? '' });
      continue;
    }
    const name = entry.name ?? folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const { version, integrity, resolved } = entry;
    // It comes with the archive of the package around it. That it says so itself is not enough: npm looks, and fetches it
    // as any other where it is not so.
    if (resolved === undefined && integrity === undefined && bundled.has(folder)) continue;
    if (version === undefined || !plainVersion.test(version)) return refuse(`${shortened(name)} has no version`);
    if (resolved !== undefined && !resolved.startsWith('https://')) {
      return refuse(`${shortened(name)} does not come from a registry over HTTPS (${shortened(resolved)})`);
    }
    if (integrity === undefined || !/(?:^|\s)sha(?:256|384|512)-[A-Za-z0-9+/=]+/.test(integrity)) {
      return refuse(`${shortened(name)} has no SHA-256, SHA-384 or SHA-512 to check it by`);
    }
    packages.push({
      folder,
      name,
      version,
      integrity,
      resolved: resolved ?? null,
      optional: entry.optional === true || entry.devOptional === true,
    });
  }
  const known = new Set(members);
  const stray = links.find(({ target }) => !known.has(target));
  if (stray !== undefined) return refuse(`${shortened(stray.folder)} leads to a folder outside the workspace`);
  return {
    ok: true,
    lock: { packages, members: members.toSorted(), moduleFolders: [...moduleFolders].toSorted() },
  };
}

type Entries = Readonly<Record<string, Entry>>;

function specsOf(entry: Entry): Readonly<Record<string, string>> {
  const { dependencies, devDependencies, optionalDependencies, peerDependencies } = entry;
  return { ...peerDependencies, ...optionalDependencies, ...devDependencies, ...dependencies };
}

/** Whether npm would ask a registry for it, or look into the workspace; `folder` is that of the package that wants it. */
function isPlainSpec(spec: string, folder: string): boolean {
  if (registrySpec.test(spec)) return true;
  // No percent sign: an address may write two dots with it.
  if (!/^(?:file:|\.{1,2}\/)[^/~:%][^:%]*$/.test(spec)) return false;
  const inside = path.posix.normalize(path.posix.join(folder, spec.replace(/^file:/, '')));
  return inside !== '..' && !inside.startsWith('../');
}

const ownerOf = (folder: string): string => folder.slice(0, Math.max(0, folder.lastIndexOf('/node_modules/')));

/**
 * Folders of packages that come with the archive of another one, as npm tells them: named by that one as bundled, inside
 * of such a one, or wanted by such a one and lying beside it.
 */
function bundledFolders(entries: Entries): ReadonlySet<string> {
  const inside = Map.groupBy(Object.keys(entries), ownerOf);
  const found = new Set<string>();
  for (const [owner, { bundleDependencies }] of Object.entries(entries)) {
    if (!owner.includes('node_modules/') || bundleDependencies === undefined) continue;
    const named = (names: readonly string[]): readonly string[] => names.filter((name) => packageName.test(name));
    const queue = named(bundleDependencies).map((name) => `${owner}/node_modules/${name}`);
    for (let folder = queue.pop(); folder !== undefined; folder = queue.pop()) {
      const entry = Object.hasOwn(entries, folder) ? entries[folder] : undefined;
      if (entry === undefined || found.has(folder)) continue;
      found.add(folder);
      queue.push(...(inside.get(folder) ?? []));
      for (const name of named(Object.keys(specsOf(entry)))) {
        let at = folder;
        while (at.length > owner.length && !Object.hasOwn(entries, `${at}/node_modules/${name}`)) at = ownerOf(at);
        queue.push(`${at}/node_modules/${name}`);
      }
    }
  }
  return found;
}

function isSafeFolder(folder: string): boolean {
  return (
    !folder.startsWith('/') &&
    folder.split('/').every((part) => part !== '' && part !== '.' && part !== '..' && /^[^\\:\p{Cc}]+$/u.test(part))
  );
}

/** What npm needs of an entry. It reads more, some of it under two names: all else is left out. */
const lockFields = [
  'name',
  'version',
  'resolved',
  'integrity',
  'link',
  'inBundle',
  'dev',
  'optional',
  'devOptional',
  'peer',
  'workspaces',
  'dependencies',
  'devDependencies',
  'optionalDependencies',
  'peerDependencies',
  'peerDependenciesMeta',
  'bundleDependencies',
  'bin',
  'engines',
  'os',
  'cpu',
  'libc',
] as const;

/** The part of a package-lock.json that `readNpmLock` has looked at, for npm. Throws where that refuses it. */
export function bareNpmLock(text: string): string {
  const read = readNpmLock(text);
  if (!read.ok) throw new Error(read.reason);
  const { lockfileVersion, packages } = JSON.parse(text) as {
    readonly lockfileVersion: number;
    readonly packages: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  };
  const bare = Object.entries(packages).map(([folder, entry]): [string, object] => [folder, picked(entry, lockFields)]);
  return `${JSON.stringify({ lockfileVersion, requires: true, packages: Object.fromEntries(bare) }, null, 2)}\n`;
}

function picked(from: Readonly<Record<string, unknown>>, fields: readonly string[]): object {
  const present = fields.filter((field) => Object.hasOwn(from, field));
  return Object.fromEntries(present.map((field): [string, unknown] => [field, from[field]]));
}

const manifestFields = [
  'name',
  'version',
  'private',
  'type',
  'workspaces',
  'dependencies',
  'devDependencies',
  'optionalDependencies',
  'peerDependencies',
  'peerDependenciesMeta',
  'bundleDependencies',
  'bundledDependencies',
  'overrides',
  'bin',
  'engines',
  'os',
  'cpu',
  'libc',
] as const;

/**
 * The part of a package.json that says which packages are wanted: no scripts, no configuration. Null when it is not an
 * object in JSON.
 */
export function barePackageManifest(text: string): string | null {
  const value = shallowJson(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  const kept = picked(value as Readonly<Record<string, unknown>>, manifestFields);
  return `${JSON.stringify(kept, null, 2)}\n`;
}

/**
 * Why a package.json can't be used, or null: it is none, or wants packages that npm would fetch otherwise than from a
 * registry (git, an address, a file outside), which it would do before it compares with the lock. `file` is its path
 * beside the lock.
 */
export function manifestFault(text: string, file: string): string | null {
  const bare = barePackageManifest(text);
  if (bare === null) return 'is no package.json';
  const found = JSON.parse(bare) as Readonly<Record<string, unknown>>;
  const folder = path.posix.dirname(file);
  const fields = ['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies', 'overrides'];
  // Overrides nest; without recursion, as the text is hostile.
  const queue: unknown[] = fields.map((field) => found[field]);
  for (let value = queue.pop(); value !== undefined || queue.length > 0; value = queue.pop()) {
    if (typeof value === 'string' && !isPlainSpec(value, folder === '.' ? '' : folder))
      return `wants a package from ${shortened(value)}, which is no registry`;
    if (typeof value === 'object' && value !== null)
      for (const inner of Object.values(value as Readonly<Record<string, unknown>>)) queue.push(inner);
  }
  return null;
}

/** What a text in JSON says, if it can be written again: that is done by a function that calls itself. */
function shallowJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    JSON.stringify(value);
    return value;
  } catch {
    return undefined;
  }
}

function shortened(text: string): string {
  const plain = text.replace(/[^\x20-\x7e]/g, '?');
  return plain.length > 120 ? `${plain.slice(0, 117)}…` : plain;
}
