import { basename, dirname } from 'node:path/posix';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import type { FileEntry, IntegrationId, RelPath, Sha256 } from '../../protocol/primitives.ts';
import { hostToolPath } from '../../protocol/sensitive-paths.ts';
import type { CandidateFile } from '../../protocol/views.ts';
import { FolderFault } from '../tree-folder.ts';
import { isExecutable } from './candidate.ts';
import type { FileChange, FileState, Journal, JournalStore } from './integration-journal.ts';
import type { Seen, TreeFiles } from './tree-files.ts';

/** Larger files never come out of a sandbox (its workspace has 64 MiB): what is larger was not what we knew. */
const maxFileBytes = 64 * 1024 * 1024;

export interface IntegrateRequest {
  readonly id: IntegrationId;
  readonly purpose: 'integrate' | 'undo';
  readonly tree: TreeFiles;
  readonly journals: JournalStore;
  readonly changes: readonly FileChange[];
  /** Kept bytes by hash (`ArtefactStore.get`). */
  readonly bytesOf: (sha256: Sha256) => Promise<Uint8Array>;
  /** Undo: folders that the integration made; those that are empty afterwards go again. */
  readonly emptyFolders?: readonly string[];
}

/** What the changes of a candidate do to a tree. Undoing is the same, reversed. */
export function changesOf(files: readonly CandidateFile[]): readonly FileChange[] {
  const state = (ref: CandidateFile['before'], mode: number | null): FileState | null =>
    ref === null ? null : { sha256: ref.sha256, size: ref.size, executable: isExecutable(mode ?? 0) };
  return files.map((file) => ({
    path: file.path,
    from: state(file.before, file.beforeMode),
    to: state(file.after, file.afterMode),
  }));
}

export function reversed(changes: readonly FileChange[]): readonly FileChange[] {
  return changes.map(({ path, from, to }) => ({ path, from: to, to: from }));
}

export type Applied =
  | { readonly state: 'applied'; readonly newFolders: readonly string[] }
  /** Something changed in the middle and could not all be put back: named, for a person to look at. */
  | { readonly state: 'partial'; readonly reason: string; readonly paths: readonly RelPath[] };

/**
 * Brings every file of the changes from its old into its new state, or none: compare-and-swap on the bytes (and on the
 * executable bit), with a journal that survives a crash. Owner, group and permission bits of an existing file stay; its
 * bytes are taken as they are, line ends included. HEAD, index and branches are not touched. Returns after everything
 * was read back.
 *
 * Throws EscrowError UnsafePath or BaseChanged (details: `paths`) with nothing written, StorageUnwritable or StorageFull
 * when a file could not be written (and everything was put back).
 */
export async function applyChanges(request: IntegrateRequest): Promise<Applied> {
  const { tree, changes, journals, id } = request;
  refuseUnsafe(changes);
  const seen = await compare(tree, changes);
  const newFolders = await missingFolders(tree, changes);
  const journal: Journal = {
    version: 1,
    id,
    purpose: request.purpose,
    root: tree.root,
    phase: 'prepared',
    newFolders: [...newFolders],
    steps: changes.map((change, n) => ({
      ...change,
      temporary: temporaryName(change.path, id, n),
    })),
  };
  const applying: Journal = { ...journal, phase: 'applying' };
  await journals.write(journal).catch((error: unknown) => {
    throw typed(tree.root, error);
  });
  try {
    for (const folder of newFolders) await tree.makeFolder(folder);
    for (const [n, step] of journal.steps.entries()) await prepare(request, step, seen[n] ?? { kind: 'absent' });
    // Looked at once more: preparing takes time, and people save files.
    await compare(tree, changes);
    await journals.write(applying);
  } catch (error) {
    try {
      await discard(tree, journal);
      await journals.remove(id);
    } catch (again) {
      // The journal stays: the next start removes what is left of it.
      throw typed(tree.root, again);
    }
    throw typed(tree.root, error);
  }
  const failure = await carryOut(tree, applying);
  if (failure === null) {
    // The files are as they should be and were read back: a folder or a journal that can't be removed changes nothing
    // of that. A journal whose end is recorded is removed at the next start.
    for (const folder of (request.emptyFolders ?? []).toReversed()) await leftIfStuck(tree.removeFolder(folder));
    await leftIfStuck(journals.remove(id));
    return { state: 'applied', newFolders };
  }
  const left = await takeBack(request, applying);
  await leftIfStuck(journals.remove(id));
  if (left.length > 0) return { state: 'partial', reason: failure.message, paths: left };
  throw failure;
}

/** Waits for a removal; what the system refuses to remove stays. */
async function leftIfStuck(removal: Promise<unknown>): Promise<void> {
  try {
    await removal;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
  }
}

export interface Recovered {
  readonly id: IntegrationId;
  readonly purpose: 'integrate' | 'undo';
  readonly root: string;
  /** `applied`: the changes are all there; `not-applied`: none is; `partial`: somebody else's bytes are in between. */
  readonly state: 'applied' | 'not-applied' | 'partial';
  readonly reason: string;
  readonly paths: readonly RelPath[];
}

/**
 * Brings what a crash left in the middle to one of its two ends. Decided by looking at the files, never by guessing:
 * before the first replacement everything is discarded; after it the rest is finished if every file is still in its old
 * or new state, else what was replaced is put back. One that can't be brought to an end now (`left`: its tree can't be
 * opened, the disk is full) keeps its journal for the next time.
 */
export async function recoverIntegrations(deps: {
  readonly journals: JournalStore;
  readonly openTree: (root: string) => Promise<TreeFiles>;
  readonly bytesOf: (sha256: Sha256) => Promise<Uint8Array>;
  /**
   * Whether the record still waits for the end of this integration. The journal of one whose end is recorded was only
   * not removed in time: the tree may have moved on since, and nothing is touched but our own temporary files.
   */
  readonly isOpen: (id: IntegrationId) => boolean;
  readonly log: (level: 'info' | 'warn' | 'error', message: string, data?: Readonly<Record<string, unknown>>) => void;
}): Promise<{ readonly recovered: readonly Recovered[]; readonly left: ReadonlySet<IntegrationId> }> {
  const { journals, unreadable } = await deps.journals.list();
  for (const path of unreadable) deps.log('error', 'an integration journal cannot be read', { path });
  const recovered: Recovered[] = [];
  const left = new Set<IntegrationId>();
  for (const journal of journals) {
    try {
      const tree = await deps.openTree(journal.root);
      if (!deps.isOpen(journal.id)) {
        await discard(tree, journal, journal.phase === 'prepared' ? 'not-applied' : 'applied');
        await deps.journals.remove(journal.id);
        continue;
      }
      const result = await recoverOne(tree, journal, deps);
      await deps.journals.remove(journal.id);
      recovered.push(result);
    } catch (error) {
      left.add(journal.id);
      deps.log('error', 'an integration could not be recovered', { id: journal.id, error: String(error) });
    }
  }
  return { recovered, left };
}

async function recoverOne(
  tree: TreeFiles,
  journal: Journal,
  deps: { readonly journals: JournalStore; readonly bytesOf: (sha256: Sha256) => Promise<Uint8Array> },
): Promise<Recovered> {
  const { id, purpose, root } = journal;
  const end = (state: Recovered['state'], reason: string, paths: readonly RelPath[] = []): Recovered => ({
    id,
    purpose,
    root,
    state,
    reason,
    paths,
  });
  if (journal.phase === 'prepared') {
    await discard(tree, journal);
    return end('not-applied', 'interrupted before the first file was replaced');
  }
  const looked = await Promise.all(journal.steps.map((step) => tree.look(step.path, maxFileBytes)));
  const places = journal.steps.map((step, n) => placeOf(step, looked[n]));
  if (places.every((place) => place === 'new')) {
    await discard(tree, journal, 'applied');
    return end('applied', 'every file was replaced before the interruption');
  }
  if (places.every((place) => place === 'old')) {
    await discard(tree, journal);
    return end('not-applied', 'no file was replaced before the interruption');
  }
  const request: IntegrateRequest = {
    id,
    purpose,
    tree,
    journals: deps.journals,
    changes: journal.steps,
    bytesOf: deps.bytesOf,
  };
  if (!places.includes('other')) {
    for (const [n, step] of journal.steps.entries()) {
      if (places[n] !== 'old') continue;
      const there = await tree.look(step.temporary, maxFileBytes);
      if (there.kind === 'absent') await prepare(request, step, looked[n] ?? { kind: 'absent' });
    }
    const failure = await carryOut(tree, journal);
    if (failure === null) return end('applied', 'finished after the interruption');
  }
  const left = await takeBack(request, journal);
  return left.length === 0
    ? end('not-applied', 'put back after the interruption: a file had changed in between')
    : end('partial', 'files changed in between', left);
}

/**
 * Files of the snapshot that are not part of the candidate and are no longer as they were frozen. Told, not refused:
 * the checks have passed on other bytes than the ones that are there now.
 */
export async function movedFiles(
  tree: TreeFiles,
  snapshot: readonly FileEntry[],
  candidate: readonly CandidateFile[],
): Promise<readonly RelPath[]> {
  const own = new Set(candidate.map((file) => file.path));
  const moved: RelPath[] = [];
  for (const file of snapshot) {
    if (own.has(file.path)) continue;
    const seen = await tree.look(file.path, maxFileBytes);
    if (!matches(seen, { ...file, executable: isExecutable(file.mode) })) moved.push(file.path);
  }
  return moved;
}

/** Refuses when an unsaved editor holds a file that would change. Throws EscrowError UnsavedChanges. */
export function refuseUnsaved(changes: readonly FileChange[], unsaved: readonly string[]): void {
  const held = changes.map((change) => change.path).filter((path) => unsaved.includes(path));
  if (held.length === 0) return;
  throw new EscrowError(
    'UnsavedChanges',
    `An editor holds unsaved changes: ${held.join(', ')}`,
    'Save or revert these files, then accept again.',
    { paths: held },
  );
}

/** A file is at its old, at its new, or at neither state. Where both are equal, nothing is to be done: new. */
function placeOf(change: FileChange, seen: Seen | undefined): 'old' | 'new' | 'other' {
  if (seen === undefined) return 'other';
  if (matches(seen, change.to)) return 'new';
  return matches(seen, change.from) ? 'old' : 'other';
}

function matches(seen: Seen, state: FileState | null): boolean {
  if (seen.kind === 'unsafe') return false;
  if (state === null || seen.kind === 'absent') return state === null && seen.kind === 'absent';
  if (seen.sha256 !== state.sha256 || seen.size !== state.size) return false;
  // Windows keeps no such bit.
  return process.platform === 'win32' || isExecutable(seen.mode) === state.executable;
}

function refuseUnsafe(changes: readonly FileChange[]): void {
  const unsafe = changes.filter((change) => !parseRelPath(change.path).ok || hostToolPath(change.path) !== undefined);
  if (unsafe.length > 0) throw unsafePath(unsafe.map((change) => `${change.path}: not a path that may be written`));
}

/** Throws unless every file is in its old state, each parent a real folder. */
async function compare(tree: TreeFiles, changes: readonly FileChange[]): Promise<readonly Seen[]> {
  const seen: Seen[] = [];
  const unsafe: string[] = [];
  const changed: RelPath[] = [];
  for (const change of changes) {
    const found = await tree.look(change.path, maxFileBytes);
    seen.push(found);
    if (found.kind === 'unsafe') unsafe.push(`${change.path}: ${found.reason}`);
    else if (!matches(found, change.from)) changed.push(change.path);
  }
  if (unsafe.length > 0) throw unsafePath(unsafe);
  if (changed.length > 0) throw baseChanged(changed);
  return seen;
}

function unsafePath(paths: readonly string[]): EscrowError {
  return new EscrowError(
    'UnsafePath',
    `Nothing was written. ${paths.join('; ')}`,
    'Put a regular file in a real folder there, or apply the change by hand.',
    { paths },
  );
}

function baseChanged(paths: readonly RelPath[]): EscrowError {
  return new EscrowError(
    'BaseChanged',
    `Nothing was written: ${paths.join(', ')} is no longer what the candidate was made from.`,
    'Put the file back as it was, or freeze the contract again and start a new session.',
    { paths },
  );
}

function typed(root: string, error: unknown): EscrowError {
  if (EscrowError.is(error)) return error;
  return error instanceof FolderFault ? unsafePath([error.message]) : unwritable(root, error);
}

function unwritable(root: string, error: unknown): EscrowError {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
  const full = code === 'ENOSPC' || code === 'EDQUOT';
  return new EscrowError(
    full ? 'StorageFull' : 'StorageUnwritable',
    `${root} could not be written (${code}); every file is as it was.`,
    full ? 'Free some disk space, then try again.' : 'Check the permissions of the folder, then try again.',
    { root, errno: code },
  );
}

/** Beside its target, so that the rename stays on one file system; the journal knows it, so a crash leaves no stray. */
function temporaryName(path: string, id: IntegrationId, n: number): string {
  const folder = dirname(path);
  const name = `.escrow-${id}-${n}.tmp`;
  return folder === '.' ? name : `${folder}/${name}`;
}

function foldersOf(path: string): readonly string[] {
  const segments = path.split('/').slice(0, -1);
  return segments.map((_, n) => segments.slice(0, n + 1).join('/'));
}

async function missingFolders(tree: TreeFiles, changes: readonly FileChange[]): Promise<readonly string[]> {
  const missing = new Set<string>();
  for (const change of changes) {
    if (change.to === null) continue;
    for (const folder of foldersOf(change.path)) {
      // A folder that is there is "not a regular file"; its parents have been looked at by `compare`.
      if ((await tree.look(folder, 0)).kind === 'absent') missing.add(folder);
    }
  }
  return [...missing].toSorted((a, b) => a.split('/').length - b.split('/').length || (a < b ? -1 : 1));
}

async function prepare(request: IntegrateRequest, step: Journal['steps'][number], seen: Seen): Promise<void> {
  if (step.to === null) return;
  const bytes = await request.bytesOf(step.to.sha256);
  if (sha256(bytes) !== step.to.sha256) throw new Error(`kept bytes of ${step.path} have another hash`);
  const { executable } = step.to;
  const like =
    seen.kind === 'file'
      ? { uid: seen.uid, gid: seen.gid, mode: withExecutable(seen.mode, executable) }
      : { executable };
  await request.tree.writeNew(step.temporary, bytes, like);
}

/** Whoever may read may execute, as git does it; the other bits are the person's own. */
function withExecutable(mode: number, executable: boolean): number {
  if (isExecutable(mode) === executable) return mode;
  return executable ? mode | ((mode & 0o444) >> 2) : mode & ~0o111;
}

/** Replaces file after file, each compared right before, then reads all back. Null when everything is as it should be. */
async function carryOut(tree: TreeFiles, journal: Journal): Promise<EscrowError | null> {
  try {
    for (const step of journal.steps) {
      const seen = await tree.look(step.path, maxFileBytes);
      if (placeOf(step, seen) === 'new') continue;
      if (seen.kind === 'unsafe') return unsafePath([`${step.path}: ${seen.reason}`]);
      if (!matches(seen, step.from)) return baseChanged([step.path]);
      if (step.to === null) await tree.remove(step.path);
      else {
        try {
          await tree.replace(step.temporary, step.path, step.from === null);
        } catch (error) {
          // Somebody made a file where a new one was to go.
          if ((error as NodeJS.ErrnoException).code === 'EEXIST') return baseChanged([step.path]);
          throw error;
        }
      }
      await tree.syncFolder(dirname(step.path));
    }
    await discard(tree, journal, 'applied');
    const wrong: RelPath[] = [];
    for (const step of journal.steps) {
      if (placeOf(step, await tree.look(step.path, maxFileBytes)) !== 'new') wrong.push(step.path);
    }
    return wrong.length > 0 ? baseChanged(wrong) : null;
  } catch (error) {
    return typed(tree.root, error);
  }
}

/** Puts back what is in its new state. Returns the files that are in neither. */
async function takeBack(request: IntegrateRequest, journal: Journal): Promise<readonly RelPath[]> {
  const { tree } = request;
  const left: RelPath[] = [];
  await discard(tree, journal, 'applied');
  for (const step of journal.steps) {
    try {
      const seen = await tree.look(step.path, maxFileBytes);
      // Neither ours nor touched by us: where it is not the old state either, somebody else has written it since.
      if (placeOf(step, seen) !== 'new' || matches(seen, step.from)) continue;
      const back: Journal['steps'][number] = {
        path: step.path,
        from: step.to,
        to: step.from,
        temporary: step.temporary,
      };
      await prepare(request, back, seen);
      if (back.to === null) await tree.remove(step.path);
      else await tree.replace(back.temporary, step.path, back.from === null);
      await tree.syncFolder(dirname(step.path));
    } catch {
      left.push(step.path);
    }
  }
  await removeNewFolders(tree, journal);
  for (const step of journal.steps) {
    if (left.includes(step.path)) continue;
    if (placeOf(step, await tree.look(step.path, maxFileBytes)) === 'new' && !sameState(step)) left.push(step.path);
  }
  return left;
}

function sameState(change: FileChange): boolean {
  return JSON.stringify(change.from) === JSON.stringify(change.to);
}

/** Removes temporary files, and the folders that were made for nothing unless the change was applied. */
async function discard(
  tree: TreeFiles,
  journal: Journal,
  end: 'applied' | 'not-applied' = 'not-applied',
): Promise<void> {
  for (const step of journal.steps) {
    if (!basename(step.temporary).startsWith('.escrow-')) throw new Error('not one of our temporary files');
    await tree.remove(step.temporary);
  }
  if (end === 'not-applied') await removeNewFolders(tree, journal);
}

async function removeNewFolders(tree: TreeFiles, journal: Journal): Promise<void> {
  for (const folder of journal.newFolders.toReversed()) await tree.removeFolder(folder);
}

export type Standing = 'old' | 'new' | 'between';

/** Where the files of some changes stand, looked at now: all old, all new, or in between. */
export async function standing(tree: TreeFiles, changes: readonly FileChange[]): Promise<Standing> {
  const places = new Set<string>();
  for (const change of changes) places.add(placeOf(change, await tree.look(change.path, maxFileBytes)));
  if (places.size === 1 && places.has('new')) return 'new';
  return places.size === 1 && places.has('old') ? 'old' : 'between';
}
