import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { setImmediate as turn } from 'node:timers/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { canonicalJson } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { createArtefactStore } from './artefacts.ts';
import { backUp, previewBackup } from './backup.ts';
import { ChainCheck, chainHash, chainStart, type EventRow } from './chain.ts';
import { openDatabase } from './database.ts';
import { guarded, guardedRead, storageFault } from './faults.ts';
import type { Migration } from './migrations.ts';
import {
  machineStream,
  StaleEpoch,
  VersionConflict,
  type Json,
  type NewEvent,
  type Store,
  type StoredEvent,
  type ViewRow,
} from './port.ts';

export interface OpenStoreOptions {
  /** State folder, already checked (protocol/home). The caller holds the Kernel lock of it. */
  readonly home: string;
  /** Wall clock, milliseconds. */
  readonly now: () => number;
  /** SQLite's binding beside a bundle; undefined: node_modules. */
  readonly nativeBinding?: string | undefined;
  /** Bytes a session may keep in artefacts; default 128 MiB. */
  readonly artefactAllowance?: number;
  /** Only tests hand in other steps. */
  readonly migrations?: readonly Migration[];
  /** Called by name around commits and effects on the disk: where tests kill the process. */
  readonly at?: (point: string) => void;
}

interface ViewRecord {
  readonly kind: ViewRow['kind'];
  readonly key: string;
  readonly root: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly json: string;
}

const toEvent = (row: EventRow): StoredEvent => ({
  seq: row.seq,
  stream: row.stream,
  version: row.version,
  type: row.type,
  at: row.at,
  data: JSON.parse(row.data) as Json,
  hash: row.hash as Sha256,
});

const toView = (row: ViewRecord): ViewRow => ({
  kind: row.kind,
  key: row.key,
  root: row.root,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  json: JSON.parse(row.json) as Json,
});

function startEpoch(db: Database.Database): { readonly epoch: number; readonly homeId: string } {
  const read = db.prepare<[string], number | string>('SELECT value FROM meta WHERE key = ?').pluck();
  const write = db.prepare(
    'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
  );
  return db
    .transaction(() => {
      const epoch = Number(read.get('epoch') ?? 0) + 1;
      const homeId = String(read.get('homeId') ?? randomBytes(10).toString('hex'));
      write.run('epoch', epoch);
      write.run('homeId', homeId);
      write.run('clean', 0);
      return { epoch, homeId };
    })
    .immediate();
}

/**
 * Opens the evidence store of a home: database, migrations, a new epoch, artefact files. Synchronous; the caller owns
 * the result and closes it. Throws EscrowError StorageTooNew, StorageFull, StorageUnwritable.
 */
export function openStore(options: OpenStoreOptions): Store {
  const { home, now } = options;
  const db = openDatabase({
    file: path.join(home, 'escrow.db'),
    backups: path.join(home, 'backups'),
    now,
    nativeBinding: options.nativeBinding,
    ...(options.at === undefined ? {} : { point: options.at }),
    ...(options.migrations === undefined ? {} : { migrations: options.migrations }),
  });
  try {
    return storeOver(db, options);
  } catch (error) {
    db.close();
    throw storageFault(error, 'opening the state database', 'read');
  }
}

function storeOver(db: Database.Database, options: OpenStoreOptions): Store {
  const { home, now } = options;
  const point = options.at ?? (() => undefined);
  const { epoch, homeId } = guarded('opening the state database', () => startEpoch(db));

  const epochNow = db.prepare<[], number>("SELECT value FROM meta WHERE key = 'epoch'").pluck();
  const fence = (): void => {
    const current = epochNow.get();
    if (current !== epoch) throw new StaleEpoch(`this Kernel has epoch ${epoch}, the store is at ${String(current)}`);
  };
  const artefacts = createArtefactStore({
    db,
    folder: path.join(home, 'artefacts'),
    now,
    fence,
    at: point,
    ...(options.artefactAllowance === undefined ? {} : { allowance: options.artefactAllowance }),
  });

  const columns = 'seq, stream, version, type, at, data, prev_hash, hash';
  const headRow = db.prepare<[], { seq: number }>('SELECT COALESCE(MAX(seq), 0) AS seq FROM event');
  const tailOf = db.prepare<[string], { version: number; hash: string }>(
    'SELECT version, hash FROM event WHERE stream = ? ORDER BY version DESC LIMIT 1',
  );
  const insertEvent = db.prepare(
    `INSERT INTO event (${columns}) VALUES (@seq, @stream, @version, @type, @at, @data, @prev_hash, @hash)`,
  );
  const setHead = db.prepare(
    "INSERT INTO meta (key, value) VALUES ('head', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
  );
  const upsertView = db.prepare(
    `INSERT INTO view (kind, key, root, created_at, updated_at, json)
     VALUES (@kind, @key, @root, @createdAt, @updatedAt, @json)
     ON CONFLICT (kind, key) DO UPDATE SET root = excluded.root, created_at = excluded.created_at,
       updated_at = excluded.updated_at, json = excluded.json`,
  );
  const loadRows = db.prepare<[string, number], EventRow>(
    `SELECT ${columns} FROM event WHERE stream = ? AND version > ? ORDER BY version`,
  );
  const sinceRows = db.prepare<[number, number], EventRow>(
    `SELECT ${columns} FROM event WHERE seq > ? ORDER BY seq LIMIT ?`,
  );
  const streamSinceRows = db.prepare<[string, number, number], EventRow>(
    `SELECT ${columns} FROM event WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?`,
  );
  const streamsFrom = db
    .prepare<[string, string], string>(
      'SELECT stream FROM event WHERE stream >= ? AND stream < ? AND version = 1 ORDER BY stream',
    )
    .pluck();
  const oneView = db.prepare<[string, string], ViewRecord>('SELECT * FROM view WHERE kind = ? AND key = ?');
  // Two ranges of the index, one after the other: a condition over both would read all of it.
  const viewsOfKind = db.prepare<[string, number, string, string, number, number], ViewRecord>(
    `SELECT * FROM (SELECT * FROM view WHERE kind = ? AND updated_at = ? AND key > ? ORDER BY key)
     UNION ALL SELECT * FROM (SELECT * FROM view WHERE kind = ? AND updated_at < ? ORDER BY updated_at DESC, key)
     LIMIT ?`,
  );
  const viewsOfRoot = db.prepare<[string, string, number, string, string, string, number, number], ViewRecord>(
    `SELECT * FROM (SELECT * FROM view WHERE kind = ? AND root = ? AND updated_at = ? AND key > ? ORDER BY key)
     UNION ALL SELECT * FROM (
       SELECT * FROM view WHERE kind = ? AND root = ? AND updated_at < ? ORDER BY updated_at DESC, key)
     LIMIT ?`,
  );

  const listeners = new Set<(events: readonly StoredEvent[]) => void>();
  let head = headRow.get()?.seq ?? 0;
  /** Backups under way: what they copy stays where it is. */
  let backups = 0;
  const undelivered: (readonly StoredEvent[])[] = [];
  let delivering = false;
  /** A listener may append itself: its events wait until everybody has heard of the earlier ones. */
  const deliver = (): void => {
    if (delivering) return;
    delivering = true;
    for (let batch = undelivered.shift(); batch !== undefined; batch = undelivered.shift()) {
      for (const listener of listeners) {
        try {
          listener(batch);
        } catch (error) {
          // The events are committed: a listener's defect must not look like a failed append.
          setImmediate(() => {
            throw error;
          });
        }
      }
    }
    delivering = false;
  };

  const appendInTransaction = db.transaction(
    (...[stream, expected, events, views]: Parameters<Store['append']>): readonly StoredEvent[] => {
      fence();
      const tail = tailOf.get(stream);
      const have = tail?.version ?? 0;
      if (have !== expected) {
        throw new VersionConflict(`stream ${stream} is at version ${have}, not ${expected}`);
      }
      let previous = tail?.hash ?? chainStart;
      let seq = headRow.get()?.seq ?? 0;
      const at = now();
      const stored: StoredEvent[] = [];
      for (const [i, event] of events.entries()) {
        seq += 1;
        const bare = {
          seq,
          stream,
          version: have + i + 1,
          type: event.type,
          at,
          data: canonicalJson(event.data),
          prev_hash: previous,
        };
        const row: EventRow = { ...bare, hash: chainHash(bare) };
        insertEvent.run(row);
        previous = row.hash;
        stored.push(toEvent(row));
      }
      point('append-in-transaction');
      if (stored.length > 0) setHead.run(`${seq}:${previous}`);
      for (const view of views?.(stored) ?? []) upsertView.run({ ...view, json: canonicalJson(view.json) });
      return stored;
    },
  );

  const soleOf = db.prepare<[string, string], { sha256: string; size: number }>(
    `SELECT DISTINCT a.sha256, a.size FROM artefact_owner o JOIN artefact a USING (sha256)
     WHERE o.owner IN (SELECT value FROM json_each(?)) AND NOT EXISTS (
       SELECT 1 FROM artefact_owner other WHERE other.sha256 = a.sha256
       AND other.owner NOT IN (SELECT value FROM json_each(?)))`,
  );
  const noteDropped = db.prepare(
    'INSERT OR REPLACE INTO artefact_dropped (sha256, size, dropped_at, seq) VALUES (?, ?, ?, ?)',
  );
  const dropOwners = db.prepare('DELETE FROM artefact_owner WHERE sha256 = ?');
  const dropArtefact = db.prepare('DELETE FROM artefact WHERE sha256 = ?');
  const letGoInTransaction = db.transaction((list: string, event: NewEvent) => {
    const rows = soleOf.all(list, list);
    const stored = appendInTransaction(machineStream, tailOf.get(machineStream)?.version ?? 0, [event], undefined);
    const seq = stored.at(-1)?.seq ?? 0;
    for (const { sha256, size } of rows) {
      noteDropped.run(sha256, size, now(), seq);
      dropOwners.run(sha256);
      dropArtefact.run(sha256);
    }
    return { stored, rows };
  });

  const readLog = <T>(read: () => T): T => guardedRead('reading the evidence log', read);
  const readViews = <T>(read: () => T): T => guardedRead('reading what is derived from the log', read);

  /** Read in pieces: the log of a long life does not fit into memory at once. */
  function* everyEvent(): Generator<EventRow> {
    let after = 0;
    for (;;) {
      const rows = readLog(() => sinceRows.all(after, 2000));
      yield* rows;
      const last = rows.at(-1);
      if (last === undefined) return;
      after = last.seq;
    }
  }

  const metaOf = db.prepare<[string], string | number>('SELECT value FROM meta WHERE key = ?').pluck();
  const setMeta = db.prepare(
    'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
  );
  const recordedHead = (): string | undefined => {
    const head = readLog(() => metaOf.get('head'));
    return head === undefined ? undefined : String(head);
  };

  return {
    epoch,
    homeId,
    artefacts,

    append(stream, expectedVersion, events, views) {
      point('append-before');
      const stored = guarded('writing the evidence log', () =>
        appendInTransaction.immediate(stream, expectedVersion, events, views),
      );
      point('append-committed');
      const last = stored.at(-1);
      if (last !== undefined) {
        head = last.seq;
        undelivered.push(stored);
        deliver();
      }
      return stored;
    },

    load: (stream, afterVersion = 0) => readLog(() => loadRows.all(stream, afterVersion)).map(toEvent),
    version: (stream) => readLog(() => tailOf.get(stream))?.version ?? 0,
    since: (seq, limit) => readLog(() => sinceRows.all(seq, limit)).map(toEvent),
    streamSince: (stream, seq, limit) => readLog(() => streamSinceRows.all(stream, seq, limit)).map(toEvent),
    head: () => head,

    onAppended(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },

    view(kind, key) {
      const row = readViews(() => oneView.get(kind, key));
      return row === undefined ? undefined : toView(row);
    },

    views(kind, filter = {}) {
      const before = filter.before ?? Number.MAX_SAFE_INTEGER;
      // Without a key, everything of that moment counts as seen.
      const after = filter.beforeKey ?? '\u{10ffff}';
      const limit = filter.limit ?? -1;
      const { root } = filter;
      const rows = readViews(() =>
        root === undefined
          ? viewsOfKind.all(kind, before, after, kind, before, limit)
          : viewsOfRoot.all(kind, root, before, after, kind, root, before, limit),
      );
      return rows.map(toView);
    },

    // The name of a stream has an end that is lower than any other letter after the prefix.
    streams: (prefix) => readLog(() => streamsFrom.all(prefix, `${prefix}\u{10ffff}`)),

    reproject(projection, version, rows) {
      const name = `projection:${projection}`;
      if (readViews(() => metaOf.get(name)) === version) return;
      const write = db.transaction(() => {
        fence();
        for (const row of rows()) upsertView.run({ ...row, json: canonicalJson(row.json) });
        setMeta.run(name, version);
      });
      guarded('writing views anew', () => write.immediate());
    },

    verifyChains() {
      const check = new ChainCheck();
      for (const row of everyEvent()) check.add(row);
      return check.end(recordedHead());
    },

    async verifyLog() {
      // Others append meanwhile: the state that is checked is the one at the start.
      const upTo = head;
      const recorded = recordedHead();
      const check = new ChainCheck();
      for (let after = 0; after < upTo; after = check.events) {
        const rows = readLog(() => sinceRows.all(after, Math.min(1000, upTo - after)));
        for (const row of rows) check.add(row);
        if (rows.length === 0) break;
        await turn();
      }
      return { events: check.events, broken: check.end(recorded) };
    },

    async letGo(owners, event) {
      const list = JSON.stringify(owners);
      if (event !== undefined && backups > 0) {
        throw new EscrowError('WrongState', 'A backup is being made.', 'Let go of the bytes when it is done.');
      }
      if (event === undefined) {
        const rows = readLog(() => soleOf.all(list, list));
        return { artefacts: rows.length, bytes: rows.reduce((sum, row) => sum + row.size, 0) };
      }
      const { stored, rows } = guarded('letting go of artefacts', () => letGoInTransaction.immediate(list, event));
      const last = stored.at(-1);
      if (last !== undefined) head = last.seq;
      undelivered.push(stored);
      deliver();
      artefacts.removed(rows.map((row) => row.sha256));
      return { artefacts: rows.length, bytes: rows.reduce((sum, row) => sum + row.size, 0) };
    },

    previewBackup: () => readLog(() => previewBackup(db)),
    async backUp(folder) {
      backups += 1;
      try {
        return await backUp({ db, home, folder, now, homeId, nativeBinding: options.nativeBinding, point });
      } finally {
        backups -= 1;
      }
    },

    close() {
      if (!db.open) return;
      try {
        // Only the current epoch may say that this was a clean end.
        if (epochNow.get() === epoch) db.prepare("UPDATE meta SET value = 1 WHERE key = 'clean'").run();
      } catch {
        // A full or read-only disk: the next start simply checks the whole database.
      } finally {
        db.close();
      }
    },
  };
}
