import { mkdirSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { EscrowError } from '../../protocol/errors.ts';
import { damaged, guarded } from './faults.ts';
import { migrations as ownMigrations, type Migration } from './migrations.ts';

/** Older versions can reset a WAL that is still needed (https://sqlite.org/wal.html, "WAL reset bug"). */
const oldestSqlite = [3, 51, 3] as const;

/** After a clean shutdown a database above this size is not checked page by page at start (growth: design 10). */
const checkAlwaysBelow = 32 * 1024 * 1024;

function assertSqliteVersion(db: Database.Database): void {
  const version = String(db.prepare('SELECT sqlite_version()').pluck().get());
  const parts = version.split('.').map(Number);
  for (const [i, wanted] of oldestSqlite.entries()) {
    const have = parts[i] ?? 0;
    if (have > wanted) return;
    if (have < wanted) throw new Error(`SQLite ${version} is older than ${oldestSqlite.join('.')}`);
  }
}

/** `PRAGMA user_version`: the number of the last migration that ran. */
export function schemaVersion(db: Database.Database): number {
  return Number(db.pragma('user_version', { simple: true }));
}

function migrate(
  db: Database.Database,
  backups: string,
  migrations: readonly Migration[],
  stamp: string,
  point: (name: string) => void,
): void {
  const have = schemaVersion(db);
  const newest = migrations.at(-1)?.to ?? 0;
  if (have > newest) {
    throw new EscrowError(
      'StorageTooNew',
      `The state was written by a newer Escrow (schema ${have}, this one knows ${newest}).`,
      'Use the newer Escrow, or another state folder (ESCROW_HOME).',
      { schema: have, known: newest },
    );
  }
  const pending = migrations.filter((m) => m.to > have);
  if (pending.length === 0) return;
  if (have > 0) {
    // VACUUM INTO reads one consistent state and refuses to overwrite: each backup has a name of its own.
    mkdirSync(backups, { recursive: true, mode: 0o700 });
    db.prepare('VACUUM INTO ?').run(path.join(backups, `escrow-schema${have}-${stamp}.db`));
    point('migration-backed-up');
  }
  for (const step of pending) {
    db.transaction(() => {
      for (const statement of step.statements) {
        db.exec(statement);
        point('migration-statement');
      }
      db.pragma(`user_version = ${step.to}`);
      point('migration-before-commit');
    }).immediate();
    point('migration-committed');
  }
}

/** A wall time as part of a file's name. */
export function stampOf(at: number): string {
  return new Date(at).toISOString().replaceAll(/[:.]/g, '-');
}

export interface DatabaseOptions {
  readonly file: string;
  /** Where a copy goes before an older schema is migrated. */
  readonly backups: string;
  /** Names backup files. */
  readonly now: () => number;
  readonly nativeBinding?: string | undefined;
  readonly migrations?: readonly Migration[];
  /** Called by name around each statement of a migration: where tests end the process. */
  readonly point?: (name: string) => void;
}

/** The durable main database, as design 10 "Storage" wants it. Throws EscrowError StorageTooNew, StorageFull, StorageUnwritable. */
export function openDatabase(options: DatabaseOptions): Database.Database {
  return guarded('opening the state database', () => {
    const db = new Database(options.file, {
      // A reader that verifies the log live may hold the database for a moment; a second Kernel is kept out by lock.db.
      timeout: 5000,
      ...(options.nativeBinding === undefined ? {} : { nativeBinding: options.nativeBinding }),
    });
    try {
      assertSqliteVersion(db);
      const mode = String(db.pragma('journal_mode = WAL', { simple: true }));
      if (mode !== 'wal') throw new Error(`journal mode is ${mode}, not wal`);
      // better-sqlite3 compiles WAL to NORMAL, which may lose the last commits on power loss.
      db.pragma('synchronous = FULL');
      db.pragma('foreign_keys = ON');
      db.pragma('trusted_schema = OFF');
      db.pragma('cell_size_check = ON');
      if (process.platform === 'darwin') {
        db.pragma('fullfsync = ON');
        db.pragma('checkpoint_fullfsync = ON');
      }
      migrate(
        db,
        options.backups,
        options.migrations ?? ownMigrations,
        stampOf(options.now()),
        options.point ?? (() => undefined),
      );
      quickCheck(db);
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  });
}

function quickCheck(db: Database.Database): void {
  const clean = db.prepare("SELECT value FROM meta WHERE key = 'clean'").pluck().get() === 1;
  const size = Number(db.pragma('page_count', { simple: true })) * Number(db.pragma('page_size', { simple: true }));
  if (clean && size > checkAlwaysBelow) return;
  const found = String(db.pragma('quick_check(1)', { simple: true }));
  if (found !== 'ok') {
    throw damaged('checking the state database', { found });
  }
}
