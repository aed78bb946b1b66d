import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { EngineFault } from '../../../src/server/sandbox/engine-fault.ts';
import { runOpaqueSteps, type OpaqueRun } from '../../../src/server/sandbox/opaque-steps.ts';
import { watchWritten } from '../../../src/server/sandbox/written-disk.ts';

test('a step whose container does not start leaves no attachment open', async () => {
  const stream = new Duplex({ read: () => undefined });
  const removed: string[] = [];
  const engine: Partial<OpaqueRun['engine']> = {
    flavour: async () => 'docker',
    info: async () => ({ storageRoot: '' }) as Awaited<ReturnType<OpaqueRun['engine']['info']>>,
    create: () => Promise.resolve('made'),
    attach: () => Promise.resolve(stream),
    start: () => Promise.reject(new Error('no such program')),
    inspect: () => Promise.resolve(undefined),
    remove: (id) => {
      removed.push(id);
      return Promise.resolve();
    },
  };
  const run = runOpaqueSteps({
    engine: engine as OpaqueRun['engine'],
    folder: '/nowhere',
    maxBytes: 1_000_000,
    image: 'base',
    steps: [{ argv: ['apt-get', 'update'], network: true }],
    preparer: 'test',
    signal: new AbortController().signal,
    onStep: () => undefined,
  });
  await expect(run).rejects.toThrow('no such program');
  expect(stream.destroyed).toBe(true);
  expect(removed).toEqual(['made']);
});

test('what a step writes is looked at again where an engine did not answer, and by what is free besides', async () => {
  const answers = [() => Promise.reject(new EngineFault('timeout', 'no answer')), async () => 10, async () => 11];
  const engine = { writtenBytes: () => (answers.shift() ?? (async () => 0))() } as unknown as OpaqueRun['engine'];
  const signal = AbortSignal.timeout(20_000);
  const limit = { bytes: 10, reserve: 100, free: async () => null };
  expect(await watchWritten(engine, 'id', limit, signal)).toEqual({ kind: 'written', bytes: 11 });
  expect(await watchWritten(engine, 'id', { ...limit, free: async () => 99 }, signal)).toEqual({
    kind: 'disk',
    free: 99,
  });
  expect(await watchWritten(engine, 'id', limit, AbortSignal.abort())).toBeNull();
});

test('what a step writes is looked at early, once so much less is free that it could be too much', async () => {
  const looks: number[] = [];
  const free = [1000, 999, 995, 989, 989];
  const engine = {
    // Two at first, then more than may be.
    writtenBytes: async () => {
      looks.push(free.length);
      return looks.length === 1 ? 2 : 13;
    },
  } as unknown as OpaqueRun['engine'];
  const limit = { bytes: 12, reserve: 100, free: async () => free.shift() ?? null };
  expect(await watchWritten(engine, 'id', limit, AbortSignal.timeout(20_000))).toEqual({ kind: 'written', bytes: 13 });
  // The second look came at the third glance, when eleven more were gone and ten were left.
  expect(looks).toEqual([4, 0]);
});
