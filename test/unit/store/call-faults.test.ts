// SQLite's syncs and reads fail at every place (adversarial 53): a named fault, nothing half-recorded, nobody told of a
// success, and the next try works. Its writes are in write-faults.test.ts.
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { canFailCalls, failCalls, noFailingCalls } from '../../fixtures/failing-calls.ts';
import { prepareStore, seenOf, storeWrites } from '../../fixtures/store-writes.ts';

let home: string;
const stores: Store[] = [];
const copies: string[] = [];
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-calls-'));
});
afterEach(() => {
  for (const store of stores.splice(0)) store.close();
  for (const folder of [home, ...copies.splice(0)]) rmSync(folder, { recursive: true, force: true });
});

const open = (at = home): Store => {
  const store = openStore({ home: at, now: () => 1 });
  stores.push(store);
  return store;
};
/** What was thrown while the kernel failed these calls, or the result of the work. */
async function failing<T>(calls: readonly string[], nth: number | undefined, work: () => T | Promise<T>) {
  const files = ['escrow.db', 'escrow.db-wal', 'escrow.db-journal'].map((name) => path.join(home, name));
  const faults = await failCalls(process.pid, { calls, files, ...(nth === undefined ? {} : { nth }) });
  try {
    return { result: await work(), fault: undefined };
  } catch (fault) {
    return { result: undefined, fault };
  } finally {
    await faults.stop();
  }
}
const syncs = ['fsync', 'fdatasync'];
const reads = ['pread64'];
const refusedBy = (cause: string) => ({
  code: 'StorageUnwritable',
  details: { cause: expect.stringMatching(cause) },
  next: expect.stringContaining('disk'),
});
/** SQLite makes "damaged" of some failed reads; so does the check at a start. */
const readFault = { code: 'StorageUnwritable', next: expect.stringContaining('disk') };

describe.skipIf(!canFailCalls)(`a sync that the disk fails${noFailingCalls}`, () => {
  test.each(storeWrites)('of %s is a named fault at every place, and changes nothing', async (_, write) => {
    const store = open();
    await prepareStore(store);
    let told = 0;
    store.onAppended(() => (told += 1));
    const before = seenOf(store);
    let faults = 0;
    for (let nth = 1; ; nth += 1) {
      const { fault } = await failing(syncs, nth, () => write(store));
      if (fault === undefined) break;
      faults += 1;
      expect(fault, `at ${nth}`).toMatchObject(refusedBy('SQLITE_IOERR_FSYNC'));
      expect(seenOf(store), `at ${nth}`).toEqual(before);
      expect(told).toBe(0);
      // Who opens it as the disk has it now finds the write whole or not at all: a failed sync says neither.
      const copy = `${home}-copy-${nth}`;
      copies.push(copy);
      cpSync(home, copy, { recursive: true });
      const other = open(copy);
      expect(other.verifyChains()).toEqual([]);
      expect([0, 1, 2].map((more) => before.head + more)).toContain(other.head());
    }
    expect(faults).toBeGreaterThan(0);
    const after = seenOf(store);
    expect(after).not.toEqual(before);
    store.close();
    const again = open();
    expect(seenOf(again)).toEqual(after);
    expect(again.verifyChains()).toEqual([]);
  });

  test('over and over is refused each time; with a disk that works, the same store goes on', async () => {
    const store = open();
    await prepareStore(store);
    const append = () => store.append('b', 0, [{ type: 'x', data: null }]);
    await failing(syncs, undefined, () => {
      for (let n = 0; n < 5; n += 1) expect(append).toThrow(expect.objectContaining({ code: 'StorageUnwritable' }));
    });
    expect(store.load('b')).toEqual([]);
    append();
    store.close();
    expect(open().load('b')).toHaveLength(1);
  });

  test('at the start of a fresh home is a named fault at every place, and the next start works', async () => {
    let faults = 0;
    // Some nine; of what comes before there is a log at all, SQLite needs no sync to have succeeded.
    for (let nth = 1; nth <= 12; nth += 1) {
      const { fault } = await failing(syncs, nth, () => open());
      if (fault !== undefined) {
        expect(fault, `at ${nth}`).toMatchObject(refusedBy('SQLITE_IOERR'));
        faults += 1;
      }
      stores.pop()?.close();
      const again = open();
      again.append('a', 0, [{ type: 'works', data: nth }]);
      expect(again.verifyChains()).toEqual([]);
      stores.pop()?.close();
      rmSync(home, { recursive: true });
      mkdirSync(home);
    }
    expect(faults).toBeGreaterThan(2);
  });

  test('at the close, where the log goes into the database, loses nothing', async () => {
    const store = open();
    await prepareStore(store);
    const before = seenOf(store);
    await failing(syncs, undefined, () => store.close());
    const again = open();
    expect(seenOf(again)).toEqual(before);
    expect(again.verifyChains()).toEqual([]);
  });
});

describe.skipIf(!canFailCalls)(`a read that the disk fails${noFailingCalls}`, () => {
  /** More than SQLite keeps in memory (16 MB), so that old pages have to be read again. */
  const crowd = (store: Store): void => {
    const events = Array.from({ length: 1000 }, () => ({ type: 'x', data: 'x'.repeat(3000) }));
    for (let n = 0; n < 6; n += 1) store.append('crowd', n * events.length, events);
  };

  const looks: readonly (readonly [string, (of: Store) => unknown])[] = [
    ['the events of a stream', (of) => of.load('a')],
    ['the log from a place on', (of) => of.since(0, 3)],
    ['a row', (of) => of.view('session', 'k')],
    ['rows', (of) => of.views('session')],
    ['the names of streams', (of) => of.streams('a')],
    ['all hash chains', (of) => of.verifyChains()],
  ];
  test.each(looks)('of %s is a named fault wherever it happens and never a shorter answer', async (_, look) => {
    const store = open();
    await prepareStore(store);
    crowd(store);
    const head = store.head();
    store.close();
    const cold = open();
    let answer: unknown;
    let faults = 0;
    // The check of all chains reads thousands of pages.
    for (const nth of [1, 2, 3, 4, 5, 8, 13]) {
      // Whatever a look brought into memory is pushed out again.
      for (const { version } of cold.load('crowd')) expect(version).toBeGreaterThan(0);
      const { fault, result } = await failing(reads, nth, () => look(cold));
      answer = result;
      if (fault === undefined) break;
      faults += 1;
      expect(fault, `at ${nth}`).toMatchObject(readFault);
      expect(cold.head()).toBe(head);
    }
    expect(faults).toBeGreaterThan(0);
    // Read whole at last, it is what another store reads.
    if (answer === undefined) answer = look(cold);
    cold.close();
    expect(look(open())).toEqual(answer);
  });

  test('of what a write rests on is a named fault at every place, and nothing is written', async () => {
    const store = open();
    await prepareStore(store);
    crowd(store);
    store.close();
    const cold = open();
    const before = seenOf(cold);
    let faults = 0;
    for (let nth = 1; ; nth += 1) {
      for (const { version } of cold.load('crowd')) expect(version).toBeGreaterThan(0);
      const { fault } = await failing(reads, nth, () => cold.append('a', 1, [{ type: 'two', data: 2 }]));
      if (fault === undefined) break;
      faults += 1;
      expect(fault, `at ${nth}`).toMatchObject(readFault);
      expect(seenOf(cold), `at ${nth}`).toEqual(before);
    }
    expect(faults).toBeGreaterThan(0);
    expect(cold.load('a')).toHaveLength(2);
    expect(cold.verifyChains()).toEqual([]);
  });

  test('at a start is a named fault at every place, and the next start works', async () => {
    const store = open();
    await prepareStore(store);
    const before = seenOf(store);
    store.close();
    let faults = 0;
    for (let nth = 1; ; nth += 1) {
      const { fault } = await failing(reads, nth, () => open());
      if (fault === undefined) break;
      expect(fault, `at ${nth}`).toMatchObject(readFault);
      faults += 1;
    }
    expect(faults).toBeGreaterThan(2);
    expect(seenOf(stores.at(-1) ?? store)).toEqual(before);
  });
});
