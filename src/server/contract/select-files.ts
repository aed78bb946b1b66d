import picomatch from 'picomatch';
import type { ContractSource } from '../../protocol/contract.ts';
import type { JSONPath } from 'jsonc-parser';
import type { TrackedFile } from './git-files.ts';

/** How a file came into the contract: what is named exactly must be usable, what a glob found may be left out. */
export interface Selected {
  readonly origin: 'named' | 'glob' | 'default';
  /** Where in the contract; `[]` for the default. */
  readonly at: JSONPath;
}

/** A pattern that names or matches no tracked file, or a name that has to be looked up in the tree. */
export interface Selection {
  readonly snapshot: ReadonlyMap<string, Selected>;
  readonly supplemental: ReadonlyMap<string, Selected>;
  /** Globs without a match. */
  readonly empty: readonly { readonly pattern: string; readonly at: JSONPath }[];
  /** Supplemental files that the snapshot names exactly as well. */
  readonly exposed: readonly { readonly path: string; readonly at: JSONPath }[];
}

/** Dot files count; `!` is no negation (that is what `exclude` is for); `**` spans folders, `*` does not. */
const globOptions = { dot: true, nonegate: true } as const;

export type Matcher = (path: string) => boolean;

/** Whether a text names one path: also with glob characters, as `[id].tsx`, when git tracks a file of that very name. */
export function isName(pattern: string, tracked: ReadonlySet<string>): boolean {
  return tracked.has(pattern) || !picomatch.scan(pattern, globOptions).isGlob;
}

/** A matcher for one pattern; a name matches itself alone. */
export function matcher(pattern: string, tracked: ReadonlySet<string>): Matcher {
  if (isName(pattern, tracked)) return (path) => path === pattern;
  const matches = picomatch(pattern, globOptions);
  // One argument only: a second one (an index, from `filter`) would make the library answer with an object.
  return (path) => matches(path);
}

/** `*.contract.jsonc` names hidden checks, so it is in no default snapshot. */
export function isContractFile(path: string): boolean {
  return path.endsWith('.contract.jsonc');
}

/** Expands the patterns of a contract over the tracked files. Pure: whether a named file exists is looked up later. */
export function selectFiles(source: ContractSource, trackedFiles: readonly TrackedFile[]): Selection {
  const paths = trackedFiles.map((file) => file.path);
  const tracked = new Set(paths);
  const snapshot = new Map<string, Selected>();
  const supplemental = new Map<string, Selected>();
  const empty: { pattern: string; at: JSONPath }[] = [];
  const exposed: { path: string; at: JSONPath }[] = [];

  const expand = (pattern: string, at: JSONPath, into: Map<string, Selected>): void => {
    if (isName(pattern, tracked)) {
      into.set(pattern, { origin: 'named', at });
      return;
    }
    const matches = matcher(pattern, tracked);
    const found = paths.filter(matches);
    if (found.length === 0) empty.push({ pattern, at });
    for (const path of found) if (!into.has(path)) into.set(path, { origin: 'glob', at });
  };

  source.supplemental.forEach((check, n) => {
    if (typeof check.path === 'string') expand(check.path, ['supplemental', n, 'path'], supplemental);
    else check.path.forEach((pattern, k) => expand(pattern, ['supplemental', n, 'path', k], supplemental));
  });

  if (source.snapshot === undefined) {
    for (const path of paths) if (!isContractFile(path)) snapshot.set(path, { origin: 'default', at: [] });
    // Plus those named, tracked or not.
    source.readable?.forEach((pattern, n) => {
      if (isName(pattern, tracked)) snapshot.set(pattern, { origin: 'named', at: ['readable', n] });
    });
    source.protected?.forEach((pattern, n) => {
      if (isName(pattern, tracked)) snapshot.set(pattern, { origin: 'named', at: ['protected', n] });
    });
  } else {
    source.snapshot.include.forEach((pattern, n) => expand(pattern, ['snapshot', 'include', n], snapshot));
    const excluded = source.snapshot.exclude.map((pattern) => matcher(pattern, tracked));
    for (const path of snapshot.keys()) if (excluded.some((matches) => matches(path))) snapshot.delete(path);
  }
  for (const [path, selected] of snapshot) {
    if (!supplemental.has(path)) continue;
    if (selected.origin === 'named') exposed.push({ path, at: selected.at });
    snapshot.delete(path);
  }
  return { snapshot, supplemental, empty, exposed };
}
