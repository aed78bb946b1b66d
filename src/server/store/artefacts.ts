import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, statSync, unlinkSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 as hashOf } from '../../protocol/hash.ts';
import { Sha256, type ArtefactRef } from '../../protocol/primitives.ts';
import { guarded, guardedRead, storageFault } from './faults.ts';
import { nodeFiles, type FileLayer, type WrittenFile } from './file-layer.ts';
import { createIntake, type Item } from './intake.ts';
import type { ArtefactStore } from './port.ts';

/** Bytes that one owner (a session) may keep, temporary writes included: design 10 "Storage". */
export const artefactAllowance = 128 * 1024 * 1024;
/** The same of a contract: a snapshot for profile `standard` (issue 3 item 7) may fill its workspace of 512 MiB. */
const snapshotAllowance = 512 * 1024 * 1024;

/** Of one batch: a private copy is made of so much at a time, and so many files wait for one transaction. */
const batchBytes = 16 * 1024 * 1024;
const batchFiles = 512;
/** Files that are written or synced at once: twice what the thread pool takes. */
const filesAtOnce = 8;

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
    wanted > allowance
      ? `What one attempt writes may be ${allowance} bytes at most: let fewer or smaller files be written.`
      : 'Start a new session; nothing that was kept is deleted to make room.',
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

  const kept = (hash: Sha256): { size: number } | undefined =>
    guardedRead('looking for an artefact', () => rowOf.get(hash));

  /** Bytes on their way, by owner: part of the allowance. */
  const inFlight = new Map<string, number>();
  /** Puts that are under way, by owner and hash: the same bytes twice at once are one put and count once. */
  const putting = new Map<string, Promise<void>>();
  /** Files that are under way or renamed and not yet recorded, by hash. */
  const writing = new Map<Sha256, Promise<void>>();
  /** How many puts that are under way rest on a file, whoever writes or keeps it: it is not removed before they end. */
  const claims = new Map<Sha256, number>();
  const claim = (items: readonly Item[]): void => {
    for (const { hash } of items) claims.set(hash, (claims.get(hash) ?? 0) + 1);
  };
  const unclaim = (items: readonly Item[]): void => {
    for (const { hash } of items) {
      const left = (claims.get(hash) ?? 0) - 1;
      if (left > 0) claims.set(hash, left);
      else claims.delete(hash);
    }
  };
  /** Folders whose own entry is known to be durable in this process. */
  const lasting = new Map<string, Promise<void>>();
  let total = totalOf.get() ?? 0;

  const fileOf = (hash: Sha256): string => path.join(folder, hash.slice(0, 2), hash);

  /** Bytes that each owner keeps, as far as it was asked for: to sum them up anew for each file of thousands is slow. */
  const usage = new Map<string, number>();
  const usedBy = (owner: string): number => {
    const used = usage.get(owner) ?? usageOf.get(owner) ?? 0;
    usage.set(owner, used);
    return used;
  };

  /** Counts bytes as on their way. Throws EscrowError StorageFull where the owner may not keep as many more. */
  const reserve = (owner: string, size: number): void => {
    const under = inFlight.get(owner) ?? 0;
    const used = usedBy(owner) + under;
    const allowance = allowanceOf(owner);
    if (used + size > allowance) throw allowanceSpent(owner, used, size, allowance);
    inFlight.set(owner, under + size);
  };
  const release = (owner: string, size: number): void => {
    const left = (inFlight.get(owner) ?? 0) - size;
    if (left > 0) inFlight.set(owner, left);
    else inFlight.delete(owner);
  };

  const record = (items: readonly Item[], owner: string): void => {
    at('artefact-before-row');
    const kept = db
      .transaction(() => {
        fence();
        const sums = { added: 0, charged: 0 };
        for (const { hash, size } of items) {
          if (insert.run(hash, size, now()).changes > 0) sums.added += size;
          if (charge.run(owner, hash).changes > 0) sums.charged += size;
        }
        return sums;
      })
      .immediate();
    total += kept.added;
    // Where it was forgotten meanwhile, it is summed up anew, this with it.
    const used = usage.get(owner);
    if (used !== undefined) usage.set(owner, used + kept.charged);
    at('artefact-row');
  };

  /** Whoever made the folder, it counts as there only once its entry is synced: it may be left of a Kernel that died. */
  const lastingFolder = async (parent: string): Promise<void> => {
    await files.makeFolder(parent);
    at('artefact-folder-made');
    await files.syncFolder(folder);
    at('artefact-folder-lasting');
  };

  const newTemporary = (): string => path.join(temporaries, randomBytes(16).toString('hex'));

  const written = async ({ content }: Item, temporary: string): Promise<WrittenFile> => {
    if (!(content instanceof Uint8Array)) return content.file;
    at('artefact-before-write');
    return files.write(temporary, content);
  };

  /** The bytes in a file of another name, durable, and the folder of its own. Throws, and leaves the file to the caller. */
  const writeTemporary = async (item: Item, temporary: string): Promise<void> => {
    const file = await written(item, temporary);
    try {
      at('artefact-written');
      // An error of this sync is final for these pages: the file is given up, never synced again.
      await file.sync();
    } finally {
      await file.close();
    }
    at('artefact-synced');
    const parent = path.dirname(fileOf(item.hash));
    let made = lasting.get(parent);
    if (made === undefined) {
      made = lastingFolder(parent);
      lasting.set(parent, made);
      made.catch(() => lasting.delete(parent));
    }
    await made;
  };

  /** All of them durable under their names: each file is synced before it is renamed, each folder once after that. */
  const write = async (items: readonly Item[]): Promise<void> => {
    const temporary = items.map(({ content }) => (content instanceof Uint8Array ? newTemporary() : content.path));
    const parents = [...new Set(items.map(({ hash }) => path.dirname(fileOf(hash))))];
    try {
      await eachOf(items, (item, n) => writeTemporary(item, temporary[n] ?? ''));
      await eachOf(items, async ({ hash }, n) => {
        await files.rename(temporary[n] ?? '', fileOf(hash));
        at('artefact-renamed');
      });
      await eachOf(parents, (parent) => files.syncFolder(parent));
      at('artefact-lasting');
    } catch (error) {
      for (const parent of parents) lasting.delete(parent);
      await eachOf(temporary, (file) => files.remove(file).catch(() => undefined));
      throw error;
    }
  };

  const keptBy = (hash: Sha256, ...owners: readonly (string | undefined)[]): boolean =>
    owners.some((owner) => owner !== undefined && owned.get(owner, hash) !== undefined);

  const put = async (items: readonly Item[], owner: string, sharedWith: string | undefined): Promise<void> => {
    const wanted = items.filter(({ hash }) => !keptBy(hash, owner, sharedWith));
    if (wanted.length === 0) return;
    const size = wanted.reduce((sum, item) => sum + item.size, 0);
    reserve(owner, size);
    claim(wanted);
    const mine: Item[] = [];
    try {
      // A file without a row may be torn, so only the row counts as "kept".
      const absent = wanted.filter(({ hash }) => rowOf.get(hash) === undefined);
      const others = absent.map(({ hash }) => writing.get(hash)).filter((work) => work !== undefined);
      mine.push(...absent.filter(({ hash }) => !writing.has(hash)));
      const work = mine.length === 0 ? Promise.resolve() : write(mine);
      for (const { hash } of mine) writing.set(hash, work);
      await allOf([work, ...others]);
      record(wanted, owner);
    } finally {
      for (const { hash } of mine) writing.delete(hash);
      unclaim(wanted);
      release(owner, size);
    }
  };

  /** Those of one batch; what another call is putting for the same owner right now is waited for. */
  const putBatch = async (batch: readonly Item[], owner: string, sharedWith: string | undefined): Promise<void> => {
    const keyOf = ({ hash }: Item): string => `${hash} ${owner}`;
    const fresh = new Map<string, Item>();
    const same: Promise<void>[] = [];
    for (const item of batch) {
      const work = putting.get(keyOf(item));
      if (work === undefined) fresh.set(keyOf(item), item);
      else same.push(work);
    }
    const work = put([...fresh.values()], owner, sharedWith).catch((error: unknown) => {
      throw storageFault(error, 'keeping an artefact');
    });
    for (const key of fresh.keys()) putting.set(key, work);
    try {
      await allOf([work, ...same]);
    } finally {
      for (const key of fresh.keys()) putting.delete(key);
    }
  };

  const putAll: ArtefactStore['putAll'] = async (list, owner, sharedWith) => {
    const refs: ArtefactRef[] = [];
    for (let from = 0; from < list.length;) {
      const batch: Item[] = [];
      for (let size = 0; from < list.length && batch.length < batchFiles && size < batchBytes; from += 1) {
        // The caller may reuse its buffer while the write is under way: hash and write one private copy.
        const bytes = Uint8Array.from(list[from] ?? []);
        const hash = hashOf(bytes);
        batch.push({ hash, size: bytes.byteLength, content: bytes });
        refs.push({ sha256: hash, size: bytes.byteLength });
        size += bytes.byteLength;
      }
      await putBatch(batch, owner, sharedWith);
    }
    return refs;
  };

  return {
    async put(bytes, owner): Promise<ArtefactRef> {
      const [ref] = await putAll([bytes], owner);
      if (ref === undefined) throw new Error('what was put has a name');
      return ref;
    },
    putAll,
    intake: (owner, sharedWith) =>
      createIntake({
        files,
        temporary: newTemporary,
        reserve: (size) => reserve(owner, size),
        release: (size) => release(owner, size),
        kept: (hash) => keptBy(hash, owner, sharedWith),
        put: (items) => putBatch(items, owner, sharedWith),
        at,
      }),
    room: (owner) => Math.max(0, allowanceOf(owner) - usedBy(owner) - (inFlight.get(owner) ?? 0)),

    async get(hash): Promise<Uint8Array> {
      const row = kept(hash);
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
        throw storageFault(error, 'reading an artefact', 'read');
      }
      if (bytes.byteLength !== row.size) throw damaged('size');
      if (hashOf(bytes) !== hash) throw damaged('hash');
      return bytes;
    },

    has: (hash) => kept(hash) !== undefined,
    total: () => total,

    removed(hashes) {
      total = totalOf.get() ?? 0;
      usage.clear();
      for (const name of hashes) {
        const hash = Sha256.parse(name);
        // Put again meanwhile: it is kept. Looked up and removed without a pause, so that no put comes in between.
        if (rowOf.get(hash) !== undefined || claims.has(hash)) continue;
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
          if (hash.success && (rowOf.get(name) !== undefined || claims.has(hash.data))) continue;
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
        const page = guardedRead('reading the list of artefacts', () => pageOf.all(after));
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

/** Waits for all, then throws the first fault: nothing goes on behind the caller's back. */
async function allOf(work: readonly Promise<unknown>[]): Promise<void> {
  const fault = (await Promise.allSettled(work)).find(({ status }) => status === 'rejected');
  if (fault?.status === 'rejected') throw fault.reason;
}

/** Some at a time. After a fault nothing more is begun, and what was begun is over. */
async function eachOf<T>(items: readonly T[], work: (item: T, n: number) => Promise<void>): Promise<void> {
  const state = { failed: false };
  const entries = items.entries();
  const worker = async (): Promise<void> => {
    for (const [n, item] of entries) {
      if (state.failed) return;
      try {
        await work(item, n);
      } catch (error) {
        state.failed = true;
        throw error;
      }
    }
  };
  await allOf(Array.from({ length: Math.min(filesAtOnce, items.length) }, worker));
}
