import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { claimWindowIdentity, type WindowIdentity } from '../../../src/extension/window-identity.ts';

let folder: string;
let alive: Set<number>;
let now: number;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'escrow-windows-'));
  alive = new Set();
  now = 1_800_000_000_000;
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function open(pid: number): WindowIdentity {
  alive.add(pid);
  return claimWindowIdentity({
    folder,
    takeOverWithinMs: 60_000,
    pid,
    now: () => now,
    isAlive: (other) => alive.has(other),
  });
}

test('a reload is the same client, though both extension hosts overlap', () => {
  const before = open(100);
  before.release();
  // The old host is still there.
  const after = open(200);
  expect(after.clientId).toBe(before.clientId);
  expect(after.resumed).toBe(true);
});

test('two windows of one folder are two clients', () => {
  expect(open(100).clientId).not.toBe(open(200).clientId);
});

test('a host that was killed gives its id to its successor', () => {
  const before = open(100);
  alive.delete(100);
  expect(open(200).clientId).toBe(before.clientId);
});

test('of two windows that start after one closed, one continues it', () => {
  const before = open(100);
  before.release();
  const ids = [open(200).clientId, open(300).clientId];
  expect(ids.filter((id) => id === before.clientId)).toHaveLength(1);
  expect(new Set(ids).size).toBe(2);
});

test('what is long gone is not continued, is cleared away, and is remembered as the last window', () => {
  const before = open(100);
  before.release();
  const closed = now;
  now += 3_600_000;
  const after = open(200);
  expect(after.clientId).not.toBe(before.clientId);
  expect(after.lastWindowAt).toBe(closed);
  expect(readdirSync(folder)).toHaveLength(1);
});

test('a window that proves itself stays recent', () => {
  const before = open(100);
  now += 3_600_000;
  before.touch();
  alive.delete(100);
  expect(open(200).clientId).toBe(before.clientId);
});

test('other files in the folder are left alone', () => {
  open(100).release();
  writeFileSync(path.join(folder, 'notes.txt'), 'mine');
  writeFileSync(path.join(folder, 'window-not-an-id.free'), 'mine');
  now += 3_600_000;
  open(200);
  expect(readdirSync(folder)).toEqual(expect.arrayContaining(['notes.txt', 'window-not-an-id.free']));
});
