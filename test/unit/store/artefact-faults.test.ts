// A disk that fails at any one step of keeping an artefact (adversarial 53): a named fault, no row for what may not be
// there, nothing left beside the files, and the next try works. What follows a power cut is in power-cut.test.ts.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { artefactAllowance, createArtefactStore } from '../../../src/server/store/artefacts.ts';
import { openDatabase } from '../../../src/server/store/database.ts';
import { nodeFiles, type FileLayer, type WrittenFile } from '../../../src/server/store/file-layer.ts';
import type { ArtefactStore } from '../../../src/server/store/port.ts';

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

/** The steps by their names, in the order in which a first artefact takes them, at once or as its bytes come. */
const last = ['sync', 'close', 'makeFolder', 'syncFolder', 'rename', 'syncFolder'] as const;
const ways = {
  'put at once': ['write', ...last],
  'put as it comes': ['grow', 'append', ...last],
} as const;
type Way = keyof typeof ways;

/** The real disk, whose step of that number fails once; before (`done` false) or after it had its effect. */
function failing(at: number, code: string, done: boolean): { readonly files: FileLayer; readonly taken: string[] } {
  const taken: string[] = [];
  const step = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const check = begin(name);
    const result = await work();
    check();
    return result;
  };
  /** Before the step; what it gives is called after it. */
  const begin = (name: string): (() => void) => {
    const fails = taken.length === at;
    taken.push(name);
    const fault = Object.assign(new Error(`${code}: ${name}`), { code });
    if (fails && !done) throw fault;
    return () => {
      if (fails) throw fault;
    };
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
      grow: (file) => {
        const check = begin('grow');
        const made = nodeFiles.grow(file);
        try {
          check();
        } catch (error) {
          made.discard();
          throw error;
        }
        return {
          append: (part) => {
            const checkAppend = begin('append');
            made.append(part);
            checkAppend();
          },
          sync: () => step('sync', () => made.sync()),
          close: () => step('close', () => made.close()),
          discard: () => made.discard(),
        };
      },
      rename: (from, to) => step('rename', () => nodeFiles.rename(from, to)),
      makeFolder: (name) => step('makeFolder', () => nodeFiles.makeFolder(name)),
      syncFolder: (name) => step('syncFolder', () => nodeFiles.syncFolder(name)),
    },
  };
}

const storeOver = (files: FileLayer) =>
  createArtefactStore({ db, folder, now: () => 1, fence: () => undefined, at: () => undefined, files });
/** More than waits in memory. */
const bytes = Buffer.alloc(100_000, 'evidence');

async function keep(store: ArtefactStore, way: Way): Promise<void> {
  if (way === 'put at once') {
    await store.put(bytes, 'o');
    return;
  }
  const intake = store.intake('o');
  const file = intake.file(bytes.length);
  file.add(bytes);
  await intake.commit([file.whole().sha256]);
}

test.each(Object.entries(ways))('the steps of what is %s are these (control)', async (way, steps) => {
  const { files, taken } = failing(-1, 'EIO', false);
  await keep(storeOver(files), way as Way);
  expect(taken).toEqual(steps);
});

const faults = [
  ['EIO', 'StorageUnwritable'],
  ['ENOSPC', 'StorageFull'],
  ['EROFS', 'StorageUnwritable'],
] as const;
const cases = Object.entries(ways).flatMap(([way, steps]) =>
  steps.flatMap((step, at) =>
    faults.flatMap(([code, named]) => [false, true].map((done) => ({ way: way as Way, step, at, code, named, done }))),
  ),
);

test.each(cases)('$way: $step (step $at) fails with $code (done: $done)', async ({ way, at, code, named, done }) => {
  const { files } = failing(at, code, done);
  const store = storeOver(files);
  await expect(keep(store, way)).rejects.toMatchObject({ code: named });
  const hash = sha256(bytes);
  expect(store.has(hash)).toBe(false);
  await expect(store.get(hash)).rejects.toMatchObject({ code: 'NotFound' });
  expect(store.total()).toBe(0);
  // Nothing waits on its way: what is there lies under its own name, and only a row makes it count.
  expect(readdirSync(path.join(folder, 'tmp'))).toEqual([]);
  // The disk is well again: the same bytes are kept, and are the bytes.
  await keep(store, way);
  expect(store.room('o')).toBe(artefactAllowance - bytes.length);
  expect(Buffer.from(await store.get(hash)).equals(bytes)).toBe(true);
  expect(await store.verify()).toEqual({ checked: 1, faults: [] });
});
