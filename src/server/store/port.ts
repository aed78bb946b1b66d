import type { ArtefactRef, Sha256, WallTime } from '../../protocol/primitives.ts';

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** The stream of what concerns the whole home and no session: leftovers that were swept, bytes that were let go. */
export const machineStream = 'kernel';

export interface NewEvent {
  readonly type: string;
  readonly data: Json;
}

export interface StoredEvent {
  /** Contiguous over the whole log, from 1. */
  readonly seq: number;
  readonly stream: string;
  /** Contiguous in the stream, from 1. */
  readonly version: number;
  readonly type: string;
  readonly at: WallTime;
  readonly data: Json;
  readonly hash: Sha256;
}

/** A row of a projection: rebuilt from events, written in the same transaction as they are. */
export interface ViewRow {
  readonly kind:
    | 'session'
    | 'open'
    | 'contract'
    | 'run'
    | 'baseline'
    | 'ledger'
    | 'approval'
    | 'inventory'
    | 'image'
    | 'image-approval'
    | 'salvaged';
  readonly key: string;
  /** For filtering lists; empty where it has no meaning. */
  readonly root: string;
  readonly createdAt: WallTime;
  readonly updatedAt: WallTime;
  readonly json: Json;
}

/** The stream's version is not the expected one: somebody else wrote. A defect or a race, never retried blindly. */
export class VersionConflict extends Error {
  override readonly name = 'VersionConflict';
}
/** Another Kernel with a higher epoch has opened the store: this one may write nothing any more. */
export class StaleEpoch extends Error {
  override readonly name = 'StaleEpoch';
}

export interface BackupSize {
  readonly events: number;
  readonly databaseBytes: number;
  readonly artefacts: number;
  readonly artefactBytes: number;
}

export interface Store {
  /** One higher at each Kernel start; checked inside each write transaction. */
  readonly epoch: number;
  /** Random, made with the store: the identity of this home in container labels. */
  readonly homeId: string;
  /**
   * Appends durably (synchronous=FULL) and updates views in the same transaction. `views` gets the stored events, so
   * that rows can carry their sequence numbers. Throws VersionConflict, StaleEpoch, EscrowError StorageFull or
   * StorageUnwritable.
   */
  append(
    stream: string,
    expectedVersion: number,
    events: readonly NewEvent[],
    views?: (stored: readonly StoredEvent[]) => readonly ViewRow[],
  ): readonly StoredEvent[];
  load(stream: string, afterVersion?: number): readonly StoredEvent[];
  /** Version of the stream's last event; 0 where it has none. */
  version(stream: string): number;
  /** Events of all streams after a sequence number, at most `limit`. */
  since(seq: number, limit: number): readonly StoredEvent[];
  /** Events of one stream after a global sequence number. */
  streamSince(stream: string, seq: number, limit: number): readonly StoredEvent[];
  head(): number;
  /** Called after commit, in order. */
  onAppended(listener: (events: readonly StoredEvent[]) => void): () => void;
  view(kind: ViewRow['kind'], key: string): ViewRow | undefined;
  /** Newest `updatedAt` first, by key within a moment; `before` and `beforeKey` are those of the last row seen. */
  views(
    kind: ViewRow['kind'],
    filter?: { root?: string; before?: WallTime; beforeKey?: string; limit?: number },
  ): readonly ViewRow[];
  /** Streams whose name begins so, in order of their names. */
  streams(prefix: string): readonly string[];
  /**
   * Writes rows of a projection anew where those in the store were made by another version of it; all in one
   * transaction. Throws like `append`.
   */
  reproject(projection: string, version: number, rows: () => Iterable<ViewRow>): void;
  /** Recomputes every hash chain; returns the streams whose chain is broken. */
  verifyChains(): readonly { readonly stream: string; readonly version: number; readonly reason: string }[];
  /** The same, in pieces: others are served meanwhile. */
  verifyLog(): Promise<{
    readonly events: number;
    readonly broken: readonly { readonly stream: string; readonly version: number; readonly reason: string }[];
  }>;
  /** What a backup would copy. */
  previewBackup(): BackupSize;
  /** Copies log and artefacts of one moment into a new folder. Throws EscrowError UnsafePath, StorageFull, StorageUnwritable. */
  backUp(folder: string): Promise<BackupSize & { readonly folder: string }>;
  /**
   * Lets go of the bytes of artefacts that only these owners have; `event` is recorded in the same transaction, the log
   * itself keeps every event. Without `event` nothing changes. Gives what goes, or would go.
   */
  letGo(owners: readonly string[], event?: NewEvent): Promise<{ readonly artefacts: number; readonly bytes: number }>;
  readonly artefacts: ArtefactStore;
  close(): void;
}

/** One file on its way into the store. */
export interface IncomingArtefact {
  /** Takes the next bytes; they may change afterwards. Throws RangeError for more than were announced, else nothing. */
  add(bytes: Uint8Array): void;
  /** Once, when all of them have come: what it is, whether or not it can be kept. Throws RangeError where some are missing. */
  whole(): ArtefactRef;
}

/**
 * Files that come one after the other and are kept together or not at all. One that finds no room, or that the disk does
 * not take, is hashed all the same: it may be one that is kept already. The disk waits for nothing before `commit`.
 */
export interface Intake {
  /**
   * Begins a file of so many bytes: they count as used from now on, until it turns out to be kept already. One before it
   * that was not ended is given up.
   */
  file(size: number): IncomingArtefact;
  /** Lets go of all that has come; more may come. */
  startOver(): void;
  /** Why a file can't be kept: StorageFull, StorageUnwritable, a defect. Undefined where it can, or is kept already. */
  refusal(sha256: Sha256): Error | undefined;
  /** Keeps exactly these, durable and in one step, lets go of the others and ends the intake. Throws a refusal, or like `put`. */
  commit(wanted: readonly Sha256[]): Promise<void>;
  /** Lets go of all of it and ends the intake; what comes later is not kept. After `commit` it has no effect. Never throws. */
  drop(): void;
}

/** Content-addressed files: temp → write → fsync → rename → fsync of the folder; the row only afterwards. */
export interface ArtefactStore {
  /** `owner` is charged (128 MiB a session, temporary writes included). Throws EscrowError StorageFull, StorageUnwritable. */
  put(bytes: Uint8Array, owner: string): Promise<ArtefactRef>;
  /**
   * The same of many, in their order, with fewer waits for the disk; they must not change until it is over. Where it
   * throws, those of batches that were kept before are charged. What `sharedWith` keeps already is not charged again.
   */
  putAll(list: readonly Uint8Array[], owner: string, sharedWith?: string): Promise<readonly ArtefactRef[]>;
  /**
   * A way in for bytes that come piece by piece: temporary files until it ends, so that none of them stay in memory.
   * Whoever opens it ends it. Owner and `sharedWith` as of `putAll`.
   */
  intake(owner: string, sharedWith?: string): Intake;
  /** Bytes that may still be kept for an owner. */
  room(owner: string): number;
  /** Re-hashed on read. Throws EscrowError NotFound, ArtefactDamaged. */
  get(sha256: Sha256): Promise<Uint8Array>;
  has(sha256: Sha256): boolean;
  /** Bytes of all artefacts. */
  total(): number;
  /** Removes files that no row names: a Kernel died between the rename and the row. Never throws. */
  sweepOrphans(): Promise<{ readonly files: number; readonly bytes: number }>;
  /** Reads and re-hashes every artefact. */
  verify(): Promise<{
    readonly checked: number;
    readonly faults: readonly { readonly sha256: Sha256; readonly reason: string }[];
  }>;
}
