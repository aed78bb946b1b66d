// Random and mutated frames against a real supervisor: it answers or refuses, goes on, and its record stays whole. The
// seed is printed; ESCROW_FUZZ_SEED repeats a run.
import { randomBytes, randomInt } from 'node:crypto';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { executorProtocol, replayAudit, resync, ToExecutor } from '../../src/protocol/executor.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import { fits } from '../../src/protocol/shape.ts';
import { collect } from '../fixtures/collected.ts';
import { command, file, pathOf, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';
import { supervisorClient } from '../fixtures/supervisor-client.ts';

const seed = Number(process.env['ESCROW_FUZZ_SEED'] ?? randomInt(2 ** 31));
const rounds = process.env['ESCROW_TEST_FULL'] === '1' ? 2_000 : 300;

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const paths = fc.oneof(
  fc.constantFrom(
    'src/a.py',
    'src/b.py',
    'test/t.py',
    'scratch/x',
    '../etc/passwd',
    '/etc/passwd',
    '',
    'src',
    'src/a.py/b',
  ),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }),
);
const hash = fc.constantFrom(sha256('old\n'), sha256('x'), sha256(''));
const size = fc.nat(3);
/** Requests that the protocol allows, by kind; what they ask for may be denied all the same. */
const wellFormed = fc.oneof(
  fc.record({ t: fc.constant('read'), path: paths, by: fc.constantFrom('agent', 'person') }),
  fc.record({ t: fc.constant('write'), path: paths, expected: fc.oneof(hash, fc.constant(null)), size, sha256: hash }),
  fc.record({ t: fc.constant('place'), path: paths, mode: fc.nat(0o777), size, sha256: hash }),
  fc.record({ t: fc.constant('data'), seq: fc.nat(1), p: fc.integer({ min: 1, max: 3 }) }),
  fc.record({ t: fc.constant('run'), command: fc.constantFrom('true', 'rm') }),
  fc.record({ t: fc.constant('deny'), request: fc.string({ maxLength: 30 }), reason: fc.string({ maxLength: 30 }) }),
  fc.record({ t: fc.constant('open'), size, sha256: hash }),
  fc.record({ t: fc.constantFrom('cancel', 'manifest', 'seal', 'probe', 'collect') }),
);
const odd = fc.oneof(
  fc.constantFrom(null, -1, 1.5, 2 ** 31, Number.MAX_SAFE_INTEGER, true, '', 'x'.repeat(5000)),
  fc.constant({}),
  fc.constant([]),
);
const mutation = fc.record({
  key: fc.constantFrom('t', 'path', 'size', 'sha256', 'p', 'id', 'v', 'e', 'n', 'extra'),
  value: odd,
});
/** What comes behind a frame: what it says, more, less, or something that looks like a frame. */
const bytes = fc.constantFrom('', 'x', 'old', 'old\n', '{}\n', 'x'.repeat(70_000));
const request = fc.record({ body: wellFormed, mutation: fc.option(mutation, { freq: 2 }), bytes });

describe('a supervisor', () => {
  it(`outlives ${rounds} frames of any form, and does nothing that was not declared (seed ${seed})`, async () => {
    const sandbox = await bench.provision({
      files: [file('src/a.py', 'old\n'), file('test/t.py', 'protected\n')],
      readable: [pathOf('src/a.py')],
      writable: [pathOf('src/b.py')],
      scratch: [pathOf('scratch')],
      commands: [command('true', ['true'])],
    });
    sandbox.detach();
    const client = await supervisorClient(bench.engine, sandbox.engineId);
    const key = randomBytes(16).toString('hex');
    try {
      client.say({ e: 2, k: key, t: 'hello' });
      await client.until(({ t, e }) => t === 'welcome' && e === 2);
      let id = 0;
      const kinds = new Map<string, number>();
      for (const { body, mutation: change, bytes: behind } of fc.sample(request, { numRuns: rounds, seed })) {
        // A part belongs to the request before it.
        if (body.t !== 'data') id += 1;
        const whole = {
          v: executorProtocol,
          n: client.nonce,
          e: 2,
          k: key,
          id,
          ...body,
          ...(change === null ? {} : { [change.key]: change.value }),
        };
        const valid = fits(ToExecutor, whole);
        kinds.set(`${body.t} ${valid}`, (kinds.get(`${body.t} ${valid}`) ?? 0) + 1);
        client.raw(`\n${JSON.stringify(whole)}\n${behind}`);
      }
      // Both kinds were among them.
      expect([...kinds.keys()].some((kind) => kind.endsWith('true'))).toBe(true);
      expect([...kinds.keys()].some((kind) => kind.endsWith('false'))).toBe(true);
      // Whatever was announced and never came.
      client.raw(resync);
      client.say({ e: 3, k: key, t: 'hello' });
      await client.until(({ t, e }) => t === 'welcome' && e === 3);
    } finally {
      client.leave();
    }
    const again = await bench.service.reattach(
      bench.spec({
        files: [file('src/a.py', 'old\n'), file('test/t.py', 'protected\n')],
        writable: [pathOf('src/b.py')],
      }),
      sandbox.engineId,
      4,
      sandbox.witness,
    );
    const collection = await collect(again!);
    const log = textOf(collection?.auditLog ?? new Uint8Array());
    // The record replays to its head, and nothing but the one writable file may have come.
    const nonce = client.nonce;
    expect(replayAudit(log, nonce).ok).toBe(true);
    expect(collection?.violations).toEqual([]);
    again?.detach();
  });
});
