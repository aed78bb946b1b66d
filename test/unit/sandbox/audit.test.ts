import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  auditGenesis,
  auditNext,
  executorProtocol,
  replayAudit,
  type AuditEntry,
  type AuditMark,
  type ExecutorRequest,
} from '../../../src/protocol/executor.ts';
import { canonicalJson, sha256 } from '../../../src/protocol/hash.ts';
import type { RelPath, Sha256 } from '../../../src/protocol/primitives.ts';
import { AuditChain } from '../../../src/server/sandbox/audit-chain.ts';

const nonce = 'a'.repeat(32);
const request = (id: number, path = 'src/a.py'): Extract<ExecutorRequest, { t: 'read' }> => ({
  v: executorProtocol,
  n: nonce,
  e: 1,
  k: 'b'.repeat(32),
  t: 'read',
  id,
  path: path as RelPath,
  by: 'agent',
});
/** A log as the supervisor writes it, with the marks that its answers carried. */
const logOf = (requests: readonly ExecutorRequest[], result: Record<string, unknown>) => {
  let head = auditGenesis(nonce);
  const marks: AuditMark[] = [];
  const lines = requests.map((one, index) => {
    const { v: _v, n: _n, e: _e, k: _k, t, id, ...parameters } = one;
    const entry: AuditEntry = { n: index + 1, at: index, id, op: t, phase: 'done', request: parameters, result };
    head = auditNext(head, entry);
    marks.push({ n: entry.n, at: entry.at, h: head });
    return canonicalJson({ ...entry, h: head });
  });
  return { text: lines.map((line) => `${line}\n`).join(''), lines, marks, head };
};
const result = { size: 1, sha256: sha256('x'), mode: 420 };
const three = [request(1), request(2, 'src/b.py'), request(3)];

describe('replayAudit', () => {
  it('replays what was written to the same head', () => {
    const log = logOf(three, result);
    expect(replayAudit(log.text, nonce)).toMatchObject({ ok: true, head: log.head });
  });
  it('takes an empty log for the genesis', () => {
    expect(replayAudit('', nonce)).toEqual({ ok: true, entries: [], head: auditGenesis(nonce) });
  });
  it('refuses a log of another sandbox', () => {
    expect(replayAudit(logOf(three, result).text, 'c'.repeat(32)).ok).toBe(false);
  });
  it('refuses any log from which something was cut, changed, repeated or exchanged', () => {
    const log = logOf(three, result);
    const [first, second, third] = log.lines as [string, string, string];
    const forgeries = {
      'the last byte is missing': log.text.slice(0, -1),
      'a line in the middle is missing': `${first}\n${third}\n`,
      'the first line is missing': `${second}\n${third}\n`,
      'two lines are exchanged': `${second}\n${first}\n${third}\n`,
      'a line is repeated': `${first}\n${first}\n`,
      'a result is changed': log.text.replace('"mode":420', '"mode":493'),
      'a line is no JSON': `${first}\nnonsense\n`,
      'a blank line is added': `${first}\n\n${second}\n`,
    };
    for (const [what, text] of Object.entries(forgeries)) expect(replayAudit(text, nonce).ok, what).toBe(false);
  });
  it('notices every changed byte', () => {
    const log = logOf(three, result);
    fc.assert(
      fc.property(fc.nat(log.text.length - 1), fc.integer({ min: 33, max: 126 }), (place, code) => {
        const changed = `${log.text.slice(0, place)}${String.fromCodePoint(code)}${log.text.slice(place + 1)}`;
        const replay = replayAudit(changed, nonce);
        expect(changed === log.text || !replay.ok || replay.head !== log.head).toBe(true);
      }),
    );
  });
});

describe('AuditChain', () => {
  it('comes to the supervisor’s head from its own requests and their answers', () => {
    const log = logOf(three, result);
    const chain = new AuditChain(nonce, true);
    for (const [index, one] of three.entries()) chain.add(log.marks[index] ?? null, 'done', one, result);
    expect([chain.broken, chain.head, chain.entries]).toEqual([null, log.head, 3]);
  });
  it.each([
    ['another request was recorded', () => logOf([request(1, 'src/other.py')], result).marks[0] ?? null],
    ['another result was recorded', () => logOf([request(1)], { ...result, mode: 0 }).marks[0] ?? null],
    ['an entry is missing', () => logOf([request(1), request(2)], result).marks[1] ?? null],
    ['there is no mark', () => null],
    ['the hash is made up', () => ({ n: 1, at: 0, h: 'f'.repeat(64) as Sha256 })],
  ])('breaks for good when %s', (_, mark) => {
    const chain = new AuditChain(nonce, true);
    chain.add(mark(), 'done', request(1), result);
    expect(chain.broken).not.toBeNull();
    const honest = logOf([request(1)], result);
    chain.add(honest.marks[0] ?? null, 'done', request(1), result);
    expect(chain.broken).not.toBeNull();
    expect(chain.head).toBe(auditGenesis(nonce));
  });
});
