import { expect, test } from 'vitest';
import type { ExecutorRequest } from '../../../src/protocol/executor.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { AuditedSupervisor, sandboxOver } from '../../fixtures/audited-supervisor.ts';
import { collect } from '../../fixtures/collected.ts';

const path = 'a.py' as RelPath;
const bytes = Buffer.from('a = 1\n');
const file = { path, mode: 0o644, size: bytes.length, sha256: sha256(bytes) };

test('what a person looks at while the log is on its way does not make a collection disagree', async () => {
  let looked: ExecutorRequest | undefined;
  const supervisor = new AuditedSupervisor((request, self) => {
    switch (request.t) {
      case 'read':
        looked = request;
        return;
      case 'quiesce':
        self.say({ frame: self.recorded(request, { empty: true, killed: 0, ms: 1 }) });
        return;
      case 'collect':
        self.say(self.collected(request, [file]));
        return;
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
  const sandbox = await sandboxOver(supervisor, { readable: [file] });
  const looking = sandbox.read(path, 'person');
  expect(await collect(sandbox)).toMatchObject({
    state: 'complete',
    reason: null,
    audit: { agree: true, entries: 2 },
  });
  expect(Buffer.from((await looking).bytes)).toEqual(bytes);
  expect(sandbox.witness.entries).toBe(3);
  sandbox.detach();
});
