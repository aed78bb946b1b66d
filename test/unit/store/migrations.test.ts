import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SessionId } from '../../../src/protocol/primitives.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import { migrations } from '../../../src/server/store/migrations.ts';
import { openStore } from '../../../src/server/store/open-store.ts';

const golden = path.resolve(import.meta.dirname, '../../fixtures/golden/state');
const opener = path.resolve(import.meta.dirname, '../../fixtures/store-opener.ts');

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-migrations-'));
});
afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

const file = (): string => path.join(home, 'escrow.db');
const backups = (): string[] => (readdirSync(home).includes('backups') ? readdirSync(path.join(home, 'backups')) : []);
/** Everything that a database holds, apart from what each opening writes anew. */
function contents(database: string): unknown {
  const db = new Database(database, { readonly: true });
  try {
    return {
      events: db.prepare('SELECT * FROM event ORDER BY seq').all(),
      views: db.prepare('SELECT * FROM view ORDER BY kind, key').all(),
      artefacts: db.prepare('SELECT * FROM artefact').all(),
      owners: db.prepare('SELECT * FROM artefact_owner').all(),
      meta: db.prepare("SELECT * FROM meta WHERE key IN ('head', 'homeId')").all(),
    };
  } finally {
    db.close();
  }
}
const schemaOf = (database: string): unknown => {
  const db = new Database(database, { readonly: true });
  try {
    return db.pragma('user_version', { simple: true });
  } finally {
    db.close();
  }
};

const versions = readdirSync(golden).map((name) => Number(/^schema-(\d+)\.db$/.exec(name)?.[1]));

test('there is a golden database of every schema version that ever landed, the newest apart', () => {
  expect(versions.toSorted((a, b) => a - b)).toEqual(migrations.slice(0, -1).map((m) => m.to));
});

describe.each(versions)('a database of schema %i', (version) => {
  const source = path.join(golden, `schema-${version}.db`);
  beforeEach(() => copyFileSync(source, file()));

  test('is migrated with everything in it, works, and a copy of it as it was is kept', () => {
    const before = contents(source);
    const store = openStore({ home, now: Date.now });
    expect(store.verifyChains()).toEqual([]);
    const sessions = new Sessions(store, () => 0);
    const [summary] = sessions.summaries({ limit: 1 });
    const state = sessions.get(SessionId.parse(summary!.id));
    expect(state.attempts[0]?.settled?.outcome.kind).toBe('candidate');
    sessions.execute(state.id, { kind: 'close', reason: 'test' });
    expect(store.verifyChains()).toEqual([]);
    store.close();
    const [backup, ...more] = backups();
    expect(more).toEqual([]);
    expect(schemaOf(path.join(home, 'backups', backup!))).toBe(version);
    expect(contents(path.join(home, 'backups', backup!))).toEqual(before);
    expect(schemaOf(file())).toBe(migrations.length);
  });

  test('killed at each statement of the migration, it is as it was or migrated, and the next start ends it', () => {
    const before = contents(source);
    const points = ['migration-backed-up', 'migration-before-commit', 'migration-committed'];
    const statements = migrations.filter((m) => m.to > version).flatMap((m) => m.statements);
    const all = [...points, ...statements.map((_, i) => `migration-statement:${i + 1}`)];
    for (const point of all) {
      copyFileSync(source, file());
      for (const side of ['-wal', '-shm']) rmSync(file() + side, { force: true });
      const killed = spawnSync(process.execPath, [opener, home], { env: { ...process.env, ESCROW_CRASH_AT: point } });
      expect(killed.signal, point).toBe('SIGKILL');
      expect(schemaOf(file()), point).toBe(point === 'migration-committed' ? migrations.length : version);
      const next = spawnSync(process.execPath, [opener, home], { encoding: 'utf8' });
      expect(JSON.parse(next.stdout), point).toMatchObject({ events: 60, broken: [] });
      expect(contents(file()), point).toEqual(before);
    }
  });
});

test('killed at each statement of the first start, the next start makes the whole schema', () => {
  const statements = migrations.flatMap((m) => m.statements);
  for (let n = 1; n <= statements.length; n += 2) {
    rmSync(home, { recursive: true });
    home = mkdtempSync(path.join(os.tmpdir(), 'escrow-migrations-'));
    const at = `migration-statement:${n}`;
    expect(spawnSync(process.execPath, [opener, home], { env: { ...process.env, ESCROW_CRASH_AT: at } }).signal).toBe(
      'SIGKILL',
    );
    const next = spawnSync(process.execPath, [opener, home], { encoding: 'utf8' });
    expect(JSON.parse(next.stdout), at).toEqual({ epoch: 1, events: 0, broken: [] });
  }
});
