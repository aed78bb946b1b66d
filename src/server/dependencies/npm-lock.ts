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

const Entry = z.object({
  version: z.string().max(256).optional(),
  name: z.string().max(256).optional(),
  resolved: z.string().max(4096).optional(),
  integrity: z.string().max(4096).optional(),
  link: z.boolean().optional(),
  inBundle: z.boolean().optional(),
  optional: z.boolean().optional(),
  devOptional: z.boolean().optional(),
});
const LockFile = z.object({
  lockfileVersion: z.number(),
  packages: z.record(z.string().max(1024), Entry),
});

/** Some ten thousand packages: more than any project that fits a sandbox. */
const maxPackages = 20_000;

type Read = { readonly ok: true; readonly lock: NpmLock } | { readonly ok: false; readonly reason: string };

/**
 * Reads a package-lock.json. Refused is whatever npm would fetch by another way than a package archive with a known
 * hash: git, files, links out of the workspace, plain HTTP, old lock files. Pure; the text is hostile.
 */
export function readNpmLock(text: string): Read {
  const refuse = (reason: string): Read => ({ ok: false, reason });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return refuse('it is not JSON');
  }
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
  for (const [folder, entry] of Object.entries(entries)) {
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
    if (entry.inBundle === true) continue;
    const { version, integrity, resolved } = entry;
    if (version === undefined) return refuse(`${shortened(name)} has no version`);
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

function isSafeFolder(folder: string): boolean {
  return (
    !folder.startsWith('/') &&
    folder.split('/').every((part) => part !== '' && part !== '.' && part !== '..' && /^[^\\:\p{Cc}]+$/u.test(part))
  );
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
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  const found = value as Readonly<Record<string, unknown>>;
  const kept = Object.fromEntries(manifestFields.flatMap((field) => (field in found ? [[field, found[field]]] : [])));
  return `${JSON.stringify(kept, null, 2)}\n`;
}

function shortened(text: string): string {
  const plain = text.replace(/[^\x20-\x7e]/g, '?');
  return plain.length > 120 ? `${plain.slice(0, 117)}…` : plain;
}
