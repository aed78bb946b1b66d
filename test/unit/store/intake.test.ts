// Bytes that come into the store piece by piece: what is kept, what is let go, and what counts meanwhile.
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { ArtefactRef } from '../../../src/protocol/primitives.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Intake, Store } from '../../../src/server/store/port.ts';

const mebibyte = 1024 * 1024;
const allowance = 10 * mebibyte;

let home: string;
let store: Store;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-intake-'));
  store = openStore({ home, now: () => 1, artefactAllowance: allowance });
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

const temporaries = (): readonly string[] => readdirSync(path.join(home, 'artefacts', 'tmp'));
const temporaryBytes = (): number =>
  temporaries().reduce((sum, name) => sum + statSync(path.join(home, 'artefacts', 'tmp', name)).size, 0);
const filled = (size: number, value: number): Buffer => Buffer.alloc(size, value);

/** In pieces of one buffer that is used again, as a stream gives them. */
function bring(intake: Intake, bytes: Buffer, piece = 32 * 1024): ArtefactRef {
  const file = intake.file(bytes.length);
  const buffer = Buffer.alloc(piece);
  for (let at = 0; at < bytes.length; at += piece) {
    const part = bytes.subarray(at, at + piece);
    part.copy(buffer);
    file.add(buffer.subarray(0, part.length));
  }
  return file.whole();
}

test('what is committed is durable under its hash and charged; what was not wanted is gone', async () => {
  const intake = store.artefacts.intake('ses');
  const list = [filled(300, 1), filled(3 * mebibyte, 2), Buffer.alloc(0), filled(2 * mebibyte, 3)];
  const refs = list.map((bytes) => bring(intake, bytes));
  expect(refs).toEqual(list.map((bytes) => ({ sha256: sha256(bytes), size: bytes.length })));
  expect(refs.map((ref) => store.artefacts.has(ref.sha256))).toEqual([false, false, false, false]);
  await intake.commit(refs.slice(0, 3).map((ref) => ref.sha256));
  for (const [n, bytes] of list.slice(0, 3).entries()) {
    expect(Buffer.compare(await store.artefacts.get(refs[n]!.sha256), bytes)).toBe(0);
  }
  expect(store.artefacts.has(refs[3]!.sha256)).toBe(false);
  expect(store.artefacts.room('ses')).toBe(allowance - 300 - 3 * mebibyte);
  expect(temporaries()).toEqual([]);
  expect(await store.artefacts.verify()).toEqual({ checked: 3, faults: [] });
});

test('what is dropped leaves nothing, whatever comes later', async () => {
  const intake = store.artefacts.intake('ses');
  const { sha256: hash } = bring(intake, filled(mebibyte, 1));
  const half = intake.file(2 * mebibyte);
  half.add(filled(mebibyte, 2));
  expect(temporaries()).toHaveLength(2);
  expect(store.artefacts.room('ses')).toBe(allowance - 3 * mebibyte);
  intake.drop();
  expect(temporaries()).toEqual([]);
  expect(store.artefacts.room('ses')).toBe(allowance);
  half.add(filled(mebibyte, 2));
  expect(half.whole()).toEqual({ sha256: sha256(filled(2 * mebibyte, 2)), size: 2 * mebibyte });
  bring(intake, filled(mebibyte, 3));
  expect(temporaries()).toEqual([]);
  await expect(intake.commit([hash])).rejects.toMatchObject({ code: 'NotFound' });
  expect(store.artefacts.total()).toBe(0);
});

test('a file that was not ended is given up for the next one, and all of them when it is started over', async () => {
  const intake = store.artefacts.intake('ses');
  intake.file(2 * mebibyte).add(filled(mebibyte, 1));
  const kept = bring(intake, filled(mebibyte, 2));
  expect(temporaries()).toHaveLength(1);
  intake.startOver();
  expect(temporaries()).toEqual([]);
  expect(intake.refusal(kept.sha256)).toMatchObject({ code: 'NotFound' });
  expect(bring(intake, filled(mebibyte, 2))).toEqual(kept);
  await intake.commit([kept.sha256]);
  await store.artefacts.get(kept.sha256);
});

test('other bytes than were announced are no file', () => {
  const intake = store.artefacts.intake('ses');
  const file = intake.file(4);
  file.add(Buffer.from('abc'));
  expect(() => file.add(Buffer.from('de'))).toThrow(RangeError);
  expect(() => file.whole()).toThrow(RangeError);
});

test('what the contract keeps is not counted, nor on the disk after its last byte; it may be larger than the room', async () => {
  const large = filled(12 * mebibyte, 1);
  const small = filled(mebibyte, 2);
  await store.artefacts.putAll([large, small], 'contract:x');
  const intake = store.artefacts.intake('ses', 'contract:x');
  const refs = [large, small].map((bytes) => bring(intake, bytes));
  expect([temporaries(), store.artefacts.room('ses')]).toEqual([[], allowance]);
  await intake.commit(refs.map((ref) => ref.sha256));
  expect(store.artefacts.room('ses')).toBe(allowance);
});

test('what finds no room is named and refused as a whole; the rest can be kept without it', async () => {
  const intake = store.artefacts.intake('ses');
  const first = bring(intake, filled(6 * mebibyte, 1));
  const second = bring(intake, filled(5 * mebibyte, 2));
  const third = bring(intake, filled(4 * mebibyte, 3));
  expect([first, second, third].map((ref) => intake.refusal(ref.sha256))).toMatchObject([
    undefined,
    { code: 'StorageFull', details: { reason: 'allowance', used: 6 * mebibyte, wanted: 5 * mebibyte, allowance } },
    undefined,
  ]);
  await expect(store.artefacts.put(Buffer.from('x'), 'ses')).rejects.toMatchObject({ code: 'StorageFull' });
  await intake.commit([first.sha256, third.sha256]);
  expect(store.artefacts.room('ses')).toBe(0);

  const again = store.artefacts.intake('other');
  const refs = [6, 5].map((size) => bring(again, filled(size * mebibyte, 9)));
  await expect(again.commit(refs.map((ref) => ref.sha256))).rejects.toMatchObject({ code: 'StorageFull' });
  expect([temporaries(), store.artefacts.room('other')]).toEqual([[], allowance]);
  expect(refs.map((ref) => store.artefacts.has(ref.sha256))).toEqual([false, false]);
});

test('the same bytes count once, in one collection, in two, and beside a put of them', async () => {
  const bytes = filled(6 * mebibyte, 1);
  const intake = store.artefacts.intake('ses');
  const refs = [bring(intake, bytes.subarray(0, 3 * mebibyte)), bring(intake, bytes.subarray(3 * mebibyte))];
  expect(store.artefacts.room('ses')).toBe(allowance - 3 * mebibyte);
  const beside = store.artefacts.put(bytes.subarray(0, 3 * mebibyte), 'ses');
  await Promise.all([intake.commit(refs.map((ref) => ref.sha256)), beside]);
  const second = store.artefacts.intake('other');
  const { sha256: hash } = bring(second, bytes.subarray(0, 3 * mebibyte));
  await second.commit([hash]);
  expect(store.artefacts.room('ses')).toBe(allowance - 3 * mebibyte);
  expect(store.artefacts.total()).toBe(3 * mebibyte);
  expect(temporaries()).toEqual([]);
});

test('what is kept and what is on its way are never more than the allowance, whatever comes in any order', async () => {
  const sizes = fc.array(fc.record({ size: fc.nat({ max: 5 * mebibyte }), value: fc.nat({ max: 3 }) }), {
    maxLength: 8,
  });
  let owner = 0;
  await fc.assert(
    fc.asyncProperty(sizes, fc.boolean(), async (list, commits) => {
      owner += 1;
      const name = `ses-${owner}`;
      const intake = store.artefacts.intake(name);
      const held = new Map<string, number>();
      for (const { size, value } of list) {
        const { sha256: hash } = bring(intake, filled(size, value), mebibyte);
        if (intake.refusal(hash) === undefined) held.set(hash, size);
        const sum = [...held.values()].reduce((a, b) => a + b, 0);
        expect(store.artefacts.room(name)).toBe(allowance - sum);
        expect(temporaryBytes()).toBeLessThanOrEqual(sum);
      }
      if (commits) await intake.commit([...held.keys()] as never);
      else intake.drop();
      const kept = commits ? [...held.values()].reduce((a, b) => a + b, 0) : 0;
      expect([store.artefacts.room(name), temporaries()]).toEqual([allowance - kept, []]);
    }),
    { numRuns: 25 },
  );
});
