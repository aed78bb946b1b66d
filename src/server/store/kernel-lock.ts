import path from 'node:path';
import Database from 'better-sqlite3';
import { guarded } from './faults.ts';

export interface KernelLock {
  release(): void;
}

/**
 * Takes the single-instance lock of a home: `lock.db`, held in SQLite's exclusive mode and never opened otherwise (any
 * open and close of a locked file by its holder drops a POSIX lock). The operating system releases it on any death.
 * Undefined when another process has it. Throws EscrowError StorageFull, StorageUnwritable.
 */
export function acquireKernelLock(home: string, nativeBinding?: string): KernelLock | undefined {
  return guarded('taking the lock of the state folder', () => {
    const db = new Database(path.join(home, 'lock.db'), {
      timeout: 0,
      ...(nativeBinding === undefined ? {} : { nativeBinding }),
    });
    try {
      db.pragma('locking_mode = EXCLUSIVE');
      db.exec('BEGIN EXCLUSIVE');
      // In exclusive mode the file lock outlives the transaction.
      db.exec('CREATE TABLE IF NOT EXISTS held (one INTEGER PRIMARY KEY)');
      db.exec('COMMIT');
    } catch (error) {
      db.close();
      if (error instanceof Database.SqliteError && error.code.startsWith('SQLITE_BUSY')) return undefined;
      throw error;
    }
    return {
      release() {
        db.close();
      },
    };
  });
}
