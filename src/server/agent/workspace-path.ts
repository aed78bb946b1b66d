import type { FrozenContract } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';

/** Where the model believes to be. */
export const workspaceRoot = '/workspace';

/** What a path that a model named is, as far as the contract lets it be known. */
export type NamedPath =
  | { readonly kind: 'file'; readonly path: RelPath; readonly writable: boolean }
  | { readonly kind: 'folder'; readonly path: string }
  /** Not declared. `suggestion` is a declared path that was perhaps meant; it is never used in its place. */
  | { readonly kind: 'undeclared'; readonly suggestion: string | null };

/** The path as the model sees it. */
export function shownPath(path: string): string {
  return path === '' ? workspaceRoot : `${workspaceRoot}/${path}`;
}

/** Asked for with each call; a frozen contract does not change. */
const visibleOf = new WeakMap<FrozenContract, readonly RelPath[]>();

/** Paths that the model may read: declared readable ones, and what it may write. In order, without repetition. */
export function visiblePaths(contract: FrozenContract): readonly RelPath[] {
  const known = visibleOf.get(contract);
  if (known !== undefined) return known;
  const paths = new Set([...contract.readable, ...contract.writable.map((w) => w.path)]);
  const visible = [...paths].toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  visibleOf.set(contract, visible);
  return visible;
}

/**
 * Maps `/workspace/src/a.py` or `src/a.py` to a declared path, by equality: nothing is resolved or guessed, so `..`
 * and links have no meaning here. (`./` at the start and doubled or trailing slashes are noise and dropped.)
 */
export function namePath(raw: string, contract: FrozenContract): NamedPath {
  const trimmed = raw.trim();
  const absolute = trimmed.startsWith('/');
  const clean = trimmed.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '');
  let relative: string | null;
  if (trimmed === '/') relative = null;
  else if (!absolute) relative = clean.replace(/^(\.\/)+/, '').replace(/^\.$/, '');
  else if (clean === workspaceRoot) relative = '';
  else
    relative = clean.startsWith(`${workspaceRoot}/`)
      ? clean.slice(workspaceRoot.length + 1).replace(/^(\.\/)+/, '')
      : null;

  const visible = visiblePaths(contract);
  if (relative !== null) {
    const path = visible.find((p) => p === relative);
    if (path !== undefined) return { kind: 'file', path, writable: contract.writable.some((w) => w.path === path) };
    if (relative === '' || visible.some((p) => p.startsWith(`${relative}/`))) return { kind: 'folder', path: relative };
  }
  return { kind: 'undeclared', suggestion: suggest(clean, visible) };
}

function suggest(raw: string, visible: readonly RelPath[]): string | null {
  const wanted = raw.split('/').filter((s) => s !== '' && s !== '.' && s !== '..');
  const name = wanted.at(-1);
  if (name === undefined) return null;
  const same = visible.filter((p) => p === name || p.endsWith(`/${name}`));
  if (same.length === 0) return null;
  const score = (p: string): number => {
    const parts = p.split('/').toReversed();
    let n = 0;
    for (const [i, part] of wanted.toReversed().entries()) {
      if (parts[i] !== part) break;
      n += 1;
    }
    return n;
  };
  const best = same.toSorted((a, b) => score(b) - score(a))[0];
  return best === undefined ? null : shownPath(best);
}

/** The paths that lie in a folder, at any depth; '' is the workspace. */
export function pathsIn<P extends string>(folder: string, paths: readonly P[]): readonly P[] {
  return folder === '' ? paths : paths.filter((path) => path.startsWith(`${folder}/`));
}

/** A listing two levels deep of what the model may see; hidden entries are counted only, folders end in `/`. */
export function listFolder(folder: string, files: readonly string[]): string {
  const prefix = folder === '' ? '' : `${folder}/`;
  const seen = new Set<string>();
  let hidden = 0;
  for (const file of pathsIn(folder, files)) {
    const parts = file.slice(prefix.length).split('/');
    if (parts.slice(0, 2).some((part) => part.startsWith('.'))) {
      hidden += 1;
      continue;
    }
    for (let depth = 1; depth <= Math.min(2, parts.length); depth += 1) {
      const entry = parts.slice(0, depth).join('/');
      seen.add(depth < parts.length ? `${entry}/` : entry);
    }
  }
  const lines = [...seen].toSorted((a, b) => (a < b ? -1 : 1)).map((entry) => shownPath(prefix + entry));
  const limit = 200;
  const shown = lines.slice(0, limit);
  if (lines.length > limit) shown.push(`… and ${lines.length - limit} more entries`);
  if (hidden > 0) shown.push(`(${hidden} hidden, not listed)`);
  return [`Files under ${shownPath(folder)} that this task names, two levels deep:`, ...shown].join('\n');
}
