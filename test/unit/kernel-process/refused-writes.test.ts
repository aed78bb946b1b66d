// A real Kernel whose writes the system begins to refuse (adversarial 53): whoever asks is told so by name, nothing is
// on record of what was refused, and the same Kernel goes on once writes work again.
import { statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import { canFailCalls, failCalls, noFailingCalls } from '../../fixtures/failing-calls.ts';
import { allowWrites, canRefuseWrites, refuseWrites, noRefusedWrites } from '../../fixtures/failing-writes.ts';
import { startTestKernel } from '../../fixtures/kernel.ts';

const cleanUp: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

test.skipIf(!canRefuseWrites)(
  `a Kernel that can no longer write its log says so, claims nothing, and goes on${noRefusedWrites}`,
  async () => {
    const repo = await exampleRepo();
    cleanUp.push(() => repo.dispose());
    const { home, pid, kernel, dispose } = await startTestKernel();
    cleanUp.push(dispose);
    const contract = repo.contract;
    const plan = 'a'.repeat(64);
    const reviewer = { name: 'test', channel: 'script' as const };
    const heard: string[] = [];
    kernel.on('evidence/events', ({ events }) => heard.push(...events.map(({ type }) => type)));
    const before = await kernel.call('evidence/subscribe', { lastSeenSeq: 0 });

    refuseWrites(pid, statSync(path.join(home, 'escrow.db-wal')).size);
    const refused = {
      code: 'StorageUnwritable',
      details: { reason: 'unwritable', cause: 'SQLITE_IOERR_WRITE' },
      next: expect.stringContaining('disk'),
    };
    await expect(kernel.call('contract/freeze', { path: contract })).rejects.toMatchObject(refused);
    await expect(kernel.call('image/decline', { plan, reviewer })).rejects.toMatchObject(refused);
    expect((await kernel.call('contract/list', {})).contracts).toEqual([]);
    expect(await kernel.call('evidence/subscribe', { lastSeenSeq: 0 })).toEqual(before);
    expect(heard).toEqual([]);

    allowWrites(pid);
    const { digest } = await kernel.call('contract/freeze', { path: contract });
    expect((await kernel.call('contract/list', {})).contracts).toMatchObject([{ digest }]);
    expect((await kernel.call('kernel/verify', {})).broken).toEqual([]);
  },
);

test.skipIf(!canFailCalls)(`so does one whose disk fails the syncs of its log${noFailingCalls}`, async () => {
  const repo = await exampleRepo();
  cleanUp.push(() => repo.dispose());
  const { home, pid, kernel, dispose } = await startTestKernel();
  cleanUp.push(dispose);
  const heard: string[] = [];
  kernel.on('evidence/events', ({ events }) => heard.push(...events.map(({ type }) => type)));
  const before = await kernel.call('evidence/subscribe', { lastSeenSeq: 0 });

  const faults = await failCalls(pid, { calls: ['fsync', 'fdatasync'], files: [path.join(home, 'escrow.db-wal')] });
  cleanUp.push(() => faults.stop());
  await expect(kernel.call('contract/freeze', { path: repo.contract })).rejects.toMatchObject({
    code: 'StorageUnwritable',
    details: { reason: 'unwritable', cause: 'SQLITE_IOERR_FSYNC' },
    next: expect.stringContaining('disk'),
  });
  expect((await kernel.call('contract/list', {})).contracts).toEqual([]);
  expect(await kernel.call('evidence/subscribe', { lastSeenSeq: 0 })).toEqual(before);
  expect(heard).toEqual([]);

  await faults.stop();
  const { digest } = await kernel.call('contract/freeze', { path: repo.contract });
  expect((await kernel.call('contract/list', {})).contracts).toMatchObject([{ digest }]);
  expect((await kernel.call('kernel/verify', {})).broken).toEqual([]);
});
