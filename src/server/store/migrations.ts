/** One step of the schema. Never edited after a release: a change is a new step. */
export interface Migration {
  /** `PRAGMA user_version` after the step; contiguous from 1. */
  readonly to: number;
  /** Carried out in one transaction. */
  readonly statements: readonly string[];
}

export const migrations: readonly Migration[] = [
  {
    to: 1,
    statements: [
      `CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value ANY NOT NULL
      ) STRICT, WITHOUT ROWID`,
      `CREATE TABLE event (
        seq INTEGER PRIMARY KEY CHECK (seq >= 1),
        stream TEXT NOT NULL,
        version INTEGER NOT NULL CHECK (version >= 1),
        type TEXT NOT NULL,
        at INTEGER NOT NULL,
        data TEXT NOT NULL,
        prev_hash TEXT NOT NULL,
        hash TEXT NOT NULL,
        UNIQUE (stream, version)
      ) STRICT`,
      `CREATE INDEX event_by_stream_seq ON event (stream, seq)`,
      `CREATE TRIGGER event_is_kept_as_written BEFORE UPDATE ON event
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END`,
      `CREATE TRIGGER event_is_kept BEFORE DELETE ON event
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END`,
      `CREATE TABLE view (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        root TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (kind, key)
      ) STRICT`,
      `CREATE INDEX view_by_update ON view (kind, updated_at DESC, key)`,
      `CREATE INDEX view_by_root ON view (kind, root, updated_at DESC, key)`,
      `CREATE TABLE artefact (
        sha256 TEXT PRIMARY KEY,
        size INTEGER NOT NULL CHECK (size >= 0),
        created_at INTEGER NOT NULL
      ) STRICT, WITHOUT ROWID`,
      `CREATE TABLE artefact_owner (
        owner TEXT NOT NULL,
        sha256 TEXT NOT NULL REFERENCES artefact (sha256),
        PRIMARY KEY (owner, sha256)
      ) STRICT, WITHOUT ROWID`,
    ],
  },
  {
    // Bytes that a person let go: the log still names them, and this says why they are not there.
    to: 2,
    statements: [
      `CREATE TABLE artefact_dropped (
        sha256 TEXT PRIMARY KEY,
        size INTEGER NOT NULL CHECK (size >= 0),
        dropped_at INTEGER NOT NULL,
        seq INTEGER NOT NULL REFERENCES event (seq)
      ) STRICT, WITHOUT ROWID`,
      `CREATE INDEX artefact_owner_by_hash ON artefact_owner (sha256)`,
    ],
  },
];
