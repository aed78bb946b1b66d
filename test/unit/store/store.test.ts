import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { acquireKernelLock } from '../../../src/server/store/kernel-lock.ts';
import { migrations } from '../../../src/server/store/migrations.ts';
import { openStore, type OpenStoreOptions } from '../../../src/server/store/open-store.ts';
import { StaleEpoch, VersionConflict, type Store, type StoredEvent } from '../../../src/server/store/port.ts';

let home: string;
let stores: Store[] = [];
let clock = 1000;

const open = (overrides: Partial<OpenStoreOptions> = {}): Store => {
  const store = openStore({ home, now: () => clock++, ...overrides });
  stores.push(store);
  return store;
};
const databaseFile = (): string => path.join(home, 'escrow.db');
/** Changes the database as nobody should: past the store and its triggers. */
const tamper = (sql: string): void => {
  const db = new Database(databaseFile());
  db.exec('DROP TRIGGER event_is_kept_as_written; DROP TRIGGER event_is_kept;');
  db.exec(sql);
  db.close();
};

beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-store-'));
  stores = [];
});
afterEach(() => {
  for (const store of stores) store.close();
  rmSync(home, { recursive: true, force: true });
});

describe('events', () => {
  test('are numbered over the whole log and in their stream, and survive a reopening', () => {
    const first = open();
    first.append('a', 0, [
      { type: 'one', data: { n: 1 } },
      { type: 'two', data: null },
    ]);
    first.append('b', 0, [{ type: 'three', data: ['x'] }]);
    first.append('a', 2, [{ type: 'four', data: 'y' }]);
    first.close();
    const again = open();
    expect(again.since(0, 100).map((e) => [e.seq, e.stream, e.version, e.type])).toEqual([
      [1, 'a', 1, 'one'],
      [2, 'a', 2, 'two'],
      [3, 'b', 1, 'three'],
      [4, 'a', 3, 'four'],
    ]);
    expect(again.load('a', 2).map((e) => e.data)).toEqual(['y']);
    expect(again.streamSince('a', 1, 1).map((e) => e.type)).toEqual(['two']);
    expect(again.head()).toBe(4);
  });

  test('written against another version than the stream has are refused, and nothing of them stays', () => {
    const store = open();
    store.append('a', 0, [{ type: 'one', data: {} }]);
    expect(() => store.append('a', 0, [{ type: 'two', data: {} }])).toThrow(VersionConflict);
    expect(() => store.append('a', 2, [{ type: 'two', data: {} }])).toThrow(VersionConflict);
    expect(store.head()).toBe(1);
  });

  test('and their views are written together or not at all', () => {
    const store = open();
    expect(() =>
      store.append('a', 0, [{ type: 'one', data: {} }], () => {
        throw new Error('projection failed');
      }),
    ).toThrow('projection failed');
    expect(store.load('a')).toEqual([]);
    store.append('a', 0, [{ type: 'one', data: {} }], ([event]) => [
      { kind: 'session', key: 'k', root: '/r', createdAt: 1, updatedAt: event!.seq, json: { seq: event!.seq } },
    ]);
    expect(store.view('session', 'k')).toMatchObject({ updatedAt: 1, json: { seq: 1 } });
  });

  test('are told to listeners after the commit, in order, also when a listener appends itself', () => {
    const store = open();
    const heard: string[] = [];
    const note = (name: string) => (events: readonly StoredEvent[]) => {
      heard.push(...events.map((e) => `${name}${e.seq}`));
    };
    store.onAppended((events) => {
      if (events[0]?.type === 'cause') store.append('b', 0, [{ type: 'effect', data: {} }]);
    });
    const stop = store.onAppended(note('x'));
    store.onAppended(note('y'));
    store.append('a', 0, [{ type: 'cause', data: {} }]);
    stop();
    store.append('a', 1, [{ type: 'later', data: {} }]);
    expect(heard).toEqual(['x1', 'y1', 'x2', 'y2', 'y3']);
  });

  test('cannot be changed or deleted through SQL', () => {
    const store = open();
    store.append('a', 0, [{ type: 'one', data: {} }]);
    const db = new Database(databaseFile());
    expect(() => db.exec("UPDATE event SET data = '1'")).toThrow('append-only');
    expect(() => db.exec('DELETE FROM event')).toThrow('append-only');
    db.close();
  });

  test('any sequence of appends keeps every chain whole', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.array(fc.jsonValue(), { maxLength: 3 })), {
          maxLength: 20,
        }),
        (steps) => {
          const folder = mkdtempSync(path.join(home, 'p-'));
          const store = openStore({ home: folder, now: () => 1 });
          try {
            for (const [stream, values] of steps) {
              store.append(
                stream,
                store.load(stream).length,
                values.map((value) => ({ type: 't', data: value as never })),
              );
            }
            expect(store.verifyChains()).toEqual([]);
            expect(store.since(0, 1000).map((e) => e.seq)).toEqual(
              Array.from({ length: store.head() }, (_, i) => i + 1),
            );
          } finally {
            store.close();
          }
        },
      ),
      { numRuns: 15 },
    );
  });
});

describe('damage to the log is found', () => {
  beforeEach(() => {
    const store = open();
    store.append('a', 0, [
      { type: 'one', data: { n: 1 } },
      { type: 'two', data: { n: 2 } },
      { type: 'three', data: { n: 3 } },
    ]);
    store.append('b', 0, [{ type: 'other', data: {} }]);
    store.close();
  });

  test('an edited event', () => {
    tamper(`UPDATE event SET data = '{"n":9}' WHERE seq = 2`);
    expect(open().verifyChains()).toEqual([{ stream: 'a', version: 2, reason: 'content does not match its hash' }]);
  });
  test('a removed event', () => {
    tamper('DELETE FROM event WHERE seq = 2');
    expect(open().verifyChains()[0]).toMatchObject({ stream: 'a', version: 3 });
  });
  test('a removed end', () => {
    tamper('DELETE FROM event WHERE seq = 4');
    expect(open().verifyChains()).toEqual([
      { stream: '', version: 3, reason: 'the end of the log is not the recorded one' },
    ]);
  });
  test('an event moved to another stream', () => {
    tamper("UPDATE event SET stream = 'c', version = 1 WHERE seq = 3");
    expect(open().verifyChains()).not.toEqual([]);
  });
});

describe('epochs', () => {
  test('rise with each opening; the home keeps its identity', () => {
    const [one, two] = [open(), open()];
    expect([one.epoch, two.epoch]).toEqual([1, 2]);
    expect(two.homeId).toBe(one.homeId);
    expect(one.homeId).toMatch(/^[0-9a-f]{20}$/);
  });

  test('a store that was opened again elsewhere refuses every write of the earlier one', async () => {
    const earlier = open();
    earlier.append('a', 0, [{ type: 'one', data: {} }]);
    const later = open();
    expect(() => earlier.append('a', 1, [{ type: 'two', data: {} }])).toThrow(StaleEpoch);
    await expect(earlier.artefacts.put(Buffer.from('x'), 'o')).rejects.toThrow(StaleEpoch);
    later.append('a', 1, [{ type: 'two', data: {} }]);
    expect(later.load('a').map((e) => e.type)).toEqual(['one', 'two']);
  });
});

describe('views', () => {
  test('are listed newest first, by root, in pages', () => {
    const store = open();
    for (const [i, root] of ['/a', '/b', '/a', '/a'].entries()) {
      store.append(`s${i}`, 0, [], () => [
        { kind: 'session', key: `k${i}`, root, createdAt: i, updatedAt: i * 10, json: i },
      ]);
    }
    expect(store.views('session').map((v) => v.key)).toEqual(['k3', 'k2', 'k1', 'k0']);
    expect(store.views('session', { root: '/a', limit: 2 }).map((v) => v.key)).toEqual(['k3', 'k2']);
    expect(store.views('session', { root: '/a', before: 20 }).map((v) => v.key)).toEqual(['k0']);
    expect(store.views('contract')).toEqual([]);
  });
});

describe('migrations', () => {
  const next = { to: migrations.length + 1, statements: ['CREATE TABLE extra (a INTEGER) STRICT'] };

  test('copy an older database before they touch it', () => {
    const old = open();
    old.append('a', 0, [{ type: 'one', data: {} }]);
    old.close();
    open({ migrations: [...migrations, next] });
    const [backup] = readdirSync(path.join(home, 'backups'));
    expect(backup).toMatch(new RegExp(`^escrow-schema${migrations.length}-`));
    const copy = new Database(path.join(home, 'backups', backup!), { readonly: true });
    expect(copy.pragma('user_version', { simple: true })).toBe(migrations.length);
    expect(copy.prepare('SELECT COUNT(*) FROM event').pluck().get()).toBe(1);
    copy.close();
  });

  test('need no copy of a database that they make', () => {
    open();
    expect(readdirSync(home)).not.toContain('backups');
  });

  test('a step that fails leaves the schema before it', () => {
    open().close();
    expect(() =>
      open({ migrations: [...migrations, { to: next.to, statements: ['CREATE TABLE extra (a)', 'SELECT nonsense'] }] }),
    ).toThrow();
    const db = new Database(databaseFile());
    expect(db.pragma('user_version', { simple: true })).toBe(migrations.length);
    expect(db.prepare("SELECT name FROM sqlite_master WHERE name = 'extra'").get()).toBeUndefined();
    db.close();
  });

  test('a newer schema is refused and left alone', () => {
    open({ migrations: [...migrations, next] }).close();
    expect(() => open()).toThrow(
      expect.objectContaining({ code: 'StorageTooNew', details: { schema: next.to, known: migrations.length } }),
    );
  });
});

describe('a database that is', () => {
  test('not a database is reported as damage', () => {
    writeFileSync(databaseFile(), 'x'.repeat(8192));
    expect(() => open()).toThrow(expect.objectContaining({ code: 'StorageUnwritable' }));
  });
});

describe('the lock', () => {
  test('has one holder at a time, also in another process, and none after a release', () => {
    const lock = acquireKernelLock(home);
    expect(lock).toBeDefined();
    expect(acquireKernelLock(home)).toBeUndefined();
    const script = path.resolve(import.meta.dirname, '../../../src/server/store/kernel-lock.ts');
    const elsewhere = (): string =>
      spawnSync(
        process.execPath,
        [
          '--input-type=module',
          '-e',
          `const { acquireKernelLock } = await import(${JSON.stringify(script)});
           process.stdout.write(String(acquireKernelLock(${JSON.stringify(home)}) !== undefined));`,
        ],
        { encoding: 'utf8' },
      ).stdout;
    expect(elsewhere()).toBe('false');
    lock!.release();
    expect(elsewhere()).toBe('true');
  });

  test('stays when the database beside it is opened, read and closed', () => {
    const lock = acquireKernelLock(home);
    open().close();
    expect(acquireKernelLock(home)).toBeUndefined();
    lock!.release();
  });
});
