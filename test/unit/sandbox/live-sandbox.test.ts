import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import {
  auditGenesis,
  auditNext,
  auditRequest,
  executorProtocol,
  type AuditEntry,
  type ExecutorRequest,
} from '../../../src/protocol/executor.ts';
import { canonicalJson, sha256 } from '../../../src/protocol/hash.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { AuditChain } from '../../../src/server/sandbox/audit-chain.ts';
import { Channel } from '../../../src/server/sandbox/channel.ts';
import { LiveSandbox } from '../../../src/server/sandbox/live-sandbox.ts';

const nonce = 'a'.repeat(32);
const path = 'a.py' as RelPath;
const bytes = Buffer.from('a = 1\n');
const file = { path, mode: 0o644, size: bytes.length, sha256: sha256(bytes) };

type Said = { readonly frame: Record<string, unknown>; readonly payload?: Buffer };

/** A supervisor that keeps its audit as it must, and says what a test makes of each request. */
class Supervisor {
  readonly stream: Duplex;
  #head = auditGenesis(nonce);
  #log = '';
  #entries = 0;

  constructor(answer: (request: ExecutorRequest, supervisor: Supervisor) => void) {
    this.stream = new Duplex({
      read() {},
      write: (chunk: Buffer | string, _encoding, done) => {
        for (const line of chunk.toString().split('\n')) {
          if (line === '') continue;
          const frame = JSON.parse(line) as ExecutorRequest | { t: 'hello' };
          if (frame.t !== 'hello') answer(frame, this);
          else
            this.say({
              frame: { t: 'welcome', executor: file.sha256, node: 'v24', phase: 'ready', entries: 0, head: this.#head },
            });
        }
        done();
      },
    });
  }

  recorded(request: ExecutorRequest, result: Record<string, unknown>): Said['frame'] {
    const entry: AuditEntry = {
      n: this.#entries + 1,
      at: 1,
      id: request.id,
      op: request.t,
      phase: 'done',
      request: auditRequest(request),
      result,
    };
    this.#entries = entry.n;
    this.#head = auditNext(this.#head, entry);
    this.#log += `${canonicalJson({ ...entry, h: this.#head })}\n`;
    return { t: 'done', id: request.id, result, a: { n: entry.n, at: 1, h: this.#head } };
  }

  /** The log as it is now. */
  audit(id: number): Said {
    const payload = Buffer.from(this.#log);
    const result = { size: payload.length, sha256: sha256(payload), entries: this.#entries, head: this.#head };
    return { frame: { t: 'done', id, result, a: null, p: payload.length }, payload };
  }

  /** All of it in one chunk. */
  say(...said: readonly Said[]): void {
    const lines = said.map(({ frame, payload }) => {
      const line = Buffer.from(`${JSON.stringify({ v: executorProtocol, n: nonce, e: 1, ...frame })}\n`);
      return payload === undefined ? line : Buffer.concat([line, payload, Buffer.from('\n')]);
    });
    const all = Buffer.concat(lines);
    const header = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
    header.writeUInt32BE(all.length, 4);
    this.stream.push(Buffer.concat([header, all]));
  }
}

async function sandboxOver(supervisor: Supervisor): Promise<LiveSandbox> {
  const chain = new AuditChain(nonce, true);
  const channel = new Channel({
    stream: supervisor.stream,
    nonce,
    epoch: 1,
    key: 'c'.repeat(32),
    chain,
    log: () => {},
  });
  await channel.hello();
  return new LiveSandbox({
    name: 'escrow-test',
    engineId: 'test',
    nonce,
    channel,
    chain,
    policy: { readable: [path], writable: [], scratch: [], commands: [] },
    baseline: [file],
    limits: [],
    mayChange: Infinity,
    recording: () => null,
  });
}

test('what a person looks at while the log is on its way does not make a collection disagree', async () => {
  let looked: ExecutorRequest | undefined;
  const supervisor = new Supervisor((request, self) => {
    switch (request.t) {
      case 'read':
        looked = request;
        return;
      case 'quiesce':
        self.say({ frame: self.recorded(request, { empty: true, killed: 0, ms: 1 }) });
        return;
      case 'collect': {
        const payload = Buffer.from(canonicalJson({ files: [file], odd: [], whole: true }));
        const result = { size: payload.length, sha256: sha256(payload) };
        self.say({ frame: { ...self.recorded(request, result), p: payload.length }, payload });
        return;
      }
      case 'audit': {
        const log = self.audit(request.id);
        if (looked === undefined) throw new Error('nobody looked');
        const { size, mode } = file;
        const read = self.recorded(looked, { size, sha256: file.sha256, mode });
        self.say(log, { frame: { ...read, p: size }, payload: bytes });
        return;
      }
      default:
        throw new Error(`not expected: ${request.t}`);
    }
  });
  const sandbox = await sandboxOver(supervisor);
  const looking = sandbox.read(path, 'person');
  expect(await sandbox.collect()).toMatchObject({
    state: 'complete',
    reason: null,
    audit: { agree: true, entries: 2 },
  });
  expect(Buffer.from((await looking).bytes)).toEqual(bytes);
  expect(sandbox.witness.entries).toBe(3);
  sandbox.detach();
});
