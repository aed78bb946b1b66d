import { constants, existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import Database from 'better-sqlite3';
import * as z from 'zod';
import { writeWhole } from '../../protocol/endpoint.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 as hashOf } from '../../protocol/hash.ts';
import { ChainCheck, type EventRow } from './chain.ts';
import { schemaVersion, stampOf } from './database.ts';
import { storageFault } from './faults.ts';
import { nodeFiles } from './file-layer.ts';
import { migrations } from './migrations.ts';
import type { BackupSize } from './port.ts';

/** `backup.json`, written last: a folder without it is no backup. */
const Manifest = z.strictObject({
  format: z.literal(1),
  at: z.number(),
  homeId: z.string(),
  schema: z.number().int(),
  events: z.number().int(),
  databaseBytes: z.number().int(),
  artefacts: z.number().int(),
  artefactBytes: z.number().int(),
});

const manifestFile = (folder: string): string => path.join(folder, 'backup.json');
const artefactOf = (folder: string, hash: string): string => path.join(folder, 'artefacts', hash.slice(0, 2), hash);

export function previewBackup(db: Database.Database): BackupSize {
  const pages = Number(db.pragma('page_count', { simple: true })) * Number(db.pragma('page_size', { simple: true }));
  const events = db.prepare<[], number>('SELECT COALESCE(MAX(seq), 0) FROM event').pluck().get() ?? 0;
  const files = db
    .prepare<[], { n: number; bytes: number }>('SELECT COUNT(*) AS n, COALESCE(SUM(size), 0) AS bytes FROM artefact')
    .get();
  return { events, databaseBytes: pages, artefacts: files?.n ?? 0, artefactBytes: files?.bytes ?? 0 };
}

async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const refused = (folder: string, message: string, next: string): EscrowError =>
  new EscrowError('UnsafePath', message, next, { path: folder });

/** A new folder of mode 0700, or an empty one. */
async function makeTarget(folder: string): Promise<void> {
  if (!path.isAbsolute(folder)) throw refused(folder, `${folder} is not an absolute path.`, 'Name a folder in full.');
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if ((await readdir(folder)).length > 0) {
    throw refused(folder, `${folder} is not empty.`, 'Name a folder that does not exist yet.');
  }
  await chmod(folder, 0o700);
}

/** Every artefact that a database copy names, in pages. */
function* artefactsIn(db: Database.Database): Generator<{ readonly sha256: string; readonly size: number }> {
  const page = db.prepare<[string], { sha256: string; size: number }>(
    'SELECT sha256, size FROM artefact WHERE sha256 > ? ORDER BY sha256 LIMIT 500',
  );
  for (let after = ''; ;) {
    const rows = page.all(after);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.sha256;
  }
}

export interface BackupOptions {
  readonly db: Database.Database;
  readonly home: string;
  readonly folder: string;
  readonly homeId: string;
  readonly now: () => number;
  readonly nativeBinding: string | undefined;
  readonly point: (name: string) => void;
}

/** See Store.backUp. The database is copied first; the artefacts that the copy names are all there by then. */
export async function backUp(options: BackupOptions): Promise<BackupSize & { readonly folder: string }> {
  const { db, home, folder } = options;
  try {
    await makeTarget(folder);
    const copied = path.join(folder, 'escrow.db');
    db.prepare('VACUUM INTO ?').run(copied);
    await syncFile(copied);
    options.point('backup-database');
    const { nativeBinding } = options;
    const copy = new Database(copied, { readonly: true, ...(nativeBinding === undefined ? {} : { nativeBinding }) });
    try {
      const size = previewBackup(copy);
      for (const { sha256 } of artefactsIn(copy)) {
        const target = artefactOf(folder, sha256);
        await mkdir(path.dirname(target), { recursive: true, mode: 0o700 });
        await copyFile(artefactOf(home, sha256), target, constants.COPYFILE_FICLONE);
        await syncFile(target);
      }
      options.point('backup-artefacts');
      const manifest: z.output<typeof Manifest> = {
        format: 1,
        at: options.now(),
        homeId: options.homeId,
        schema: schemaVersion(copy),
        ...size,
      };
      await writeWhole(manifestFile(folder), `${JSON.stringify(manifest)}\n`);
      return { ...size, folder };
    } finally {
      copy.close();
    }
  } catch (error) {
    throw storageFault(error, 'making a backup');
  }
}

/** What takes the place of the state, and where the former one goes. Written before the first move. */
const Swap = z.strictObject({ staged: z.string(), former: z.string() });
const swapFile = (home: string): string => path.join(home, 'restore.json');
/** In this order: the log last, so that a log is never without its artefacts. */
const parts = ['artefacts', 'escrow.db-wal', 'escrow.db-shm', 'escrow.db'] as const;

export interface Restored extends BackupSize {
  /** Where the state went that was there before; nothing of it is deleted. */
  readonly former: string;
}

/**
 * Puts a backup in the place of a home's state. The caller holds the lock of the home. The backup is checked whole first
 * (schema, hash chains, every artefact), and its epoch is raised above both, so that no Kernel of either can write.
 * Throws EscrowError NotFound, StorageTooNew, ArtefactDamaged, StorageFull, StorageUnwritable.
 */
export async function restoreBackup(
  home: string,
  folder: string,
  now: () => number,
  nativeBinding?: string,
  point: (name: string) => void = () => undefined,
): Promise<Restored> {
  try {
    const manifest = await readManifest(folder);
    const newest = migrations.at(-1)?.to ?? 0;
    if (manifest.schema > newest) {
      throw new EscrowError(
        'StorageTooNew',
        `The backup was written by a newer Escrow (schema ${manifest.schema}, this one knows ${newest}).`,
        'Restore it with the newer Escrow.',
        { schema: manifest.schema, known: newest },
      );
    }
    const stamp = stampOf(now());
    const swap = { staged: `restoring-${stamp}`, former: `replaced-${stamp}` };
    const staged = path.join(home, swap.staged);
    await mkdir(staged, { mode: 0o700 });
    try {
      await copyFile(path.join(folder, 'escrow.db'), path.join(staged, 'escrow.db'), constants.COPYFILE_FICLONE);
      await chmod(path.join(staged, 'escrow.db'), 0o600);
      await stage(home, folder, staged, nativeBinding);
    } catch (error) {
      await rm(staged, { recursive: true, force: true });
      throw error;
    }
    await writeWhole(swapFile(home), `${JSON.stringify(swap)}\n`);
    point('restore-intended');
    await finishRestore(home, point);
    const { events, databaseBytes, artefacts, artefactBytes } = manifest;
    return { former: path.join(home, swap.former), events, databaseBytes, artefacts, artefactBytes };
  } catch (error) {
    throw storageFault(error, 'restoring a backup');
  }
}

async function readManifest(folder: string): Promise<z.output<typeof Manifest>> {
  try {
    return Manifest.parse(JSON.parse(await readFile(manifestFile(folder), 'utf8')));
  } catch (error) {
    throw new EscrowError(
      'NotFound',
      `${folder} holds no whole backup.`,
      'Name a folder that `escrow kernel backup` has made.',
      { path: folder, why: error instanceof Error ? error.message : String(error) },
    );
  }
}

const damaged = (what: string, details: Readonly<Record<string, unknown>>): EscrowError =>
  new EscrowError('ArtefactDamaged', `The backup is damaged (${what}).`, 'Use another backup.', details);

async function stage(home: string, folder: string, staged: string, nativeBinding: string | undefined): Promise<void> {
  const binding = nativeBinding === undefined ? {} : { nativeBinding };
  const db = new Database(path.join(staged, 'escrow.db'), binding);
  try {
    const check = new ChainCheck();
    for (const row of db.prepare<[], EventRow>('SELECT * FROM event ORDER BY seq').iterate()) check.add(row);
    const head = db.prepare<[], string>("SELECT value FROM meta WHERE key = 'head'").pluck().get();
    const [broken] = check.end(head);
    if (broken !== undefined) throw damaged(broken.reason, { ...broken });
    const rows = [...artefactsIn(db)];
    for (const { sha256, size } of rows) {
      const bytes = await readFile(artefactOf(folder, sha256)).catch(() => undefined);
      if (bytes?.byteLength !== size || hashOf(bytes) !== sha256) throw damaged(`artefact ${sha256}`, { sha256 });
      const target = artefactOf(staged, sha256);
      await mkdir(path.dirname(target), { recursive: true, mode: 0o700 });
      await copyFile(artefactOf(folder, sha256), target, constants.COPYFILE_FICLONE);
      await syncFile(target);
    }
    await mkdir(path.join(staged, 'artefacts'), { recursive: true, mode: 0o700 });
    const epochOf = (of: Database.Database): number =>
      of.prepare<[], number>("SELECT value FROM meta WHERE key = 'epoch'").pluck().get() ?? 0;
    let epoch = epochOf(db);
    const current = path.join(home, 'escrow.db');
    if (existsSync(current)) {
      // A state that can't be read is the very reason to restore: then only the backup's epoch is known.
      try {
        const running = new Database(current, { readonly: true, ...binding });
        try {
          epoch = Math.max(epoch, epochOf(running));
        } finally {
          running.close();
        }
      } catch {
        epoch += 1_000_000;
      }
    }
    db.prepare("UPDATE meta SET value = ? WHERE key = 'epoch'").run(epoch);
    db.pragma('journal_mode = DELETE');
  } finally {
    db.close();
  }
  await syncFile(path.join(staged, 'escrow.db'));
}

/** Carries a swap to its end that was begun, also by a process that died in it. Called under the lock, before the store opens. */
export async function finishRestore(home: string, point: (name: string) => void = () => undefined): Promise<void> {
  let swap: z.output<typeof Swap>;
  try {
    swap = Swap.parse(JSON.parse(await readFile(swapFile(home), 'utf8')));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return;
    throw new EscrowError(
      'StorageUnwritable',
      `${swapFile(home)} cannot be read.`,
      'Look at the folders restoring-… and replaced-… beside it, and remove it when the state is whole.',
    );
  }
  const staged = path.join(home, swap.staged);
  const former = path.join(home, swap.former);
  await mkdir(former, { recursive: true, mode: 0o700 });
  const there = (file: string): Promise<boolean> =>
    stat(file).then(
      () => true,
      () => false,
    );
  for (const part of parts) {
    const current = path.join(home, part);
    const next = path.join(staged, part);
    const replaces = await there(next);
    // What is there while the new part still waits is the former state. The log's side files have no new part.
    const isFormer = replaces || part === 'escrow.db-wal' || part === 'escrow.db-shm';
    if (isFormer && (await there(current))) await rename(current, path.join(former, part));
    point('restore-moved-away');
    if (replaces) await rename(next, current);
    point('restore-moved-in');
  }
  await nodeFiles.syncFolder(former);
  await nodeFiles.syncFolder(home);
  point('restore-moved');
  await rm(staged, { recursive: true, force: true });
  await rm(swapFile(home), { force: true });
}
