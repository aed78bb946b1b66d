import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, statSync, unlinkSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 as hashOf } from '../../protocol/hash.ts';
import { Sha256, type ArtefactRef } from '../../protocol/primitives.ts';
import { guarded, storageFault } from './faults.ts';
import { nodeFiles, type FileLayer } from './file-layer.ts';
import type { ArtefactStore } from './port.ts';

/** Bytes that one owner (a session) may keep, temporary writes included: design 10 "Storage". */
export const artefactAllowance = 128 * 1024 * 1024;
/** The same of a contract: a snapshot for profile `standard` (issue 3 item 7) may fill its workspace of 512 MiB. */
const snapshotAllowance = 512 * 1024 * 1024;

export interface ArtefactStoreOptions {
  readonly db: Database.Database;
  /** Folder of the artefact files; `tmp` below it is emptied at start. */
  readonly folder: string;
  readonly now: () => number;
  /** Throws StaleEpoch; called inside each write transaction. */
  readonly fence: () => void;
  /** Bytes that a session may keep; left out: `artefactAllowance`. What a contract may keep follows from its profile. */
  readonly allowance?: number;
  /** Called by name around each effect on the disk, for tests that kill the process there. */
  readonly at: (point: string) => void;
  readonly files?: FileLayer;
}

const allowanceSpent = (owner: string, used: number, wanted: number, allowance: number): EscrowError =>
  new EscrowError(
    'StorageFull',
    `The evidence of ${owner} would be larger than its allowance of ${allowance} bytes.`,
    'Start a new session; nothing that was kept is deleted to make room.',
    { reason: 'allowance', owner, used, wanted, allowance },
  );

/** What the store itself may do besides. */
export interface ArtefactFiles extends ArtefactStore {
  /** Removes the files of rows that are gone from the database, and counts anew. Never throws. */
  removed(hashes: readonly string[]): void;
}

/** Content-addressed files beside the database. Created once, by the store. */
export function createArtefactStore(options: ArtefactStoreOptions): ArtefactFiles {
  const { db, folder, now, fence, at } = options;
  const files = options.files ?? nodeFiles;
  const allowanceOf = (owner: string): number =>
    owner.startsWith('contract:') ? snapshotAllowance : (options.allowance ?? artefactAllowance);
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
  const droppedOf = db.prepare<[string], { dropped_at: number; seq: number }>(
    'SELECT dropped_at, seq FROM artefact_dropped WHERE sha256 = ?',
  );
  const pageOf = db.prepare<[string], { sha256: string; size: number }>(
    'SELECT sha256, size FROM artefact WHERE sha256 > ? ORDER BY sha256 LIMIT 500',
  );
  const totalOf = db.prepare<[], number>('SELECT COALESCE(SUM(size), 0) FROM artefact').pluck();
  const insert = db.prepare('INSERT INTO artefact (sha256, size, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  const charge = db.prepare('INSERT INTO artefact_owner (owner, sha256) VALUES (?, ?) ON CONFLICT DO NOTHING');

  /** Bytes on their way, by owner: part of the allowance. */
  const inFlight = new Map<string, number>();
  /** Puts that are under way, by owner and hash: the same bytes twice at once are one put and count once. */
  const putting = new Map<string, Promise<ArtefactRef>>();
  /** Files that are under way or renamed and not yet recorded, by hash. */
  const writing = new Map<Sha256, Promise<void>>();
  /** Folders whose own entry is known to be durable in this process. */
  const lasting = new Map<string, Promise<void>>();
  let total = totalOf.get() ?? 0;

  const fileOf = (hash: Sha256): string => path.join(folder, hash.slice(0, 2), hash);

  const admit = (owner: string, size: number): void => {
    const used = (usageOf.get(owner) ?? 0) + (inFlight.get(owner) ?? 0);
    const allowance = allowanceOf(owner);
    if (used + size > allowance) throw allowanceSpent(owner, used, size, allowance);
  };

  const record = (hash: Sha256, size: number, owner: string): void => {
    at('artefact-before-row');
    const added = db
      .transaction(() => {
        fence();
        const inserted = insert.run(hash, size, now()).changes;
        charge.run(owner, hash);
        return inserted;
      })
      .immediate();
    if (added > 0) total += size;
    at('artefact-row');
  };

  /** Whoever made the folder, it counts as there only once its entry is synced: it may be left of a Kernel that died. */
  const lastingFolder = async (parent: string): Promise<void> => {
    await files.makeFolder(parent);
    at('artefact-folder-made');
    await files.syncFolder(folder);
    at('artefact-folder-lasting');
  };

  const write = async (hash: Sha256, bytes: Uint8Array): Promise<void> => {
    const temporary = path.join(temporaries, `${hash.slice(0, 16)}-${randomBytes(8).toString('hex')}`);
    const target = fileOf(hash);
    const parent = path.dirname(target);
    try {
      at('artefact-before-write');
      const written = await files.write(temporary, bytes);
      try {
        at('artefact-written');
        // An error of this sync is final for these pages: the file is given up, never synced again.
        await written.sync();
      } finally {
        await written.close();
      }
      at('artefact-synced');
      let made = lasting.get(parent);
      if (made === undefined) {
        made = lastingFolder(parent);
        lasting.set(parent, made);
        made.catch(() => lasting.delete(parent));
      }
      await made;
      await files.rename(temporary, target);
      at('artefact-renamed');
      await files.syncFolder(parent);
      at('artefact-lasting');
    } catch (error) {
      lasting.delete(parent);
      await files.remove(temporary).catch(() => undefined);
      throw error;
    }
  };

  const put = async (own: Uint8Array, hash: Sha256, owner: string): Promise<ArtefactRef> => {
    const size = own.byteLength;
    const ref: ArtefactRef = { sha256: hash, size };
    if (owned.get(owner, hash) !== undefined) return ref;
    admit(owner, size);
    inFlight.set(owner, (inFlight.get(owner) ?? 0) + size);
    try {
      // A file without a row may be torn, so only the row counts as "kept".
      if (rowOf.get(hash) === undefined) {
        const others = writing.get(hash);
        const mine = others ?? write(hash, own);
        if (others === undefined) writing.set(hash, mine);
        await mine;
      }
      record(hash, size, owner);
      return ref;
    } finally {
      writing.delete(hash);
      const left = (inFlight.get(owner) ?? 0) - size;
      if (left > 0) inFlight.set(owner, left);
      else inFlight.delete(owner);
    }
  };

  return {
    async put(bytes, owner): Promise<ArtefactRef> {
      // The caller may reuse its buffer while the write is under way: hash and write one private copy.
      const own = Uint8Array.from(bytes);
      const hash = hashOf(own);
      const key = `${hash} ${owner}`;
      const same = putting.get(key);
      if (same !== undefined) return same;
      const work = put(own, hash, owner).catch((error: unknown) => {
        throw storageFault(error, 'keeping an artefact');
      });
      putting.set(key, work);
      try {
        return await work;
      } finally {
        putting.delete(key);
      }
    },

    async get(hash): Promise<Uint8Array> {
      const row = rowOf.get(hash);
      if (row === undefined) {
        const dropped = droppedOf.get(hash);
        if (dropped !== undefined) {
          throw new EscrowError(
            'NotFound',
            `The bytes of artefact ${hash} were let go by a recorded decision of a person (event ${dropped.seq}).`,
            'A backup from before may hold them.',
            { sha256: hash, droppedAt: dropped.dropped_at, seq: dropped.seq },
          );
        }
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
        bytes = await files.read(fileOf(hash));
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

    removed(hashes) {
      total = totalOf.get() ?? 0;
      for (const name of hashes) {
        const hash = Sha256.parse(name);
        // Put again meanwhile: it is kept. Looked up and removed without a pause, so that no put comes in between.
        if (rowOf.get(hash) !== undefined || writing.has(hash)) continue;
        try {
          unlinkSync(fileOf(hash));
        } catch {
          // No longer there, or left as a file that no record names: the next start sweeps it.
        }
      }
    },

    async sweepOrphans() {
      const swept = { files: 0, bytes: 0 };
      const prefixes = (await readdir(folder).catch(() => [])).filter((name) => /^[0-9a-f]{2}$/.test(name));
      for (const prefix of prefixes) {
        for (const name of await readdir(path.join(folder, prefix)).catch(() => [])) {
          const hash = Sha256.safeParse(name);
          // Looked up and removed without a pause: a put that is under way can't come in between.
          if (hash.success && (rowOf.get(name) !== undefined || writing.has(hash.data))) continue;
          const file = path.join(folder, prefix, name);
          try {
            const { size } = statSync(file);
            unlinkSync(file);
            swept.files += 1;
            swept.bytes += size;
          } catch {
            // Already gone, or not removable: it is not counted, and it is never read.
          }
        }
      }
      return swept;
    },

    async verify() {
      const faults: { sha256: Sha256; reason: string }[] = [];
      let checked = 0;
      for (let after = ''; ;) {
        const page = pageOf.all(after);
        for (const row of page) {
          const hash = Sha256.parse(row.sha256);
          checked += 1;
          try {
            const bytes = await files.read(fileOf(hash));
            if (bytes.byteLength !== row.size) faults.push({ sha256: hash, reason: 'size' });
            else if (hashOf(bytes) !== hash) faults.push({ sha256: hash, reason: 'hash' });
          } catch (error) {
            const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
            faults.push({ sha256: hash, reason: missing ? 'missing' : 'unreadable' });
          }
        }
        const last = page.at(-1);
        if (last === undefined) return { checked, faults };
        after = last.sha256;
      }
    },
  };
}
