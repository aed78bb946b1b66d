// Real file systems in place of a simulated one: a 1 MiB tmpfs that fills up or is read-only. Needs root on Linux.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';

const canMount = ((): boolean => {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'escrow-mount-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], { stdio: 'ignore' });
    execFileSync('umount', [folder]);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
})();

describe.skipIf(!canMount)('on a disk of 1 MiB', () => {
  let home: string;
  let store: Store | undefined;
  const filler = (): string => path.join(home, 'filler');

  beforeEach(() => {
    home = mkdtempSync(path.join(os.tmpdir(), 'escrow-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'tmpfs', home]);
  });
  afterEach(() => {
    store?.close();
    store = undefined;
    execFileSync('umount', [home]);
    rmSync(home, { recursive: true, force: true });
  });

  const fill = (): void => {
    expect(() => writeFileSync(filler(), Buffer.alloc(2 * 1024 * 1024))).toThrow('ENOSPC');
  };

  test('a full disk refuses events and artefacts as StorageFull, keeps the log whole, and recovers with room', async () => {
    store = openStore({ home, now: () => 1 });
    store.append('a', 0, [{ type: 'before', data: {} }]);
    fill();
    const large = { type: 'large', data: 'x'.repeat(100_000) };
    const full = store;
    expect(() => full.append('a', 1, [large])).toThrow(
      expect.objectContaining({ code: 'StorageFull', details: expect.objectContaining({ reason: 'disk' }) }),
    );
    await expect(store.artefacts.put(Buffer.alloc(50_000), 'o')).rejects.toMatchObject({ code: 'StorageFull' });
    expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
    expect(store.load('a').map((e) => e.type)).toEqual(['before']);
    rmSync(filler());
    store.append('a', 1, [large]);
    await store.artefacts.put(Buffer.alloc(50_000), 'o');
    expect(store.verifyChains()).toEqual([]);
    expect(store.head()).toBe(2);
  });

  test('a disk that is full at the start is told as such', () => {
    fill();
    expect(() => openStore({ home, now: () => 1 })).toThrow(expect.objectContaining({ code: 'StorageFull' }));
  });

  test('a read-only disk is StorageUnwritable at the start', () => {
    openStore({ home, now: () => 1 }).close();
    store = openStore({ home, now: () => 1 });
    store.append('a', 0, [{ type: 'one', data: {} }]);
    store.close();
    execFileSync('mount', ['-o', 'remount,ro', home]);
    expect(() => openStore({ home, now: () => 1 })).toThrow(expect.objectContaining({ code: 'StorageUnwritable' }));
    execFileSync('mount', ['-o', 'remount,rw', home]);
  });
});
