import { afterEach, expect, test } from 'vitest';
import { HealthWatch, type HealthWatchDeps } from '../../../src/server/health.ts';
import { canMount, smallDisk, type SmallDisk, noMount } from '../../fixtures/small-disk.ts';

let disk: SmallDisk | undefined;
afterEach(async () => {
  await disk?.dispose();
  disk = undefined;
});

/** As far as the storage is looked at: nothing else of a Kernel is asked. */
function watchOf(home: string): HealthWatch {
  const store = { artefacts: { total: () => 0 }, head: () => 3 };
  const settings = { inferenceHost: 'http://127.0.0.1:11434' };
  return new HealthWatch({ store, settings, home, now: () => 60 } as unknown as HealthWatchDeps);
}

test.skipIf(!canMount)(`a disk that is small, full or read-only is three different things${noMount}`, async () => {
  disk = await smallDisk(1);
  const health = watchOf(disk.folder);
  expect(health.storage()).toMatchObject({ state: 'degraded', code: 'disk_low', events: 3 });
  await disk.fill();
  expect(health.storage()).toMatchObject({ state: 'unavailable', code: 'disk_full' });
  expect(health.storage().next).toContain(disk.folder);
  await disk.free();
  expect(health.storage().code).toBe('disk_low');
  await disk.readOnly();
  expect(health.storage()).toMatchObject({ state: 'unavailable', code: 'not_writable' });
});
