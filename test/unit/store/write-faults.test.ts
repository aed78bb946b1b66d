// SQLite's writes fail at every place of every kind of write (adversarial 53): a named fault, nothing half-recorded,
// nobody told of a success, and the next try works. Files of artefacts are in artefact-faults.test.ts.
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../../src/server/store/open-store.ts';
import { machineStream, type Store } from '../../../src/server/store/port.ts';
import { allowWrites, canRefuseWrites, refuseWrites, noRefusedWrites } from '../../fixtures/failing-writes.ts';
import { prepareStore, seenOf, storeWrites } from '../../fixtures/store-writes.ts';

const ioError = { code: 'StorageUnwritable', details: { cause: expect.stringMatching(/^SQLITE_IOERR/) } };
/** A third of a frame of the log: heads and pages are cut, and whole ones are followed by none. */
const stride = 1373;

let home: string;
let store: Store | undefined;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-store-'));
});
afterEach(() => {
  allowWrites(process.pid);
  store?.close();
  store = undefined;
  rmSync(home, { recursive: true, force: true });
});

describe.skipIf(!canRefuseWrites)(`a write that the system refuses${noRefusedWrites}`, () => {
  test.each(storeWrites)('of %s is a named fault at every place, and changes nothing', async (_, write) => {
    store = openStore({ home, now: () => 1 });
    await prepareStore(store);
    let told = 0;
    store.onAppended(() => (told += 1));
    const before = seenOf(store);
    const from = statSync(path.join(home, 'escrow.db-wal')).size;
    const attempt = async (of: Store, place: number): Promise<unknown> => {
      refuseWrites(process.pid, from + place);
      try {
        await write(of);
        return undefined;
      } catch (error) {
        return error;
      } finally {
        allowWrites(process.pid);
      }
    };
    let place = 0;
    for (let fault = await attempt(store, place); fault !== undefined; fault = await attempt(store, place)) {
      expect(fault, `at ${place}`).toMatchObject(ioError);
      expect(seenOf(store), `at ${place}`).toEqual(before);
      expect(told).toBe(0);
      place += stride;
    }
    // At least one page was refused at its head, in it and at its end.
    expect(place / stride).toBeGreaterThanOrEqual(3);
    const after = seenOf(store);
    expect(after).not.toEqual(before);
    expect(store.verifyChains()).toEqual([]);
    // What is on the disk is what was said.
    store.close();
    store = openStore({ home, now: () => 1 });
    expect(seenOf(store)).toEqual(after);
    expect(store.verifyChains()).toEqual([]);
  });

  test('at the start of a fresh home is a named fault at every place, and the next start works', () => {
    let faults = 0;
    for (let place = 0; store === undefined; place += 4096) {
      refuseWrites(process.pid, place);
      try {
        store = openStore({ home, now: () => 1 });
      } catch (error) {
        expect(error, `at ${place}`).toMatchObject(ioError);
        faults += 1;
      } finally {
        allowWrites(process.pid);
      }
    }
    expect(faults).toBeGreaterThan(3);
    store.append(machineStream, 0, [{ type: 'works', data: null }]);
    expect(store.verifyChains()).toEqual([]);
  });
});
