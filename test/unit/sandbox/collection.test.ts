import { describe, expect, it } from 'vitest';
import { auditGenesis, auditNext, type AuditEntry } from '../../../src/protocol/executor.ts';
import { canonicalJson, sha256 } from '../../../src/protocol/hash.ts';
import type { FileEntry, RelPath } from '../../../src/protocol/primitives.ts';
import { judgeCollection, type Expectation, type Gathered } from '../../../src/server/sandbox/collection.ts';

const nonce = 'd'.repeat(32);
const placed = (path: string, text: string, mode = 0o644): FileEntry => ({
  path: path as RelPath,
  mode,
  size: text.length,
  sha256: sha256(text),
});
const baseline = [placed('src/a.py', 'old'), placed('test/a_test.py', 'test'), placed('run.sh', 'go', 0o755)];
const after = placed('src/a.py', 'new');

const write: AuditEntry = {
  n: 1,
  at: 1,
  id: 1,
  op: 'write',
  phase: 'done',
  request: { path: 'src/a.py', expected: sha256('old'), size: 3, sha256: sha256('new') },
  result: { sha256: sha256('new') },
};
const head = auditNext(auditGenesis(nonce), write);
const log = Buffer.from(`${canonicalJson({ ...write, h: head })}\n`);
const files = [after, baseline[1]!, baseline[2]!];

const gathered = (parts: Partial<Gathered> = {}): Gathered => ({
  via: 'channel',
  fault: null,
  quiet: true,
  report: { files, odd: [], whole: true },
  files: [after],
  auditLog: log,
  executorHead: head,
  ...parts,
});
const expected = (parts: Partial<Expectation> = {}): Expectation => ({
  nonce,
  baseline,
  policy: { writable: ['src/a.py' as RelPath, 'src/new.py' as RelPath] },
  chain: { head, entries: 1, broken: null, witnessed: true, unseen: [] },
  ...parts,
});
const report = (...list: FileEntry[]) => ({ files: list, odd: [], whole: true });

describe('judgeCollection', () => {
  it('calls a collection complete when everything was seen, read and agrees', () => {
    expect(judgeCollection(gathered(), expected())).toMatchObject({
      state: 'complete',
      reason: null,
      missing: ['src/new.py'],
      equalsAudit: true,
      violations: [],
      audit: { agree: true, entries: 1 },
    });
  });

  const partial: Record<string, [Partial<Gathered>, Partial<Expectation>, string]> = {
    'workers were not seen gone': [{ quiet: false }, {}, 'not-quiet'],
    'the manifest was cut': [{ report: { files, odd: [], whole: false } }, {}, 'manifest-cut'],
    'a file could not be read': [{ files: [] }, {}, 'not-read: src/a.py'],
    'a file changed on the way': [{ files: [placed('src/a.py', 'nex')] }, {}, 'changed-on-the-way: src/a.py'],
    'the audit is missing': [{ auditLog: null }, {}, 'no-audit'],
    'the audit is cut': [{ auditLog: log.subarray(0, -1) }, {}, 'audit-damaged'],
    'the audit is forged': [{ auditLog: Buffer.from(log.toString().replace('"at":1', '"at":2')) }, {}, 'audit-damaged'],
    'the audit is empty': [{ auditLog: Buffer.alloc(0) }, {}, 'audit-disagrees'],
    'the executor names another head': [{ executorHead: sha256('x') }, {}, 'audit-disagrees'],
    'the Kernel’s chain is behind': [
      {},
      { chain: { head: auditGenesis(nonce), entries: 0, broken: null, witnessed: true, unseen: [] } },
      'audit-disagrees',
    ],
    'the Kernel’s chain broke': [
      {},
      { chain: { head, entries: 1, broken: 'entry 2', witnessed: true, unseen: [] } },
      'audit: entry 2',
    ],
    'another Kernel saw the beginning': [
      {},
      { chain: { head, entries: 1, broken: null, witnessed: false, unseen: [] } },
      'audit-not-witnessed',
    ],
    'reading stopped': [{ fault: 'channel: gone' }, {}, 'channel: gone'],
  };
  it.each(Object.entries(partial))('is partial, with the bytes kept, when %s', (_, [got, want, reason]) => {
    const collection = judgeCollection(gathered(got), expected(want));
    expect(collection.state).toBe('partial');
    expect(collection.reason).toContain(reason);
    expect(collection.audit.agree).toBe(collection.reason?.includes('audit') !== true);
    if (got.files === undefined) expect(collection.files).toEqual([after]);
  });

  it('has nothing when nothing could be read', () => {
    const nothing = gathered({
      report: null,
      files: [],
      auditLog: null,
      executorHead: null,
      via: 'none',
      fault: 'gone',
    });
    expect(judgeCollection(nothing, expected())).toMatchObject({ state: 'none', equalsAudit: null, via: 'none' });
  });

  it('sees bytes that no audited write made', () => {
    const forged = placed('src/a.py', 'evil');
    const collection = judgeCollection(
      gathered({ files: [forged], report: report(forged, baseline[1]!, baseline[2]!) }),
      expected(),
    );
    expect(collection.equalsAudit).toBe(false);
  });
  it('sees a new file that no audited write made', () => {
    const added = placed('src/new.py', 'x');
    const collection = judgeCollection(
      gathered({ files: [after, added], report: report(...files, added) }),
      expected(),
    );
    expect(collection.equalsAudit).toBe(false);
  });

  it.each([
    [
      'a changed protected file',
      report(after, placed('test/a_test.py', 'weak'), baseline[2]!),
      ['changed: test/a_test.py'],
    ],
    ['a vanished file', report(after, baseline[2]!), ['vanished: test/a_test.py']],
    ['a file that appeared', report(...files, placed('conftest.py', 'x')), ['appeared: conftest.py']],
    ['a changed mode', report(after, baseline[1]!, placed('run.sh', 'go', 0o644)), ['mode changed: run.sh']],
    ['a link', { ...report(...files), odd: ['src/link'] }, ['no plain file: src/link']],
  ])('names %s', (_, seen, violations) => {
    expect(judgeCollection(gathered({ report: seen }), expected()).violations).toEqual(violations);
  });
});
