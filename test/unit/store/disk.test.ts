// Real file systems in place of a simulated one: a 1 MiB tmpfs that fills up or is read-only. Needs root on Linux.
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { canMount, smallDisk, type SmallDisk, noMount } from '../../fixtures/small-disk.ts';

describe.skipIf(!canMount)(`on a disk of 1 MiB${noMount}`, () => {
  let disk: SmallDisk;
  let home: string;
  let store: Store | undefined;

  beforeEach(async () => {
    disk = await smallDisk(1);
    home = disk.folder;
  });
  afterEach(async () => {
    store?.close();
    store = undefined;
    await disk.dispose();
  });

  test('a full disk refuses events and artefacts as StorageFull, keeps the log whole, and recovers with room', async () => {
    store = openStore({ home, now: () => 1 });
    store.append('a', 0, [{ type: 'before', data: {} }]);
    await disk.fill();
    const large = { type: 'large', data: 'x'.repeat(100_000) };
    const full = store;
    expect(() => full.append('a', 1, [large])).toThrow(
      expect.objectContaining({ code: 'StorageFull', details: expect.objectContaining({ reason: 'disk' }) }),
    );
    await expect(store.artefacts.put(Buffer.alloc(50_000), 'o')).rejects.toMatchObject({ code: 'StorageFull' });
    expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
    expect(store.load('a').map((e) => e.type)).toEqual(['before']);
    await disk.free();
    store.append('a', 1, [large]);
    await store.artefacts.put(Buffer.alloc(50_000), 'o');
    expect(store.verifyChains()).toEqual([]);
    expect(store.head()).toBe(2);
  });

  test('a disk that is full at the start is told as such', async () => {
    await disk.fill();
    expect(() => openStore({ home, now: () => 1 })).toThrow(expect.objectContaining({ code: 'StorageFull' }));
  });

  test('a read-only disk is StorageUnwritable at the start', async () => {
    openStore({ home, now: () => 1 }).close();
    store = openStore({ home, now: () => 1 });
    store.append('a', 0, [{ type: 'one', data: {} }]);
    store.close();
    await disk.readOnly();
    expect(() => openStore({ home, now: () => 1 })).toThrow(expect.objectContaining({ code: 'StorageUnwritable' }));
    await disk.writable();
  });
});
