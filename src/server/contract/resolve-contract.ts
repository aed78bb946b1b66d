import type { JSONPath } from 'jsonc-parser';
import type {
  ContractDiagnostic,
  ContractSource,
  FrozenCheck,
  FrozenContract,
  ProfileName,
} from '../../protocol/contract.ts';
import { parseRelPath, pathKey } from '../../protocol/paths.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import { hostToolPath, looksSecret } from '../../protocol/sensitive-paths.ts';
import { otherRepository, refusalOf, unsafePath, type TreeFacts } from './file-refusal.ts';
import type { Locate } from './parse-contract.ts';
import { createRemarks, type Remarks } from './remarks.ts';
import { resolveChecks } from './resolve-checks.ts';
import { imageFiles, resolvePackages, type ResolvedPackages } from './resolve-packages.ts';
import { protectedRule, resolveProtected } from './resolve-protected.ts';
import { resolveSymbols } from './resolve-symbols.ts';
import { isName, matcher } from './select-files.ts';
import type { Selected, Selection } from './select-files.ts';
import { shownPath } from './shown-path.ts';

/** A tmpfs charges whole pages. */
const pageBytes = 4096;
/**
 * Profile `bounded` has a workspace of 64 MiB (design 20), `standard` one of 512 MiB. An eighth stays free: an edit is written beside the file and
 * then renamed, and new files need room.
 */
export const maxSnapshotBytes: Readonly<Record<ProfileName, number>> = {
  bounded: 56 * 1024 * 1024,
  standard: 448 * 1024 * 1024,
};
/** Bounds the listing, the manifest and the inodes of the workspace's tmpfs. */
export const maxSnapshotFiles = 10_000;

/** Every choice of a contract made, before any byte is read. */
export interface ResolvedContract {
  readonly snapshot: readonly RelPath[];
  readonly supplemental: readonly RelPath[];
  readonly protected: ReadonlySet<RelPath>;
  readonly readable: readonly RelPath[];
  readonly writable: FrozenContract['writable'];
  readonly checks: readonly FrozenCheck[];
  readonly scratch: readonly RelPath[];
  readonly packages: ResolvedPackages;
}

/** Paths of which the tree has to be asked before `resolveContract`. Pure. */
export function pathsToLookAt(source: ContractSource, selection: Selection): readonly string[] {
  return [
    ...new Set([
      ...selection.snapshot.keys(),
      ...selection.supplemental.keys(),
      ...source.writable.map((w) => w.path),
      ...imageFiles(source),
    ]),
  ].filter((path) => parseRelPath(path).ok);
}

/** Applies every rule about files and checks. Pure; all faults at once, each where it is written. */
export function resolveContract(
  source: ContractSource,
  locate: Locate,
  facts: TreeFacts,
  selection: Selection,
): { readonly resolved: ResolvedContract | null; readonly diagnostics: readonly ContractDiagnostic[] } {
  const remarks = createRemarks(locate);
  const { error, warning } = remarks;
  const tracked: ReadonlySet<string> = new Set(facts.tracked.keys());

  for (const { pattern, at } of selection.empty) {
    warning('no-match', `${shownPath(pattern)} matches no file that git tracks.`, at);
  }
  for (const { path, at } of selection.exposed) {
    error('supplemental-exposed', `${shownPath(path)} is supplemental, so it can't be in the snapshot.`, at);
  }

  const leftOut: string[] = [];
  /** The path when it may be taken, else undefined; what was named exactly is an error, the rest is listed. */
  const take: Take = (path, selected) => {
    const refusal = refusalOf(path, facts);
    if (refusal === undefined) return path as RelPath;
    if (selected.origin === 'named') error(refusal.code, refusal.message, selected.at);
    else leftOut.push(`${shownPath(path)} (${refusal.code})`);
    return undefined;
  };
  const snapshot = taken(selection.snapshot, take);
  const supplemental = taken(selection.supplemental, take);
  const writable = resolveWritable(source, snapshot, supplemental, facts, take, remarks);
  if (leftOut.length > 0) {
    const shown = leftOut.slice(0, 8).join(', ');
    const more = leftOut.length > 8 ? ` and ${leftOut.length - 8} more` : '';
    warning('left-out', `Not in the snapshot: ${shown}${more}.`, ['snapshot']);
  }

  const paths = [...snapshot].toSorted(byCodePoint);
  const scratch = resolveScratch(source, paths, writable, remarks);
  const readable = resolveReadable(source, paths, writable, tracked, remarks);
  const protectedFiles = resolveProtected(source, paths, tracked, remarks);
  source.writable.forEach((entry, n) => {
    const path = entry.path as RelPath;
    const rule = protectedFiles.get(path) ?? protectedRule(source, path, tracked);
    if (rule === undefined) return;
    const why =
      rule === 'contract'
        ? 'it is protected as well'
        : rule === 'acceptance'
          ? 'an acceptance command names it, so it is protected'
          : 'it is a test, so it is protected';
    const mend = rule === 'contract' ? '' : ' Write "protected" yourself if that is meant.';
    error('writable-protected', `${shownPath(path)} can't be writable: ${why}.${mend}`, ['writable', n, 'path']);
  });
  const placeOf = (path: string): JSONPath | undefined => {
    const n = source.writable.findIndex((entry) => entry.path === path);
    if (n >= 0) return ['writable', n, 'path'];
    return (selection.supplemental.get(path) ?? selection.snapshot.get(path))?.at;
  };
  findCollisions([...paths, ...writable.filter((w) => !w.exists).map((w) => w.path), ...supplemental], (a, b) =>
    error(
      'collision',
      `${shownPath(a)} and ${shownPath(b)} are one file where letter case or Unicode form doesn't count.`,
      placeOf(a) ?? placeOf(b) ?? ['writable'],
    ),
  );
  const packages = resolvePackages(source, paths, writable, facts, remarks);
  checkSize([...paths, ...supplemental], facts, source.profile, (message) => error('too-large', message, ['snapshot']));
  if (paths.length === 0 && writable.length > 0 && !remarks.failed()) {
    error('empty-snapshot', 'The snapshot holds no file. Add files to git, or name them.', ['snapshot']);
  }
  const checks = resolveChecks(source, paths, supplemental, writable, remarks);

  return {
    diagnostics: remarks.all,
    resolved: remarks.failed()
      ? null
      : {
          snapshot: paths,
          supplemental: [...supplemental].toSorted(byCodePoint),
          protected: new Set(protectedFiles.keys()),
          readable,
          writable,
          checks,
          scratch,
          packages,
        },
  };
}

type Take = (path: string, selected: Selected) => RelPath | undefined;

function taken(selection: ReadonlyMap<string, Selected>, take: Take): Set<RelPath> {
  return new Set([...selection].map(([path, selected]) => take(path, selected)).filter((path) => path !== undefined));
}

/** Order of code units: the same on every machine, whatever its locale. */
export function byCodePoint(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The files that may change. One that is there becomes part of the snapshot, one that is not is none of it. */
function resolveWritable(
  source: ContractSource,
  snapshot: Set<RelPath>,
  supplemental: ReadonlySet<RelPath>,
  facts: TreeFacts,
  take: Take,
  remarks: Remarks,
): FrozenContract['writable'] {
  const { error } = remarks;
  const tracked: ReadonlySet<string> = new Set(facts.tracked.keys());
  const excluded = (source.snapshot?.exclude ?? []).map((pattern) => matcher(pattern, tracked));
  const writable: FrozenContract['writable'] = [];
  source.writable.forEach((entry, n) => {
    // The short form is the text itself: there is no member `path` to point at, and the nearest parent is right.
    const at: JSONPath = ['writable', n, 'path'];
    const { path } = entry;
    if (!isName(path, tracked)) {
      error('writable-glob', 'A writable file is named exactly, without wildcards.', at);
      return;
    }
    if (writable.some((other) => other.path === path)) {
      error('duplicate-path', `${shownPath(path)} is already writable.`, at);
      return;
    }
    const parsed = parseRelPath(path);
    if (!parsed.ok) {
      const { code, message } = unsafePath(path, parsed.reason);
      error(code, message, at);
      return;
    }
    const tool = hostToolPath(path);
    if (tool !== undefined) {
      error('host-tool-path', `${shownPath(path)} can't be writable: tools on your machine act upon ${tool}.`, at);
      return;
    }
    if (supplemental.has(parsed.path)) {
      error('supplemental-exposed', `${shownPath(path)} is supplemental, so it can't be writable.`, at);
      return;
    }
    const other = otherRepository(path, facts);
    if (other !== undefined) {
      error(other.code, other.message, at);
      return;
    }
    if (excluded.some((matches) => matches(path))) {
      error('not-in-snapshot', `${shownPath(path)} is excluded from the snapshot.`, at);
      return;
    }
    const seen = facts.entries.get(path);
    const isNew = seen === undefined || (!seen.ok && seen.fault === 'missing');
    if (!isNew && !snapshot.has(parsed.path)) {
      const found = take(path, { origin: 'named', at });
      if (found === undefined) return;
      snapshot.add(found);
    }
    if (isNew && snapshot.has(parsed.path)) snapshot.delete(parsed.path);
    if (isNew && looksSecret(path)) {
      error('secret', `${shownPath(path)} is named like a file that holds a secret.`, at);
      return;
    }
    const symbols = resolveSymbols(entry, n, isNew, facts.outlines, remarks);
    if (symbols === undefined) return;
    writable.push({ path: parsed.path, symbols: symbols === null ? null : [...symbols], exists: !isNew });
  });
  return writable;
}

function resolveScratch(
  source: ContractSource,
  snapshot: readonly RelPath[],
  writable: FrozenContract['writable'],
  { error }: Remarks,
): readonly RelPath[] {
  const found: RelPath[] = [];
  source.scratch.forEach((text, n) => {
    const parsed = parseRelPath(text.replace(/\/+$/, ''));
    if (!parsed.ok) {
      const { code, message } = unsafePath(text, parsed.reason);
      error(code, message, ['scratch', n]);
      return;
    }
    const folder = parsed.path;
    // Never a folder above, below or equal to a file of the contract: commands may write there.
    const clash = [...snapshot, ...writable.map((w) => w.path)].find(
      (path) => path === folder || path.startsWith(`${folder}/`) || folder.startsWith(`${path}/`),
    );
    if (clash !== undefined) {
      error('scratch-overlap', `${shownPath(folder)} can't be scratch: ${shownPath(clash)} is part of the contract.`, [
        'scratch',
        n,
      ]);
      return;
    }
    if (!found.includes(folder)) found.push(folder);
  });
  return found.toSorted(byCodePoint);
}

function resolveReadable(
  source: ContractSource,
  snapshot: readonly RelPath[],
  writable: FrozenContract['writable'],
  tracked: ReadonlySet<string>,
  { error, warning }: Remarks,
): readonly RelPath[] {
  const found = new Set<RelPath>(writable.map((w) => w.path));
  if (source.readable === undefined) for (const path of snapshot) found.add(path);
  source.readable?.forEach((pattern, n) => {
    const matches = matcher(pattern, tracked);
    const hits = snapshot.filter(matches);
    for (const path of hits) found.add(path);
    if (hits.length > 0 || writable.some((w) => matches(w.path))) return;
    if (isName(pattern, tracked)) {
      error('not-in-snapshot', `${shownPath(pattern)} is not in the snapshot.`, ['readable', n]);
    } else warning('no-match', `${shownPath(pattern)} matches no file of the snapshot.`, ['readable', n]);
  });
  return [...found].toSorted(byCodePoint);
}

/** Calls back for each pair of paths that are one file elsewhere, and for a file that is a folder of another. */
export function findCollisions(paths: readonly string[], found: (a: string, b: string) => void): void {
  const byKey = new Map<string, string>();
  for (const path of new Set(paths)) {
    const other = byKey.get(pathKey(path));
    if (other !== undefined) found(path, other);
    else byKey.set(pathKey(path), path);
  }
  for (const path of byKey.values()) {
    const segments = path.split('/');
    for (let n = 1; n < segments.length; n += 1) {
      const other = byKey.get(pathKey(segments.slice(0, n).join('/')));
      if (other !== undefined) found(path, other);
    }
  }
}

function checkSize(
  paths: readonly string[],
  facts: TreeFacts,
  profile: ProfileName,
  refuse: (message: string) => void,
): void {
  if (paths.length > maxSnapshotFiles) {
    refuse(`${paths.length} files; at most ${maxSnapshotFiles} fit. Narrow "snapshot.include".`);
    return;
  }
  let sum = 0;
  let largest = { path: '', size: 0 };
  for (const path of paths) {
    const entry = facts.entries.get(path);
    const size = entry?.ok === true ? entry.size : 0;
    sum += Math.ceil(size / pageBytes) * pageBytes;
    if (size > largest.size) largest = { path, size };
  }
  const most = maxSnapshotBytes[profile];
  if (sum <= most) return;
  const mib = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1);
  refuse(
    `${mib(sum)} MiB of files; at most ${mib(most)} fit into the sandbox. ` +
      `The largest is ${shownPath(largest.path)} with ${mib(largest.size)} MiB.` +
      (profile === 'bounded' && sum <= maxSnapshotBytes.standard ? ' Profile "standard" has room for them.' : ''),
  );
}
