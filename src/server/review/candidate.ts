import type { FrozenContract } from '../../protocol/contract.ts';
import { digestOf } from '../../protocol/hash.ts';
import type { ArtefactRef, CandidateDigest, FileEntry, RelPath } from '../../protocol/primitives.ts';
import type { CandidateFile } from '../../protocol/views.ts';

/** A candidate without its bytes, which are artefacts. */
export interface CandidateContent {
  readonly digest: CandidateDigest;
  /** What differs from the snapshot, by path. */
  readonly files: readonly CandidateFile[];
}

/** As git: a file is executable or it is not. Other bits are the sandbox's or the machine's own business. */
export function isExecutable(mode: number): boolean {
  return (mode & 0o111) !== 0;
}

/** A writable file as it was collected; its bytes are an artefact. */
export interface CollectedFile {
  readonly path: RelPath;
  readonly mode: number;
  readonly ref: ArtefactRef;
}

/**
 * What collected writable files amount to against the snapshot; null when nothing changed. `missing` are the writable
 * files that were seen not to exist; one that is in neither list could not be read, and is no change. The digest is taken
 * over the contract's digest and every writable file, changed or not, so that equal bytes under one contract are one
 * candidate, whoever made them. Throws on files that the contract does not let anybody write. Pure.
 */
export function candidateOf(
  contract: FrozenContract,
  collected: readonly CollectedFile[],
  missing: readonly RelPath[],
): CandidateContent | null {
  const base = new Map(contract.files.map((file) => [file.path, file]));
  const found = new Map(collected.map((file) => [file.path, file]));
  const absent = new Set(missing);
  const writable = new Set(contract.writable.map((w) => w.path));
  for (const path of [...found.keys(), ...absent]) {
    if (!writable.has(path)) throw new Error(`${path} was collected but is not writable`);
    if (found.has(path) && absent.has(path)) throw new Error(`${path} was collected and missing`);
  }
  if (found.size !== collected.length) throw new Error('a file was collected twice');

  const files: CandidateFile[] = [];
  const manifest: (ArtefactRef & { readonly path: RelPath; readonly executable: boolean })[] = [];
  for (const path of [...writable].toSorted((a, b) => (a < b ? -1 : 1))) {
    const before = base.get(path);
    const after = found.get(path);
    if (after !== undefined) {
      manifest.push({ path, executable: isExecutable(after.mode), sha256: after.ref.sha256, size: after.ref.size });
    }
    const changed = after === undefined && !absent.has(path) ? null : changeOf(path, before, after);
    if (changed !== null) files.push(changed);
  }
  if (files.length === 0) return null;
  const digest = digestOf({
    version: 1,
    contract: digestOf(contract),
    files: manifest,
    absent: [...absent].toSorted(),
    unread: [...writable].filter((path) => !found.has(path) && !absent.has(path)).toSorted(),
  }) as CandidateDigest;
  return { digest, files };
}

function changeOf(
  path: RelPath,
  before: FileEntry | undefined,
  after: CollectedFile | undefined,
): CandidateFile | null {
  if (before === undefined && after === undefined) return null;
  if (before !== undefined && after !== undefined) {
    const same = before.sha256 === after.ref.sha256 && isExecutable(before.mode) === isExecutable(after.mode);
    if (same) return null;
  }
  return {
    path,
    change: before === undefined ? 'added' : after === undefined ? 'deleted' : 'modified',
    before: before === undefined ? null : { sha256: before.sha256, size: before.size },
    after: after?.ref ?? null,
    beforeMode: before?.mode ?? null,
    afterMode: after?.mode ?? null,
  };
}
