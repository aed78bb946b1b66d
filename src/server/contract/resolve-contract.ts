import type { JSONPath } from 'jsonc-parser';
import { contractDefaults } from '../../protocol/contract.ts';
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
import { closestWord } from './closest-word.ts';
import type { TrackedFile } from './git-files.ts';
import type { Locate } from './parse-contract.ts';
import type { TreeEntry, TreeFileFault } from './read-tree-file.ts';
import { isName, matcher, selectFiles } from './select-files.ts';
import type { Selected, Selection } from './select-files.ts';
import { filesNamedBy, isTestFile } from './test-files.ts';

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

/** What was seen of the tree: tracked paths, a look at each selected path, and which untracked ones git ignores. */
export interface TreeFacts {
  readonly tracked: readonly TrackedFile[];
  readonly entries: ReadonlyMap<string, TreeEntry>;
  readonly ignored: ReadonlySet<string>;
}

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

/** Files that the image is made from; what is in them is looked at when the contract is frozen. */
export interface ResolvedPackages {
  readonly npm: { readonly lock: RelPath; readonly manifest: RelPath } | null;
  readonly python: { readonly lock: RelPath; readonly sources: readonly string[] } | null;
  /** A devcontainer.json of which only `image` is read. */
  readonly devcontainer: RelPath | null;
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
  selection: Selection = selectFiles(source, facts.tracked),
): { readonly resolved: ResolvedContract | null; readonly diagnostics: readonly ContractDiagnostic[] } {
  const diagnostics: ContractDiagnostic[] = [];
  const say = (severity: ContractDiagnostic['severity'], code: string, message: string, at: JSONPath): void => {
    diagnostics.push({ severity, code, message, ...locate(at) });
  };
  const error = (code: string, message: string, at: JSONPath): void => say('error', code, message, at);
  const trackedPaths = facts.tracked.map((file) => file.path);
  const tracked = new Map(facts.tracked.map((file) => [file.path, file]));
  const trackedSet: ReadonlySet<string> = new Set(trackedPaths);

  for (const { pattern, at } of selection.empty) {
    say('warning', 'no-match', `${shownPath(pattern)} matches no file that git tracks.`, at);
  }
  for (const { path, at } of selection.exposed) {
    error('supplemental-exposed', `${shownPath(path)} is supplemental, so it can't be in the snapshot.`, at);
  }

  /** The path when it may be taken, else undefined; what was named exactly is an error, the rest is listed. */
  const leftOut: string[] = [];
  const take = (path: string, selected: Selected): RelPath | undefined => {
    const refusal = refusalOf(path, tracked.get(path), facts, trackedPaths);
    if (refusal === undefined) return path as RelPath;
    if (selected.origin === 'named') error(refusal.code, refusal.message, selected.at);
    else leftOut.push(`${shownPath(path)} (${refusal.code})`);
    return undefined;
  };

  const snapshot = new Set<RelPath>();
  for (const [path, selected] of selection.snapshot) {
    const taken = take(path, selected);
    if (taken !== undefined) snapshot.add(taken);
  }
  const supplemental = new Set<RelPath>();
  for (const [path, selected] of selection.supplemental) {
    const taken = take(path, selected);
    if (taken !== undefined) supplemental.add(taken);
  }

  if (source.tools.length > 0) {
    error('tools-not-supported', 'The search tool is not supported yet. Leave "tools" out.', ['tools']);
  }
  const excluded = (source.snapshot?.exclude ?? []).map((pattern) => matcher(pattern, trackedSet));
  const writable: FrozenContract['writable'] = [];
  source.writable.forEach((entry, n) => {
    // The short form is the text itself: there is no member `path` to point at, and the nearest parent is right.
    const at: JSONPath = ['writable', n, 'path'];
    const { path } = entry;
    if (entry.symbols !== undefined) {
      error(
        'symbols-not-supported',
        'Limiting a change to symbols is not supported yet. Leave "symbols" out; a supplemental check can compare the rest.',
        ['writable', n, 'symbols'],
      );
    }
    if (!isName(path, trackedSet)) {
      error('writable-glob', 'A writable file is named exactly, without wildcards.', at);
      return;
    }
    if (writable.some((other) => other.path === path)) {
      error('duplicate-path', `${shownPath(path)} is already writable.`, at);
      return;
    }
    const parsed = parseRelPath(path);
    if (!parsed.ok) {
      error('unsafe-path', `${shownPath(path)} can't be used: ${faultText[parsed.reason] ?? parsed.reason}.`, at);
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
    if (excluded.some((matches) => matches(path))) {
      error('not-in-snapshot', `${shownPath(path)} is excluded from the snapshot.`, at);
      return;
    }
    const seen = facts.entries.get(path);
    const isNew = seen === undefined || (!seen.ok && seen.fault === 'missing');
    if (!isNew && !snapshot.has(parsed.path)) {
      const taken = take(path, { origin: 'named', at });
      if (taken === undefined) return;
      snapshot.add(taken);
    }
    if (isNew && snapshot.has(parsed.path)) snapshot.delete(parsed.path);
    if (isNew && looksSecret(path)) {
      error('secret', `${shownPath(path)} is named like a file that holds a secret.`, at);
      return;
    }
    writable.push({ path: parsed.path, symbols: null, exists: !isNew });
  });

  if (leftOut.length > 0) {
    const shown = leftOut.slice(0, 8).join(', ');
    const more = leftOut.length > 8 ? ` and ${leftOut.length - 8} more` : '';
    say('warning', 'left-out', `Not in the snapshot: ${shown}${more}.`, ['snapshot']);
  }

  const paths = [...snapshot].toSorted(byCodePoint);
  const scratch = resolveScratch(source, paths, writable, error);
  const readable = resolveReadable(source, paths, writable, trackedSet, error, say);
  const protectedFiles = resolveProtected(source, paths, trackedSet, error, say);
  source.writable.forEach((entry, n) => {
    const path = entry.path as RelPath;
    const rule = protectedFiles.get(path) ?? protectedRule(source, path, trackedSet);
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
  const packages = resolvePackages(source, paths, writable, facts, tracked, trackedPaths, error, say);
  checkSize([...paths, ...supplemental], facts, source.profile, (message) => error('too-large', message, ['snapshot']));
  if (paths.length === 0 && writable.length > 0 && !diagnostics.some((d) => d.severity === 'error')) {
    error('empty-snapshot', 'The snapshot holds no file. Add files to git, or name them.', ['snapshot']);
  }
  const checks = resolveChecks(source, paths, supplemental, writable, error, say);

  const failed = diagnostics.some((d) => d.severity === 'error');
  return {
    diagnostics,
    resolved: failed
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

type Say = (severity: ContractDiagnostic['severity'], code: string, message: string, at: JSONPath) => void;
type Err = (code: string, message: string, at: JSONPath) => void;

/** Order of code units: the same on every machine, whatever its locale. */
export function byCodePoint(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const faultText: Readonly<Record<string, string>> = {
  empty: 'it is empty',
  'too-long': 'it is too long',
  malformed: 'it is not well-formed text',
  'control-character': 'it holds a control character',
  'invisible-character': 'it holds a character that draws nothing or turns the text around',
  backslash: 'folders are separated by /',
  absolute: 'it must be relative to the repository',
  'not-nfc': 'it is not in Unicode normal form C',
  'empty-segment': 'a folder name is empty (a slash too many?)',
  'dot-segment': 'it must not hold . or ..',
  'segment-too-long': 'a name in it is too long',
  'trailing-dot-or-space': 'a name in it ends with a dot or a space',
  'device-name': 'Windows takes a name in it for a device',
  'git-folder': "git's own folder is never touched",
};

const entryText: Readonly<Record<TreeFileFault, string>> = {
  missing: 'there is no such file',
  link: 'it is a symbolic link',
  'parent-link': 'it lies behind a symbolic link',
  'parent-file': 'a folder of it is a file',
  folder: 'it is a folder; write it as "folder/**"',
  'not-regular': 'it is a pipe, a socket or a device',
  'too-large': 'it is too large',
  unreadable: 'it cannot be read',
  changing: 'it changes while it is read',
};

/** One fault of a file of the tree, for the error that ends a freeze. */
export function entryFaultText(fault: TreeFileFault): string {
  return entryText[fault];
}

interface Refusal {
  readonly code: string;
  readonly message: string;
}

function refusalOf(
  path: string,
  tracked: TrackedFile | undefined,
  facts: TreeFacts,
  trackedPaths: readonly string[],
): Refusal | undefined {
  const name = shownPath(path);
  const parsed = parseRelPath(path);
  if (!parsed.ok) {
    return { code: 'unsafe-path', message: `${name} can't be used: ${faultText[parsed.reason] ?? parsed.reason}.` };
  }
  if (tracked?.kind === 'link') return { code: 'link', message: `${name} can't be used: ${entryText.link}.` };
  if (tracked?.kind === 'submodule') return { code: 'submodule', message: `${name} is another repository.` };
  if (looksSecret(path)) return { code: 'secret', message: `${name} is named like a file that holds a secret.` };
  if (facts.ignored.has(path)) return { code: 'ignored', message: `${name} is ignored by git.` };
  const entry = facts.entries.get(path);
  if (entry === undefined || (!entry.ok && entry.fault === 'missing')) {
    const near = closestWord(path, trackedPaths.slice(0, 20_000));
    const hint = near === undefined ? '' : ` Did you mean ${shownPath(near)}?`;
    return { code: 'unknown-path', message: `${name}: ${entryText.missing}.${hint}` };
  }
  if (!entry.ok) return { code: entry.fault, message: `${name} can't be used: ${entryText[entry.fault]}.` };
  return undefined;
}

/** Paths that `image` names: the lock files, the manifest beside npm's, a devcontainer.json. */
function imageFiles(source: ContractSource): readonly string[] {
  const { base, dependencies } = source.image;
  const npm = dependencies?.npm;
  return [
    ...(npm === undefined ? [] : [npm, manifestBeside(npm)]),
    ...(dependencies?.python === undefined ? [] : [dependencies.python.lock]),
    ...(base !== undefined && namesDevcontainer(base) ? [base] : []),
  ];
}

function manifestBeside(lock: string): string {
  return `${lock.slice(0, lock.lastIndexOf('/') + 1)}package.json`;
}

/** A base that is read from a devcontainer.json instead of being one. */
export function namesDevcontainer(base: string): boolean {
  return /(?:^|\/)\.?devcontainer\.json$/.test(base);
}

/** Of an image as an engine takes it: a name, with a tag or a digest. */
export const imageReference =
  /^[a-z0-9][\w.-]*(?::\d+)?(?:\/[a-z0-9][\w.-]*)*(?::[\w][\w.-]*)?(?:@sha256:[0-9a-f]{64})?$/i;

function resolvePackages(
  source: ContractSource,
  snapshot: readonly RelPath[],
  writable: FrozenContract['writable'],
  facts: TreeFacts,
  tracked: ReadonlyMap<string, TrackedFile>,
  trackedPaths: readonly string[],
  error: Err,
  say: Say,
): ResolvedPackages {
  const { base, dependencies } = source.image;
  const take = (path: string, at: JSONPath): RelPath | null => {
    const refusal = refusalOf(path, tracked.get(path), facts, trackedPaths);
    if (refusal !== undefined) {
      error(refusal.code, refusal.message, at);
      return null;
    }
    if (writable.some((entry) => entry.path === path)) {
      say(
        'warning',
        'packages-fixed',
        `${shownPath(path)} is writable, but the image keeps the packages of the freeze.`,
        at,
      );
    }
    return path as RelPath;
  };
  let devcontainer: RelPath | null = null;
  if (base !== undefined) {
    if (namesDevcontainer(base)) devcontainer = take(base, ['image', 'base']);
    else if (!imageReference.test(base))
      error('bad-image', `${shownPath(base)} is no name of an image.`, ['image', 'base']);
  }
  let npm: ResolvedPackages['npm'] = null;
  if (dependencies?.npm !== undefined) {
    const at: JSONPath = ['image', 'dependencies', 'npm'];
    if (!/(?:^|\/)package-lock\.json$/.test(dependencies.npm)) {
      error('bad-lock', 'Packages of npm come from a file package-lock.json.', at);
    } else {
      const lock = take(dependencies.npm, at);
      const manifest = take(manifestBeside(dependencies.npm), at);
      if (lock !== null && manifest !== null) npm = { lock, manifest };
      const clash = [...snapshot, ...writable.map((w) => w.path)].find((path) =>
        /(?:^|\/)node_modules(?:\/|$)/.test(path),
      );
      if (clash !== undefined) {
        error('packages-overlap', `${shownPath(clash)} lies where the image's packages are linked.`, at);
      }
    }
  }
  let python: ResolvedPackages['python'] = null;
  if (dependencies?.python !== undefined) {
    const { lock: path, sources } = dependencies.python;
    const lock = take(path, ['image', 'dependencies', 'python']);
    const folder = path.slice(0, Math.max(0, path.lastIndexOf('/')));
    const inSrc = `${folder === '' ? '' : `${folder}/`}src`;
    const found = snapshot.some((file) => file.startsWith(`${inSrc}/`) && file.endsWith('.py'));
    sources?.forEach((text, n) => {
      if (text !== '.' && !parseRelPath(text).ok) {
        error('unsafe-path', `${shownPath(text)} is no folder of the repository.`, [
          'image',
          'dependencies',
          'python',
          'sources',
          n,
        ]);
      }
    });
    if (lock !== null) {
      python = { lock, sources: sources ?? [folder === '' ? '.' : folder, ...(found ? [inSrc] : [])] };
    }
  }
  return { npm, python, devcontainer };
}

function resolveScratch(
  source: ContractSource,
  snapshot: readonly RelPath[],
  writable: FrozenContract['writable'],
  error: Err,
): readonly RelPath[] {
  const found: RelPath[] = [];
  source.scratch.forEach((text, n) => {
    const parsed = parseRelPath(text.replace(/\/+$/, ''));
    if (!parsed.ok) {
      error('unsafe-path', `${shownPath(text)} can't be used: ${faultText[parsed.reason] ?? parsed.reason}.`, [
        'scratch',
        n,
      ]);
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
  error: Err,
  say: Say,
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
    } else say('warning', 'no-match', `${shownPath(pattern)} matches no file of the snapshot.`, ['readable', n]);
  });
  return [...found].toSorted(byCodePoint);
}

type ProtectedRule = 'contract' | 'acceptance' | 'test';

function resolveProtected(
  source: ContractSource,
  snapshot: readonly RelPath[],
  tracked: ReadonlySet<string>,
  error: Err,
  say: Say,
): ReadonlyMap<RelPath, ProtectedRule> {
  const found = new Map<RelPath, ProtectedRule>();
  if (source.protected === undefined) {
    for (const path of snapshot) if (isTestFile(path)) found.set(path, 'test');
    for (const check of source.acceptance) {
      for (const path of filesNamedBy(check.argv, snapshot)) {
        // A folder such as `.` or `src` names everything in it; only what is a file or a test of it is meant.
        if (check.argv.some((argument) => namesFolderOf(argument, path)) && !isTestFile(path)) continue;
        found.set(path as RelPath, 'acceptance');
      }
    }
    return found;
  }
  source.protected.forEach((pattern, n) => {
    const matches = matcher(pattern, tracked);
    const hits = snapshot.filter(matches);
    for (const path of hits) found.set(path, 'contract');
    if (hits.length > 0) return;
    if (isName(pattern, tracked)) {
      error('not-in-snapshot', `${shownPath(pattern)} is not in the snapshot.`, ['protected', n]);
    } else say('warning', 'no-match', `${shownPath(pattern)} matches no file of the snapshot.`, ['protected', n]);
  });
  return found;
}

function namesFolderOf(argument: string, path: string): boolean {
  const folder = argument.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '');
  return folder !== '' && path.startsWith(`${folder}/`);
}

/** A file that does not exist yet can be a test, too. */
function protectedRule(source: ContractSource, path: string, tracked: ReadonlySet<string>): ProtectedRule | undefined {
  if (source.protected !== undefined) {
    return source.protected.some((pattern) => matcher(pattern, tracked)(path)) ? 'contract' : undefined;
  }
  if (
    source.acceptance.some(
      (check) => filesNamedBy(check.argv, [path]).length > 0 && !check.argv.some((a) => namesFolderOf(a, path)),
    )
  ) {
    return 'acceptance';
  }
  return isTestFile(path) ? 'test' : undefined;
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

function resolveChecks(
  source: ContractSource,
  snapshot: readonly RelPath[],
  supplemental: ReadonlySet<RelPath>,
  writable: FrozenContract['writable'],
  error: Err,
  say: Say,
): readonly FrozenCheck[] {
  const ids = new Map<string, JSONPath>();
  const argvs = new Set<string>();
  const checks: FrozenCheck[] = [];
  const known = new Set<string>([...snapshot, ...writable.map((w) => w.path)]);
  const register = (id: string, at: JSONPath): void => {
    if (ids.has(id)) error('duplicate-id', `Another check is already called "${id}".`, at);
    ids.set(id, at);
  };
  source.acceptance.forEach((check, n) => {
    register(check.id, ['acceptance', n, 'id']);
    checkArgv(check.argv, ['acceptance', n, 'argv'], error);
    const key = JSON.stringify(check.argv);
    // The agent calls a check by its argv alone: of two equal ones it could only ever reach the first.
    if (argvs.has(key)) error('duplicate-argv', 'Another check has the same command.', ['acceptance', n, 'argv']);
    argvs.add(key);
    check.argv.forEach((argument, k) => {
      if (supplemental.has(argument as RelPath)) {
        error('supplemental-exposed', `${shownPath(argument)} is supplemental: the agent can't run it.`, [
          'acceptance',
          n,
          'argv',
          k,
        ]);
      } else if (k > 0 && looksLikeFile(argument) && !known.has(argument.replace(/^(?:\.\/)+/, ''))) {
        say('warning', 'unknown-path', `${shownPath(argument)} is not in the snapshot.`, ['acceptance', n, 'argv', k]);
      }
    });
    checks.push({
      id: check.id,
      kind: 'acceptance',
      argv: check.argv,
      baseline: check.baseline,
      timeoutS: check.timeoutS,
      showKiB: check.showKiB,
      captureKiB: check.captureKiB,
      env: check.env,
    });
  });
  source.supplemental.forEach((check, n) => {
    const id = check.id ?? `supplemental-${n + 1}`;
    register(id, check.id === undefined ? ['supplemental', n] : ['supplemental', n, 'id']);
    checkArgv(check.argv, ['supplemental', n, 'argv'], error);
    checks.push({
      id,
      kind: 'supplemental',
      argv: check.argv,
      baseline: null,
      timeoutS: check.timeoutS,
      showKiB: contractDefaults.showKiB,
      captureKiB: check.captureKiB,
      env: check.env,
    });
  });
  if (!source.acceptance.some((check) => check.baseline === 'fail')) {
    error('no-failing-check', 'No check is declared to fail before the change, so none can tell broken from fixed.', [
      'acceptance',
    ]);
  }
  return checks;
}

function checkArgv(argv: readonly string[], at: JSONPath, error: Err): void {
  argv.forEach((argument, n) => {
    if (argument.includes('\0')) error('bad-argument', 'An argument can’t hold a NUL character.', [...at, n]);
  });
  const program = argv[0] ?? '';
  if (program.trim() === '') error('bad-argument', 'The program is empty.', [...at, 0]);
  else if (program.startsWith('-')) error('bad-argument', 'The program can’t start with a dash.', [...at, 0]);
  else if (/\s/.test(program) && argv.length === 1) {
    error('bad-argument', 'Give the program and each argument as its own text: no shell splits them.', [...at, 0]);
  }
}

function looksLikeFile(argument: string): boolean {
  return /^(?:\.\/)?[\w@-][\w.@-]*(?:\/[\w.@-]+)+\.\w{1,5}$/.test(argument);
}

/** A path as it may be shown: bounded, with everything that draws nothing or moves the cursor written out. */
export function shownPath(path: string): string {
  const cut = path.length > 120 ? `${path.slice(0, 117)}…` : path;
  return cut.replace(
    /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu,
    (c) => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
