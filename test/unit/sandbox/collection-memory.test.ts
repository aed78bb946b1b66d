// The bytes that a collection brings go into the store as they come: what it takes of the Kernel's memory does not grow
// with the candidate.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';

const mebibyte = 1024 * 1024;
const program = path.resolve(import.meta.dirname, '../../fixtures/large-collection.ts');

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-large-'));
});
afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

it.each([
  ['channel', 'complete'],
  ['exec', '8 files'],
])('of 400 MiB by %s takes less than 32 MiB of memory', async (way, state) => {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [program, home, way]);
  expect(stderr).toBe('');
  const seen = JSON.parse(stdout) as { readonly peak: number };
  // Two kinds of files, each four times.
  expect(seen).toMatchObject({ state, kept: 2, faults: [] });
  expect(seen.peak).toBeLessThan(32 * mebibyte);
});
