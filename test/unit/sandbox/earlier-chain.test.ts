// A Kernel died, its successor collects: what the dead one had made durable of the audit is held against the log.
import { describe, expect, it } from 'vitest';
import { auditGenesis, auditNext, type AuditEntry } from '../../../src/protocol/executor.ts';
import { canonicalJson, sha256 } from '../../../src/protocol/hash.ts';
import type { FileEntry, RelPath, Sha256 } from '../../../src/protocol/primitives.ts';
import { AuditChain } from '../../../src/server/sandbox/audit-chain.ts';
import { judgeCollection } from '../../../src/server/sandbox/collection.ts';
import type { AuditPoint, Collection } from '../../../src/server/sandbox/port.ts';

const nonce = 'e'.repeat(32);
const file: FileEntry = { path: 'src/a.py' as RelPath, mode: 0o644, size: 3, sha256: sha256('new') };
const before: FileEntry = { ...file, sha256: sha256('old') };

type Draft = Pick<AuditEntry, 'op' | 'phase' | 'request' | 'result'>;
const read: Draft = { op: 'read', phase: 'done', request: { path: 'src/a.py' }, result: {} };
const write: Draft = {
  op: 'write',
  phase: 'done',
  request: { path: 'src/a.py', expected: sha256('old'), size: 3, sha256: sha256('new') },
  result: { sha256: sha256('new') },
};
const run: Draft = { op: 'run', phase: 'started', request: { command: 'test' }, result: {} };
const deny: Draft = { op: 'deny', phase: 'done', request: { request: 'x', reason: 'y' }, result: {} };
const quiesce: Draft = { op: 'quiesce', phase: 'done', request: {}, result: { empty: true } };

/** The log as the executor wrote it, with the head after each entry. */
function logOf(drafts: readonly Draft[]): { bytes: Buffer; heads: Sha256[]; entries: AuditEntry[] } {
  const heads: Sha256[] = [];
  const entries = drafts.map((draft, i): AuditEntry => ({ n: i + 1, at: 1000 + i, id: i + 1, ...draft }));
  let head = auditGenesis(nonce);
  const lines = entries.map((entry) => {
    head = auditNext(head, entry);
    heads.push(head);
    return `${canonicalJson({ ...entry, h: head })}\n`;
  });
  return { bytes: Buffer.from(lines.join('')), heads, entries };
}

/** Collects under a Kernel that took over when the log had all of `earlier`, and added `own` itself. */
function collect(
  earlier: readonly Draft[],
  recorded: (heads: readonly Sha256[]) => AuditPoint,
  own: readonly Draft[] = [quiesce],
): Collection {
  const { bytes, heads, entries } = logOf([...earlier, ...own]);
  const chain = new AuditChain(nonce, false);
  chain.adopt(earlier.length, heads[earlier.length - 1] ?? auditGenesis(nonce), recorded(heads));
  // What this Kernel saw itself, as its channel would have added it.
  for (const entry of entries.slice(earlier.length)) {
    chain.add(
      { n: entry.n, at: entry.at, h: heads[entry.n - 1]! },
      entry.phase,
      { t: entry.op, id: entry.id ?? 0, ...entry.request } as never,
      entry.result,
    );
  }
  return judgeCollection(
    {
      via: 'channel',
      fault: null,
      quiet: true,
      report: { files: [file], odd: [], whole: true },
      files: [file],
      auditLog: bytes,
      executorHead: heads.at(-1) ?? null,
    },
    { nonce, baseline: [before], policy: { writable: [file.path] }, chain },
  );
}

const at =
  (entries: number) =>
  (heads: readonly Sha256[]): AuditPoint => ({
    entries,
    head: entries === 0 ? null : (heads[entries - 1] ?? null),
  });

describe('what an earlier Kernel recorded of the audit', () => {
  it('agrees with the log: the collection is complete', () => {
    const collection = collect([read, write, read], at(3));
    expect(collection.audit.agree).toBe(true);
    expect(collection).toMatchObject({ reason: null, state: 'complete', equalsAudit: true });
  });

  it('is behind the log by what cannot change anything: still complete', () => {
    expect(collect([read, write, read, deny], at(2))).toMatchObject({ state: 'complete', reason: null });
  });

  it.each([
    ['a write', write],
    ['a command', run],
  ])('is behind the log by %s: not complete, and said how many', (_, acted) => {
    const collection = collect([read, acted], at(1));
    expect(collection.audit.agree).toBe(false);
    expect(collection).toMatchObject({ state: 'partial', reason: 'audit-beyond-record: 1' });
  });

  it('nothing at all, and the log acted: not complete', () => {
    expect(collect([read, write], at(0)).reason).toBe('audit-beyond-record: 1');
  });

  it('nothing at all, and the log only looked: complete', () => {
    expect(collect([read], at(0)).audit.agree).toBe(true);
  });

  it('another head at the same place: the log was changed under it', () => {
    const collection = collect([read, write], () => ({ entries: 2, head: sha256('another') }));
    expect(collection).toMatchObject({ state: 'partial', reason: 'audit-disagrees' });
  });

  it('more entries than the log has: the log was cut', () => {
    expect(collect([read, write], (heads) => ({ entries: 5, head: heads[1]! })).reason).toBe('audit-disagrees');
  });

  it('does not excuse what this Kernel itself did and the log does not have', () => {
    const { heads } = logOf([read, write]);
    const chain = new AuditChain(nonce, false);
    chain.adopt(2, heads[1]!, { entries: 2, head: heads[1]! });
    chain.add({ n: 3, at: 1, h: sha256('x') }, 'done', { t: 'quiesce', id: 3 } as never, {});
    expect(chain.broken).not.toBeNull();
  });
});
