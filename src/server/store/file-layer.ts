import { close, closeSync, fsync, openSync, unlinkSync, writeSync } from 'node:fs';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';

/** A file that is still open by the descriptor that wrote it: only that one surely hears of a failed write-back. */
export interface WrittenFile {
  /** An error of this is final for the file's pages: it must not be tried again. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** A file that grows as its bytes come. */
export interface GrowingFile extends WrittenFile {
  /** Writes all of them before it returns, into the system's cache: who gives them may use their memory again. */
  append(bytes: Uint8Array): void;
  /** Closes and removes it where neither has happened. Never throws. */
  discard(): void;
}

/**
 * The calls by which the artefact store reaches the disk, one promise a system call (but for files that grow), so that a test can put a layer in
 * their place that forgets or reorders whatever was not synced.
 */
export interface FileLayer {
  /** Makes a new file (fails where one exists) and writes all bytes. The caller syncs and closes it. */
  write(file: string, bytes: Uint8Array): Promise<WrittenFile>;
  /** Makes a new file (fails where one exists) that is empty. The caller closes or discards it. */
  grow(file: string): GrowingFile;
  rename(from: string, to: string): Promise<void>;
  /** True when the folder is new. */
  makeFolder(folder: string): Promise<boolean>;
  syncFolder(folder: string): Promise<void>;
  read(file: string): Promise<Uint8Array>;
  remove(file: string): Promise<void>;
}

const codeOf = (error: unknown): unknown => (error instanceof Error && 'code' in error ? error.code : undefined);

export const nodeFiles: FileLayer = {
  async write(file, bytes) {
    const handle = await open(file, 'wx', 0o600);
    try {
      await handle.writeFile(bytes);
    } catch (error) {
      await handle.close().catch(() => undefined);
      throw error;
    }
    return { sync: () => handle.sync(), close: () => handle.close() };
  },
  grow,
  rename,
  async makeFolder(folder) {
    try {
      await mkdir(folder, { mode: 0o700 });
      return true;
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false;
      throw error;
    }
  },
  async syncFolder(folder) {
    // Windows cannot open a folder; NTFS journals the rename itself.
    if (process.platform === 'win32') return;
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
  read: (file) => readFile(file),
  remove: (file) => rm(file, { force: true }),
};

const closed = promisify(close);
const synced = promisify(fsync);

function grow(file: string): GrowingFile {
  const descriptor = openSync(file, 'wx', 0o600);
  const state = { open: true };
  return {
    append(bytes) {
      for (let at = 0; at < bytes.byteLength;) at += writeSync(descriptor, bytes, at);
    },
    sync: () => synced(descriptor),
    async close() {
      if (!state.open) return;
      state.open = false;
      await closed(descriptor);
    },
    discard() {
      try {
        if (state.open) closeSync(descriptor);
      } catch {
        // It is given up: what its write-back says does not matter any more.
      }
      state.open = false;
      try {
        unlinkSync(file);
      } catch {
        // Renamed, gone, or left for the next start, which empties the folder.
      }
    },
  };
}
