import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { mkdir, open, readFile, rename, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 as hashOf } from '../../protocol/hash.ts';
import type { ArtefactRef, Sha256 } from '../../protocol/primitives.ts';
import { guarded, storageFault } from './faults.ts';
import type { ArtefactStore } from './port.ts';

/** Bytes that one owner (a session, a contract) may keep, temporary writes included: design 10 "Storage". */
export const artefactAllowance = 128 * 1024 * 1024;

export interface ArtefactStoreOptions {
  readonly db: Database.Database;
  /** Folder of the artefact files; `tmp` below it is emptied at start. */
  readonly folder: string;
  readonly now: () => number;
  /** Throws StaleEpoch; called inside each write transaction. */
  readonly fence: () => void;
  readonly allowance?: number;
}

async function syncFolder(folder: string): Promise<void> {
  // Windows cannot open a folder; NTFS journals the rename itself.
  if (process.platform === 'win32') return;
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** True when the folder is new. */
async function makeFolder(folder: string): Promise<boolean> {
  try {
    await mkdir(folder, { mode: 0o700 });
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

const allowanceSpent = (owner: string, used: number, wanted: number, allowance: number): EscrowError =>
  new EscrowError(
    'StorageFull',
    `The evidence of ${owner} would be larger than its allowance of ${allowance} bytes.`,
    'Start a new session; nothing that was kept is deleted to make room.',
    { reason: 'allowance', owner, used, wanted, allowance },
  );

/** Content-addressed files beside the database. Created once, by the store. */
export function createArtefactStore(options: ArtefactStoreOptions): ArtefactStore {
  const { db, folder, now, fence } = options;
  const allowance = options.allowance ?? artefactAllowance;
  const temporaries = path.join(folder, 'tmp');
  guarded('preparing the artefact folder', () => {
    mkdirSync(temporaries, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(temporaries)) rmSync(path.join(temporaries, name), { recursive: true, force: true });
  });

  const rowOf = db.prepare<[string], { size: number }>('SELECT size FROM artefact WHERE sha256 = ?');
  const owned = db.prepare<[string, string], number>('SELECT 1 FROM artefact_owner WHERE owner = ? AND sha256 = ?');
  const usageOf = db
    .prepare<[string], number>(
      'SELECT COALESCE(SUM(a.size), 0) FROM artefact_owner o JOIN artefact a USING (sha256) WHERE o.owner = ?',
    )
    .pluck();
  const totalOf = db.prepare<[], number>('SELECT COALESCE(SUM(size), 0) FROM artefact').pluck();
  const insert = db.prepare('INSERT INTO artefact (sha256, size, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  const charge = db.prepare('INSERT INTO artefact_owner (owner, sha256) VALUES (?, ?) ON CONFLICT DO NOTHING');

  /** Bytes on their way, by owner: part of the allowance. */
  const inFlight = new Map<string, number>();
  let total = totalOf.get() ?? 0;

  const fileOf = (hash: Sha256): string => path.join(folder, hash.slice(0, 2), hash);

  const admit = (owner: string, size: number): void => {
    const used = (usageOf.get(owner) ?? 0) + (inFlight.get(owner) ?? 0);
    if (used + size > allowance) throw allowanceSpent(owner, used, size, allowance);
  };

  const record = (hash: Sha256, size: number, owner: string): void => {
    const added = db
      .transaction(() => {
        fence();
        const inserted = insert.run(hash, size, now()).changes;
        charge.run(owner, hash);
        return inserted;
      })
      .immediate();
    if (added > 0) total += size;
  };

  const write = async (hash: Sha256, bytes: Uint8Array): Promise<void> => {
    const temporary = path.join(temporaries, `${hash.slice(0, 16)}-${randomBytes(8).toString('hex')}`);
    let handle: FileHandle | undefined;
    try {
      handle = await open(temporary, 'wx', 0o600);
      await handle.writeFile(bytes);
      // An error of this sync is final for these pages: the file is given up, never synced again.
      await handle.sync();
      await handle.close();
      handle = undefined;
      const target = fileOf(hash);
      const parent = path.dirname(target);
      const made = await makeFolder(parent);
      await rename(temporary, target);
      await syncFolder(parent);
      if (made) await syncFolder(folder);
    } catch (error) {
      await handle?.close().catch(() => undefined);
      await rm(temporary, { force: true }).catch(() => undefined);
      throw error;
    }
  };

  return {
    async put(bytes, owner): Promise<ArtefactRef> {
      // The caller may reuse its buffer while the write is under way: hash and write one private copy.
      const own = Uint8Array.from(bytes);
      const hash = hashOf(own);
      const ref: ArtefactRef = { sha256: hash, size: own.byteLength };
      try {
        if (owned.get(owner, hash) !== undefined) return ref;
        admit(owner, own.byteLength);
        inFlight.set(owner, (inFlight.get(owner) ?? 0) + own.byteLength);
        try {
          // A file without a row may be torn, so only the row counts as "kept".
          if (rowOf.get(hash) === undefined) await write(hash, own);
          record(hash, own.byteLength, owner);
        } finally {
          const left = (inFlight.get(owner) ?? 0) - own.byteLength;
          if (left > 0) inFlight.set(owner, left);
          else inFlight.delete(owner);
        }
        return ref;
      } catch (error) {
        throw storageFault(error, 'keeping an artefact');
      }
    },

    async get(hash): Promise<Uint8Array> {
      const row = rowOf.get(hash);
      if (row === undefined) {
        throw new EscrowError('NotFound', `No artefact ${hash} is kept.`, 'Check the hash.', { sha256: hash });
      }
      const damaged = (reason: string): EscrowError =>
        new EscrowError(
          'ArtefactDamaged',
          `Artefact ${hash} is not the bytes that were kept (${reason}).`,
          'Restore the state folder from a backup; the record itself is unaffected.',
          { sha256: hash, reason },
        );
      let bytes: Uint8Array;
      try {
        bytes = await readFile(fileOf(hash));
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') throw damaged('missing');
        throw storageFault(error, 'reading an artefact');
      }
      if (bytes.byteLength !== row.size) throw damaged('size');
      if (hashOf(bytes) !== hash) throw damaged('hash');
      return bytes;
    },

    has: (hash) => rowOf.get(hash) !== undefined,
    total: () => total,
  };
}
