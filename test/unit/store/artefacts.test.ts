import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { Sha256 } from '../../../src/protocol/primitives.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { unless } from '../../fixtures/left-out.ts';

let home: string;
let store: Store;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const fileOf = (hash: Sha256): string => path.join(home, 'artefacts', hash.slice(0, 2), hash);
const reopen = (artefactAllowance?: number): void => {
  store.close();
  store = openStore({ home, now: () => 1, ...(artefactAllowance === undefined ? {} : { artefactAllowance }) });
};

beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-artefacts-'));
  store = openStore({ home, now: () => 1, artefactAllowance: 1000 });
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

test('bytes come back as they were, under their hash, after a reopening too', async () => {
  const ref = await store.artefacts.put(bytes('hello'), 'ses_a');
  expect(ref).toEqual({ sha256: sha256('hello'), size: 5 });
  reopen();
  expect(store.artefacts.has(ref.sha256)).toBe(true);
  expect(Buffer.from(await store.artefacts.get(ref.sha256)).toString()).toBe('hello');
  expect(store.artefacts.total()).toBe(5);
});

test('the same bytes are kept once, whoever puts them, also at the same time', async () => {
  await Promise.all(['a', 'b', 'a', 'c'].map((owner) => store.artefacts.put(bytes('same'), owner)));
  expect(store.artefacts.total()).toBe(4);
  expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
});

test('the bytes that are kept are those at the call, whatever the caller does with its buffer', async () => {
  const buffer = Buffer.from('before');
  const kept = store.artefacts.put(buffer, 'o');
  buffer.fill(0);
  const ref = await kept;
  expect(Buffer.from(await store.artefacts.get(ref.sha256)).toString()).toBe('before');
});

test('what is kept while another owner is let go counts once', async () => {
  await store.artefacts.put(bytes('old'), 'o');
  const underWay = store.artefacts.put(new Uint8Array(600), 'a');
  await Promise.all([underWay, store.letGo(['o'], { type: 'let-go', data: {} })]);
  expect(store.artefacts.room('a')).toBe(400);
});

test('what another owner lets go while it is kept beside new bytes is there all the same', async () => {
  const { sha256: hash } = await store.artefacts.put(bytes('old'), 'o');
  const underWay = store.artefacts.putAll([bytes('old'), bytes('new')], 'a');
  await Promise.all([underWay, store.letGo(['o'], { type: 'let-go', data: {} })]);
  expect(Buffer.from(await store.artefacts.get(hash)).toString()).toBe('old');
  expect(await store.artefacts.verify()).toEqual({ checked: 2, faults: [] });
  expect([store.artefacts.room('a'), store.artefacts.total()]).toEqual([994, 6]);
});

test('what somebody else writes and lets go again while it is kept beside others is there all the same', async () => {
  await store.artefacts.put(bytes('old'), 'o');
  const theirs = store.artefacts.put(bytes('new'), 'b');
  const underWay = store.artefacts.putAll([bytes('new'), bytes('old')], 'a');
  const letGo = store.letGo(['o'], { type: 'let-go', data: {} });
  await theirs;
  await Promise.all([letGo, store.letGo(['b'], { type: 'let-go', data: {} }), underWay]);
  expect(await store.artefacts.verify()).toEqual({ checked: 2, faults: [] });
  expect([store.artefacts.room('a'), store.artefacts.total()]).toEqual([994, 6]);
});

test('an owner has an allowance; others are not affected, and bytes on their way count', async () => {
  await store.artefacts.put(new Uint8Array(600), 'a');
  await expect(store.artefacts.put(new Uint8Array(401).fill(1), 'a')).rejects.toMatchObject({
    code: 'StorageFull',
    details: { reason: 'allowance', owner: 'a', used: 600, wanted: 401 },
  });
  await store.artefacts.put(new Uint8Array(1000).fill(2), 'b');
  await store.artefacts.put(new Uint8Array(400).fill(3), 'a');
  // Three at once of which two fit.
  const results = await Promise.allSettled([4, 5, 6].map((n) => store.artefacts.put(new Uint8Array(450).fill(n), 'c')));
  expect(results.map((r) => r.status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  reopen(1000);
  await expect(store.artefacts.put(new Uint8Array(101).fill(7), 'c')).rejects.toMatchObject({ code: 'StorageFull' });
});

test('what a session may keep is no bound for the snapshot of a contract, which a profile may need more for', async () => {
  await expect(store.artefacts.put(new Uint8Array(1001), 'ses_a')).rejects.toMatchObject({ code: 'StorageFull' });
  await expect(store.artefacts.put(new Uint8Array(1001), 'contract:a')).resolves.toMatchObject({ size: 1001 });
});

test('the bound holds for any sizes and order', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 8 }), fc.uuid(), async (sizes, owner) => {
      const kept = new Map<string, number>();
      await Promise.all(
        sizes.map(async (size, i) => {
          const content = Buffer.alloc(size, i);
          await store.artefacts.put(content, owner).then(
            (ref) => kept.set(ref.sha256, ref.size),
            () => undefined,
          );
        }),
      );
      const used = [...kept.values()].reduce((sum, size) => sum + size, 0);
      expect(used).toBeLessThanOrEqual(1000);
    }),
    { numRuns: 20 },
  );
});

test('changed, cut and missing files are damage, never bytes', async () => {
  const ref = await store.artefacts.put(bytes('evidence'), 'o');
  writeFileSync(fileOf(ref.sha256), 'Evidence');
  await expect(store.artefacts.get(ref.sha256)).rejects.toMatchObject({
    code: 'ArtefactDamaged',
    details: { reason: 'hash' },
  });
  truncateSync(fileOf(ref.sha256), 3);
  await expect(store.artefacts.get(ref.sha256)).rejects.toMatchObject({
    code: 'ArtefactDamaged',
    details: { reason: 'size' },
  });
  rmSync(fileOf(ref.sha256));
  await expect(store.artefacts.get(ref.sha256)).rejects.toMatchObject({
    code: 'ArtefactDamaged',
    details: { reason: 'missing' },
  });
});

test('bytes that nobody put are not found', async () => {
  await expect(store.artefacts.get(sha256('nothing'))).rejects.toMatchObject({ code: 'NotFound' });
});

test('what a crash left behind is cleared at start and never taken for an artefact', async () => {
  const hash = sha256('torn');
  mkdirSync(path.dirname(fileOf(hash)), { recursive: true });
  writeFileSync(fileOf(hash), 'to'); // renamed, but the crash came before the row
  writeFileSync(path.join(home, 'artefacts', 'tmp', 'left-over'), 'x');
  reopen();
  expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
  expect(store.artefacts.has(hash)).toBe(false);
  await store.artefacts.put(bytes('torn'), 'o');
  expect(Buffer.from(await store.artefacts.get(hash)).toString()).toBe('torn');
});

test('files that no row names are removed, those that are kept or on their way are not', async () => {
  const ref = await store.artefacts.put(bytes('kept'), 'o');
  const orphan = sha256('orphan');
  mkdirSync(path.dirname(fileOf(orphan)), { recursive: true });
  writeFileSync(fileOf(orphan), 'orphan');
  const [swept, later] = await Promise.all([store.artefacts.sweepOrphans(), store.artefacts.put(bytes('later'), 'o')]);
  expect(swept).toEqual({ files: 1, bytes: 6 });
  await store.artefacts.get(ref.sha256);
  await store.artefacts.get(later.sha256);
  expect(await store.artefacts.sweepOrphans()).toEqual({ files: 0, bytes: 0 });
  expect(await store.artefacts.verify()).toEqual({ checked: 2, faults: [] });
});

test('the same bytes put twice at once by one owner count once', async () => {
  const content = new Uint8Array(700).fill(9);
  await Promise.all([store.artefacts.put(content, 'o'), store.artefacts.put(content, 'o')]);
  await store.artefacts.put(new Uint8Array(300).fill(8), 'o');
});

test('many are kept in one go, in their order, the same ones once; what is there already is only charged', async () => {
  await store.artefacts.put(bytes('b'), 'before');
  const refs = await store.artefacts.putAll(['a', 'b', 'c', 'a'].map(bytes), 'o');
  expect(refs.map((ref) => ref.sha256)).toEqual(['a', 'b', 'c', 'a'].map((text) => sha256(text)));
  expect(store.artefacts.total()).toBe(3);
  await expect(store.artefacts.put(new Uint8Array(998), 'o')).rejects.toMatchObject({ details: { used: 3 } });
  expect(await store.artefacts.putAll([], 'o')).toEqual([]);
});

test('many that together are more than the allowance are not begun; beside others, they count once', async () => {
  const half = (n: number): Uint8Array => new Uint8Array(400).fill(n);
  await expect(store.artefacts.putAll([half(1), half(2), half(3)], 'a')).rejects.toMatchObject({ code: 'StorageFull' });
  expect(store.artefacts.total()).toBe(0);
  await Promise.all([store.artefacts.putAll([half(1), half(2)], 'a'), store.artefacts.put(half(2), 'a')]);
  expect(store.artefacts.total()).toBe(800);
  await expect(store.artefacts.put(half(3), 'a')).rejects.toMatchObject({ details: { used: 800 } });
});

test('what somebody else keeps already is not charged to who shares it, and what is left is told', async () => {
  const snapshot = [new Uint8Array(300).fill(1), new Uint8Array(300).fill(2)];
  await store.artefacts.putAll(snapshot, 'contract:x');
  const changed = new Uint8Array(900).fill(3);
  expect(store.artefacts.room('ses')).toBe(1000);
  const refs = await store.artefacts.putAll([...snapshot, changed], 'ses', 'contract:x');
  expect(refs.map(({ size }) => size)).toEqual([300, 300, 900]);
  expect(store.artefacts.room('ses')).toBe(100);
  // Without that, all of it counts (control).
  await expect(store.artefacts.putAll([...snapshot, changed], 'other')).rejects.toMatchObject({
    code: 'StorageFull',
    next: expect.stringContaining('1000 bytes at most'),
  });
});

test('what was let go is room again', async () => {
  await store.artefacts.put(new Uint8Array(900), 'o');
  await store.letGo(['o'], { type: 'let-go', data: {} });
  await store.artefacts.put(new Uint8Array(900).fill(1), 'o');
  await expect(store.artefacts.put(new Uint8Array(900).fill(2), 'o')).rejects.toMatchObject({ details: { used: 900 } });
});

test('one that can’t be written leaves no row of those with it, nor a temporary file', async () => {
  const list = ['a', 'b', 'c'].map(bytes);
  const hash = sha256('b');
  // A file where its folder should be.
  writeFileSync(path.join(home, 'artefacts', hash.slice(0, 2)), '');
  await expect(store.artefacts.putAll(list, 'o')).rejects.toMatchObject({ code: 'StorageUnwritable' });
  expect(list.map((each) => store.artefacts.has(sha256(each)))).toEqual([false, false, false]);
  expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
  rmSync(path.join(home, 'artefacts', hash.slice(0, 2)));
  await store.artefacts.putAll(list, 'o');
  expect(store.artefacts.total()).toBe(3);
});

test('all artefacts can be checked at once, and every damaged one is named', async () => {
  const one = await store.artefacts.put(bytes('one'), 'o');
  const two = await store.artefacts.put(bytes('two'), 'o');
  const three = await store.artefacts.put(bytes('three'), 'o');
  writeFileSync(fileOf(one.sha256), 'One');
  rmSync(fileOf(two.sha256));
  const { checked, faults } = await store.artefacts.verify();
  expect(checked).toBe(3);
  expect(new Map(faults.map((f) => [f.sha256, f.reason]))).toEqual(
    new Map([
      [one.sha256, 'hash'],
      [two.sha256, 'missing'],
    ]),
  );
  await store.artefacts.get(three.sha256);
});

const asRoot = process.getuid?.() === 0;
test.skipIf(asRoot)(
  `a folder that cannot be written is StorageUnwritable${unless(!asRoot, 'root may write everywhere')}`,
  async () => {
    chmodSync(path.join(home, 'artefacts', 'tmp'), 0o500);
    await expect(store.artefacts.put(bytes('x'), 'o')).rejects.toMatchObject({ code: 'StorageUnwritable' });
  },
);

test('a folder that vanished is an error of that put, and leaves no row', async () => {
  rmSync(path.join(home, 'artefacts'), { recursive: true });
  await expect(store.artefacts.put(bytes('x'), 'o')).rejects.toThrow();
  expect(store.artefacts.has(sha256('x'))).toBe(false);
});
