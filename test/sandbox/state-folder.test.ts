// A Kernel whose state folder is not one: it starts none, and nothing is written where it would have been.
import { chown, mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTestKernel } from '../fixtures/kernel.ts';
import { canMount, smallDisk, type SmallDisk, noMount } from '../fixtures/small-disk.ts';
import { leftOut } from '../fixtures/left-out.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-state-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** A Kernel with this home, or why there is none. */
const outcome = (home: string): Promise<string> =>
  startTestKernel({ home }).then(
    async (kernel) => {
      await kernel.dispose();
      return 'started';
    },
    (error: { code?: string; message: string }) => error.code ?? error.message,
  );

const root = process.getuid?.() === 0;

describe('the state folder of a Kernel', () => {
  it('[54=] that is one is used (control)', async () => {
    const home = path.join(folder, 'home');
    await mkdir(home, { mode: 0o700 });
    expect(await outcome(home)).toBe('started');
  });
  it('[54] that is a link is refused, and nothing is written behind it', async () => {
    await mkdir(path.join(folder, 'real'), { mode: 0o700 });
    await symlink(path.join(folder, 'real'), path.join(folder, 'home'));
    expect(await outcome(path.join(folder, 'home'))).toBe('UnsafePath');
    expect(await readdir(path.join(folder, 'real'))).toEqual([]);
  });
  it.runIf(root)(`[54] that belongs to somebody else is refused${leftOut.root}`, async () => {
    const home = path.join(folder, 'home');
    await mkdir(home, { mode: 0o700 });
    await chown(home, 12_345, 12_345);
    expect(await outcome(home)).toBe('UnsafePath');
  });
  describe.skipIf(!canMount)(`[54] on a disk${noMount}`, () => {
    let disk: SmallDisk;
    let home: string;
    beforeEach(async () => {
      disk = await smallDisk(1);
      home = path.join(disk.folder, 'home');
      await mkdir(home, { mode: 0o700 });
    });
    afterEach(() => disk.dispose());

    it('that is full is said to be so', async () => {
      await disk.fill();
      expect(await outcome(home)).toMatch(/^(?:StorageFull|StorageUnwritable|NoKernel)$|ENOSPC/);
    });
    it('that is read-only is said to be so', async () => {
      await disk.readOnly();
      expect(await outcome(home)).toMatch(/^(?:StorageUnwritable|UnsafePath|NoKernel)$|EROFS/);
    });
  });
});
