// A disk that fails at any one step of keeping an artefact (adversarial 53): a named fault, no row for what may not be
// there, nothing left beside the files, and the next try works. What follows a power cut is in power-cut.test.ts.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { createArtefactStore } from '../../../src/server/store/artefacts.ts';
import { openDatabase } from '../../../src/server/store/database.ts';
import { nodeFiles, type FileLayer, type WrittenFile } from '../../../src/server/store/file-layer.ts';

let home: string;
let folder: string;
let db: ReturnType<typeof openDatabase>;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-faults-'));
  folder = path.join(home, 'artefacts');
  db = openDatabase({ file: path.join(home, 'escrow.db'), backups: path.join(home, 'backups'), now: () => 1 });
});
afterEach(() => {
  db.close();
  rmSync(home, { recursive: true, force: true });
});

/** The steps by their names, in the order in which a first artefact takes them. */
const steps = ['write', 'sync', 'close', 'makeFolder', 'syncFolder', 'rename', 'syncFolder'] as const;

/** The real disk, whose step of that number fails once; before (`done` false) or after it had its effect. */
function failing(at: number, code: string, done: boolean): { readonly files: FileLayer; readonly taken: string[] } {
  const taken: string[] = [];
  const step = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const fails = taken.length === at;
    taken.push(name);
    const fault = Object.assign(new Error(`${code}: ${name}`), { code });
    if (fails && !done) throw fault;
    const result = await work();
    if (fails) throw fault;
    return result;
  };
  return {
    taken,
    files: {
      ...nodeFiles,
      write: async (file, bytes) => {
        let written: WrittenFile | undefined;
        const work = async (): Promise<WrittenFile> => (written = await nodeFiles.write(file, bytes));
        const made = await step('write', work).catch(async (error: unknown) => {
          await written?.close();
          throw error;
        });
        return { sync: () => step('sync', () => made.sync()), close: () => step('close', () => made.close()) };
      },
      rename: (from, to) => step('rename', () => nodeFiles.rename(from, to)),
      makeFolder: (name) => step('makeFolder', () => nodeFiles.makeFolder(name)),
      syncFolder: (name) => step('syncFolder', () => nodeFiles.syncFolder(name)),
    },
  };
}

const storeOver = (files: FileLayer) =>
  createArtefactStore({ db, folder, now: () => 1, fence: () => undefined, at: () => undefined, files });
const bytes = Buffer.from('evidence');

test('the steps are these (control)', async () => {
  const { files, taken } = failing(-1, 'EIO', false);
  await storeOver(files).put(bytes, 'o');
  expect(taken).toEqual(steps);
});

const faults = [
  ['EIO', 'StorageUnwritable'],
  ['ENOSPC', 'StorageFull'],
  ['EROFS', 'StorageUnwritable'],
] as const;
const cases = steps.flatMap((step, at) =>
  faults.flatMap(([code, named]) => [false, true].map((done) => [step, at, code, named, done] as const)),
);

test.each(cases)('%s (step %i) fails with %s: %s, also where it was done (%s)', async (_, at, code, named, done) => {
  const { files } = failing(at, code, done);
  const store = storeOver(files);
  await expect(store.put(bytes, 'o')).rejects.toMatchObject({ code: named });
  const hash = sha256(bytes);
  expect(store.has(hash)).toBe(false);
  await expect(store.get(hash)).rejects.toMatchObject({ code: 'NotFound' });
  expect(store.total()).toBe(0);
  // Nothing waits on its way: what is there lies under its own name, and only a row makes it count.
  expect(readdirSync(path.join(folder, 'tmp'))).toEqual([]);
  // The disk is well again: the same bytes are kept, and are the bytes.
  await store.put(bytes, 'o');
  expect(Buffer.from(await store.get(hash)).equals(bytes)).toBe(true);
  expect(await store.verify()).toEqual({ checked: 1, faults: [] });
});
