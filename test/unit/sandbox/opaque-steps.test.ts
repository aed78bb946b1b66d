import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { runOpaqueSteps, type OpaqueRun } from '../../../src/server/sandbox/opaque-steps.ts';

test('a step whose container does not start leaves no attachment open', async () => {
  const stream = new Duplex({ read: () => undefined });
  const removed: string[] = [];
  const engine: Partial<OpaqueRun['engine']> = {
    flavour: async () => 'docker',
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
