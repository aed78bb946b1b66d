import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { restoreBackup } from '../../../src/server/store/backup.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { StaleEpoch, type Store } from '../../../src/server/store/port.ts';

const opener = path.resolve(import.meta.dirname, '../../fixtures/store-opener.ts');
let home: string;
let outside: string;
let stores: Store[] = [];
const open = (): Store => {
  const store = openStore({ home, now: Date.now });
  stores.push(store);
  return store;
};
const closeAll = (): void => {
  for (const store of stores.splice(0)) store.close();
};
const put = (store: Store, text: string, owner = 'o') => store.artefacts.put(Buffer.from(text), owner);
const artefactFile = (folder: string, sha256: string): string =>
  path.join(folder, 'artefacts', sha256.slice(0, 2), sha256);

beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-backup-'));
  outside = mkdtempSync(path.join(os.tmpdir(), 'escrow-backups-'));
  stores = [];
});
afterEach(() => {
  closeAll();
  rmSync(home, { recursive: true, force: true });
  rmSync(outside, { recursive: true, force: true });
});

describe('a backup', () => {
  test('holds the log and the artefacts of one moment, as it said before', async () => {
    const store = open();
    store.append('a', 0, [{ type: 'one', data: {} }]);
    const ref = await put(store, 'bytes');
    const preview = store.previewBackup();
    expect(preview).toMatchObject({ events: 1, artefacts: 1, artefactBytes: 5 });
    const folder = path.join(outside, 'b');
    expect(await store.backUp(folder)).toMatchObject({ folder, events: 1, artefacts: 1, artefactBytes: 5 });
    expect(readFileSync(artefactFile(folder, ref.sha256), 'utf8')).toBe('bytes');
    store.append('a', 1, [{ type: 'later', data: {} }]);
  });

  test('loses no bytes to a retention that comes while it is made', async () => {
    const store = open();
    const { sha256 } = await put(store, 'bytes');
    const event = { type: 'retention.applied', data: {} };
    const folder = path.join(outside, 'b');
    const backup = store.backUp(folder);
    await expect(store.letGo(['o'], event)).rejects.toMatchObject({ code: 'WrongState' });
    await backup;
    expect(readFileSync(artefactFile(folder, sha256), 'utf8')).toBe('bytes');
    expect(await store.letGo(['o'], event)).toEqual({ artefacts: 1, bytes: 5 });
  });

  test('goes into no folder that holds something', async () => {
    writeFileSync(path.join(outside, 'mine'), 'x');
    await expect(open().backUp(outside)).rejects.toMatchObject({ code: 'UnsafePath' });
    expect(readdirSync(outside)).toEqual(['mine']);
  });
});

describe('restoring', () => {
  /** A home with a backup of its first event and artefact, and a second event after it. */
  async function made(): Promise<{ folder: string; sha256: string }> {
    const store = open();
    store.append('a', 0, [{ type: 'one', data: {} }]);
    const { sha256 } = await put(store, 'bytes');
    const folder = path.join(outside, 'b');
    await store.backUp(folder);
    store.append('a', 1, [{ type: 'two', data: {} }]);
    await put(store, 'later bytes');
    closeAll();
    return { folder, sha256 };
  }

  test('brings the backup back, keeps what was there, and lets no Kernel of before write', async () => {
    const { folder, sha256 } = await made();
    const former = open();
    const epoch = former.epoch;
    const restored = await restoreBackup(home, folder, Date.now);
    const store = open();
    expect(store.load('a').map((e) => e.type)).toEqual(['one']);
    expect(Buffer.from(await store.artefacts.get(sha256 as never)).toString()).toBe('bytes');
    expect(await store.artefacts.verify()).toEqual({ checked: 1, faults: [] });
    expect(store.epoch).toBeGreaterThan(epoch);
    expect(readdirSync(restored.former).toSorted()).toContain('escrow.db');
    expect(existsSync(path.join(home, 'restore.json'))).toBe(false);
    expect(readdirSync(home).filter((name) => name.startsWith('restoring-'))).toEqual([]);
    // The earlier store's files were moved away under it: whatever it writes is not in the restored state.
    expect(() => former.append('a', 2, [{ type: 'x', data: {} }])).not.toThrow(StaleEpoch);
    expect(store.load('a')).toHaveLength(1);
  });

  test.each([
    ['a changed artefact', (folder: string, sha256: string) => writeFileSync(artefactFile(folder, sha256), 'Bytes')],
    ['a missing artefact', (folder: string, sha256: string) => rmSync(artefactFile(folder, sha256))],
  ])('refuses a backup with %s and leaves the state alone', async (_, damage) => {
    const { folder, sha256 } = await made();
    damage(folder, sha256);
    await expect(restoreBackup(home, folder, Date.now)).rejects.toMatchObject({ code: 'ArtefactDamaged' });
    expect(open().load('a')).toHaveLength(2);
    expect(readdirSync(home).filter((name) => /^(restoring|replaced)-|restore\.json/.test(name))).toEqual([]);
  });

  test('refuses what is no whole backup', async () => {
    const { folder } = await made();
    rmSync(path.join(folder, 'backup.json'));
    await expect(restoreBackup(home, folder, Date.now)).rejects.toMatchObject({ code: 'NotFound' });
  });

  test('killed at each move, the next start has the one state or the other, whole', async () => {
    const { folder } = await made();
    const points = [
      'restore-intended',
      'restore-moved',
      ...[1, 2, 3, 4].flatMap((n) => [`restore-moved-away:${n}`, `restore-moved-in:${n}`]),
    ];
    for (const point of points) {
      const env = { ...process.env, ESCROW_CRASH_AT: point };
      expect(spawnSync(process.execPath, [opener, home, folder], { env }).signal, point).toBe('SIGKILL');
      const next = spawnSync(process.execPath, [opener, home], { encoding: 'utf8' });
      expect(JSON.parse(next.stdout), point).toMatchObject({ events: 1, broken: [] });
      const store = open();
      expect((await store.artefacts.verify()).faults, point).toEqual([]);
      store.append('a', 1, [{ type: 'two', data: {} }]);
      closeAll();
    }
  });
});

describe('letting go of bytes', () => {
  test('removes what only these owners have, keeps the log, and says why it is gone', async () => {
    const store = open();
    const own = await put(store, 'own', 'old');
    const shared = await put(store, 'shared', 'old');
    await put(store, 'shared', 'new');
    expect(await store.letGo(['old'])).toEqual({ artefacts: 1, bytes: 3 });
    await store.artefacts.get(own.sha256);
    expect(await store.letGo(['old'], { type: 'retention.applied', data: { by: 'r' } })).toEqual({
      artefacts: 1,
      bytes: 3,
    });
    await expect(store.artefacts.get(own.sha256)).rejects.toMatchObject({ code: 'NotFound', details: { seq: 1 } });
    await store.artefacts.get(shared.sha256);
    expect(existsSync(artefactFile(home, own.sha256))).toBe(false);
    expect(store.artefacts.total()).toBe(6);
    expect(store.verifyChains()).toEqual([]);
    // The same bytes may come again.
    await put(store, 'own', 'new');
    await store.artefacts.get(own.sha256);
  });
});

test('the log is verified in pieces, while others append', async () => {
  const store = open();
  // In one transaction: 2500 of them take as long as the disk likes.
  store.append(
    'a',
    0,
    Array.from({ length: 2500 }, (_, n) => ({ type: 't', data: { n } })),
  );
  const verifying = store.verifyLog();
  store.append('a', 2500, [{ type: 'meanwhile', data: {} }]);
  expect(await verifying).toEqual({ events: 2500, broken: [] });
});
