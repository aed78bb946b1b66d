// What kill -9 cannot show: writes that were not synced are gone, torn or out of order after a power cut.
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { createArtefactStore, type ArtefactStoreOptions } from '../../../src/server/store/artefacts.ts';
import { openDatabase } from '../../../src/server/store/database.ts';
import { afterPowerCut, recordingFiles, type RecordingFiles } from '../../fixtures/recording-files.ts';

let home: string;
let db: ReturnType<typeof openDatabase>;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-power-'));
  db = openDatabase({ file: path.join(home, 'escrow.db'), backups: path.join(home, 'backups'), now: () => 1 });
});
afterEach(() => {
  db.close();
  rmSync(home, { recursive: true, force: true });
});

const folder = (): string => path.join(home, 'artefacts');
const lasting = (): readonly string[] => [folder(), path.join(folder(), 'tmp')];
const fileOf = (bytes: Uint8Array): string => {
  const hash = sha256(bytes);
  return path.join(folder(), hash.slice(0, 2), hash);
};

/** The real artefact store over the recording layer; each committed row is a claim in the same log. */
function storeOver(files: RecordingFiles): ReturnType<typeof createArtefactStore> {
  const options: ArtefactStoreOptions = {
    db,
    folder: folder(),
    now: () => 1,
    fence: () => undefined,
    files: files.layer,
    at: (point) => {
      if (point !== 'artefact-row') return;
      for (const hash of db.prepare<[], string>('SELECT sha256 FROM artefact').pluck().all()) {
        files.claim(path.join(folder(), hash.slice(0, 2), hash));
      }
    },
  };
  return createArtefactStore(options);
}

/** Cuts the power after every call; the worst disk and random ones must hold every claim made before. */
function expectKept(files: RecordingFiles, kept: readonly Uint8Array[]): void {
  const bytesOf = new Map(kept.map((bytes) => [fileOf(bytes), bytes]));
  const hold = (until: number, survives: (index: number) => boolean): void => {
    const calls = files.log.slice(0, until);
    const disk = afterPowerCut(calls, lasting(), survives);
    for (const call of calls) {
      if (call.kind !== 'claim') continue;
      expect(text(disk.get(call.file)), `after ${until} calls`).toBe(text(bytesOf.get(call.file)));
    }
  };
  for (let until = 0; until <= files.log.length; until += 1) hold(until, () => false);
  fc.assert(
    fc.property(fc.nat({ max: files.log.length }), fc.infiniteStream(fc.boolean()), (until, coins) => {
      const toss = [...Array(files.log.length).keys()].map(() => coins.next().value ?? false);
      hold(until, (i) => toss[i] ?? false);
    }),
    { numRuns: 300 },
  );
}

const text = (bytes: Uint8Array | undefined): string | undefined =>
  bytes === undefined ? undefined : Buffer.from(bytes).toString();
const some = (n: number): Uint8Array => Buffer.from(`artefact ${n} `.repeat(20));

test('an artefact with a row has its bytes, whenever the power goes and whatever was not synced', async () => {
  const files = recordingFiles(lasting());
  const store = storeOver(files);
  for (let n = 0; n < 12; n += 1) await store.put(some(n), 'o');
  expect(files.log.filter((c) => c.kind === 'claim').length).toBeGreaterThan(12);
  expectKept(
    files,
    Array.from({ length: 12 }, (_, n) => some(n)),
  );
});

test('also of many that are written at once into the same new folder', async () => {
  // Bytes whose hashes begin alike: the second finds the folder that the first has made and not synced yet.
  const alike = new Map<string, Uint8Array[]>();
  for (let n = 0; n < 3_000; n += 1) {
    const prefix = sha256(some(n)).slice(0, 2);
    alike.set(prefix, [...(alike.get(prefix) ?? []), some(n)]);
  }
  const group = [...alike.values()].find((list) => list.length >= 6)!.slice(0, 6);
  const files = recordingFiles(lasting());
  const store = storeOver(files);
  await Promise.all(group.map((bytes, i) => store.put(bytes, `owner-${i}`)));
  expectKept(files, group);
});

test('also of many that are put in one go, which waits for the disk once a folder', async () => {
  const list = Array.from({ length: 40 }, (_, n) => some(n % 37));
  const files = recordingFiles(lasting());
  await storeOver(files).putAll(list, 'o');
  const folders = new Set(list.map((bytes) => path.dirname(fileOf(bytes))));
  const syncs = (name: string): number => files.log.filter((c) => c.kind === 'syncFolder' && c.folder === name).length;
  for (const name of folders) expect(syncs(name)).toBe(1);
  expect(files.log.filter((c) => c.kind === 'sync')).toHaveLength(37);
  expect(files.log.filter((c) => c.kind === 'claim')).toHaveLength(37);
  expectKept(files, list);
});

test('also of what came piece by piece and was kept in one step, beside others that were let go', async () => {
  const list = Array.from({ length: 6 }, (_, n) => Buffer.alloc(70_000 + n, `piece ${n}`));
  const files = recordingFiles(lasting());
  const intake = storeOver(files).intake('o');
  const refs = list.map((bytes) => {
    const file = intake.file(bytes.length);
    for (let at = 0; at < bytes.length; at += 32_000) file.add(bytes.subarray(at, at + 32_000));
    return file.whole();
  });
  await intake.commit(refs.slice(1).map((ref) => ref.sha256));
  expect(files.log.filter((c) => c.kind === 'sync')).toHaveLength(5);
  expect(files.log.filter((c) => c.kind === 'claim')).toHaveLength(5);
  expectKept(files, list);
});

test('and in a folder that an earlier process made and had not synced', async () => {
  const bytes = some(1);
  const files = recordingFiles(lasting());
  await files.layer.makeFolder(path.dirname(fileOf(bytes)));
  await storeOver(files).put(bytes, 'o');
  expectKept(files, [bytes]);
});

test('the check itself sees a layer whose syncs do nothing', async () => {
  const files = recordingFiles(lasting(), { lieAboutSync: true });
  await storeOver(files).put(some(1), 'o');
  expect(() => expectKept(files, [some(1)])).toThrow();
});
