import {
  auditGenesis,
  auditNext,
  placedMode,
  replayAudit,
  type AuditEntry,
  type Policy,
} from '../../protocol/executor.ts';
import type { WorkspaceReport } from '../../protocol/executor-answers.ts';
import type { FileEntry, RelPath, Sha256 } from '../../protocol/primitives.ts';
import type { ChainSnapshot } from './audit-chain.ts';
import type { Collection } from './port.ts';

/** What could be read out, whatever the way. Null: it could not be read. */
export interface Gathered {
  readonly via: Collection['via'];
  /** Why reading stopped early; null where it did not. */
  readonly fault: string | null;
  readonly quiet: boolean;
  readonly report: WorkspaceReport | null;
  /** Each with the hash of its bytes, computed by the Kernel as they came. */
  readonly files: readonly FileEntry[];
  readonly auditLog: Uint8Array | null;
  readonly executorHead: Sha256 | null;
}

/** The Kernel's own knowledge to compare it with. */
export interface Expectation {
  readonly nonce: string;
  /** What was placed, by hash. */
  readonly baseline: readonly FileEntry[];
  readonly policy: Pick<Policy, 'writable'>;
  readonly chain: ChainSnapshot;
}

/**
 * Judges what was collected. Complete is: the workers were seen gone, every file was read and re-hashed, the log replays
 * to the executor's head, and that head is the one that the Kernel computed from its own requests and their answers.
 */
export function judgeCollection(gathered: Gathered, expected: Expectation): Collection {
  const { report, auditLog, executorHead } = gathered;
  const replay = auditLog === null ? null : replayAudit(Buffer.from(auditLog).toString('utf8'), expected.nonce);
  const unseen = replay === null ? null : unseenFault(replay.entries, expected);
  const agree =
    expected.chain.witnessed &&
    unseen === null &&
    expected.chain.broken === null &&
    replay?.ok === true &&
    replay.head === expected.chain.head &&
    replay.entries.length === expected.chain.entries &&
    (executorHead === null || executorHead === replay.head);
  const inManifest = new Map<string, FileEntry>(report?.files.map((file) => [file.path, file]));
  const damaged = gathered.files.filter((file) => inManifest.get(file.path)?.sha256 !== file.sha256);
  const missing = expected.policy.writable.filter((path) => report !== null && !inManifest.has(path));
  const unread = expected.policy.writable.filter(
    (path) => inManifest.has(path) && !gathered.files.some((file) => file.path === path),
  );
  const reasons = [
    gathered.fault,
    gathered.quiet ? null : 'not-quiet',
    report === null ? 'no-manifest' : report.whole ? null : 'manifest-cut',
    unread.length > 0 ? `not-read: ${unread.join(' ')}` : null,
    damaged.length > 0 ? `changed-on-the-way: ${damaged.map(({ path }) => path).join(' ')}` : null,
    auditLog === null ? 'no-audit' : null,
    replay?.ok === false ? 'audit-damaged' : null,
    expected.chain.witnessed ? null : 'audit-not-witnessed',
    expected.chain.broken === null ? null : `audit: ${expected.chain.broken}`,
    unseen,
    agree || unseen !== null || !expected.chain.witnessed || auditLog === null ? null : 'audit-disagrees',
  ].filter((reason) => reason !== null);
  const nothing = report === null && gathered.files.length === 0 && auditLog === null;
  return {
    state: nothing ? 'none' : reasons.length === 0 ? 'complete' : 'partial',
    reason: reasons.length === 0 ? null : reasons.join('; '),
    files: gathered.files,
    missing,
    manifest: report?.files ?? [],
    audit: {
      entries: replay?.entries.length ?? 0,
      kernelHead: expected.chain.head,
      executorHead: executorHead ?? replay?.head ?? null,
      agree,
    },
    auditLog,
    equalsAudit: replay?.ok === true && report !== null ? equalsAudit(replay.entries, expected, inManifest) : null,
    violations: report === null ? [] : violationsIn(report, expected),
    via: gathered.via,
  };
}

/** What can change the workspace or make it change: the only entries that must not lie behind the recorded point. */
const acting: ReadonlySet<AuditEntry['op']> = new Set<AuditEntry['op']>(['write', 'run']);

/**
 * Where the log grew unseen, it must go through the point that was recorded before, and from there to where this Kernel
 * went on nothing may have acted. Null when that holds, or when everything was seen.
 */
function unseenFault(entries: readonly AuditEntry[], expected: Expectation): string | null {
  for (const { recorded, entries: until } of expected.chain.unseen) {
    const seen = entries.slice(0, recorded.entries);
    const head = seen.reduce(auditNext, auditGenesis(expected.nonce));
    if (seen.length < recorded.entries || (recorded.head !== null && head !== recorded.head)) return 'audit-disagrees';
    // What was refused has done nothing.
    const later = entries.slice(recorded.entries, until).filter(({ phase }) => phase !== 'failed');
    const acted = later.filter((entry) => acting.has(entry.op));
    if (acted.length > 0) return `audit-beyond-record: ${acted.length}`;
  }
  return null;
}

/** Writable files are what was placed, changed by exactly the audited writes. */
function equalsAudit(
  entries: readonly AuditEntry[],
  expected: Expectation,
  found: ReadonlyMap<string, FileEntry>,
): boolean {
  const hashes = new Map<string, string>(
    expected.baseline
      .filter(({ path }) => expected.policy.writable.includes(path))
      .map(({ path, sha256: hash }) => [path, hash]),
  );
  for (const entry of entries) {
    const { path } = entry.request;
    const after = entry.result['sha256'];
    if (entry.op === 'write' && entry.phase === 'done' && typeof path === 'string' && typeof after === 'string') {
      hashes.set(path, after);
    }
  }
  return expected.policy.writable.every((path) => found.get(path)?.sha256 === hashes.get(path));
}

/** Everything else must be as it was placed, and there may be nothing else. */
function violationsIn(report: WorkspaceReport, expected: Expectation): string[] {
  const writable = new Set<string>(expected.policy.writable);
  const baseline = new Map<string, FileEntry>(expected.baseline.map((file) => [file.path, file]));
  const found = new Set<string>(report.files.map(({ path }) => path));
  const changed = report.files.flatMap((file) => {
    const before = baseline.get(file.path);
    if (before === undefined) return writable.has(file.path) ? [] : [`appeared: ${file.path}`];
    // The exec-based reader knows the modes on disk only.
    const sameMode = file.mode === before.mode || file.mode === placedMode(before.mode);
    if (!sameMode) return [`mode changed: ${file.path}`];
    return writable.has(file.path) || before.sha256 === file.sha256 ? [] : [`changed: ${file.path}`];
  });
  const vanished = report.whole
    ? [...baseline.keys()].filter((path) => !found.has(path)).map((path) => `vanished: ${path}`)
    : [];
  return [...changed, ...vanished, ...report.odd.map((path) => `no plain file: ${path}`)];
}

/** The mode that a collected file has in terms of the snapshot. */
export function declaredMode(
  path: RelPath,
  mode: number,
  baseline: readonly Pick<FileEntry, 'path' | 'mode'>[],
): number {
  const before = baseline.find((file) => file.path === path);
  return before !== undefined && placedMode(before.mode) === mode ? before.mode : mode;
}
