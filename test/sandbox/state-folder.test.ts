// A Kernel whose state folder is not one: it starts none, and nothing is written where it would have been.
import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTestKernel } from '../fixtures/kernel.ts';

const run = promisify(execFile);
let folder: string;
const mounts: string[] = [];
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-state-'));
});
afterEach(async () => {
  // The Kernel that could not start has said why and is on its way out.
  for (const mount of mounts.splice(0)) {
    await expect
      .poll(
        () =>
          run('umount', [mount]).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true);
  }
  await rm(folder, { recursive: true, force: true });
});

/** A file system of its own; undefined where this user may not mount one. */
async function mount(options: string): Promise<string | undefined> {
  const target = path.join(folder, 'disk');
  await mkdir(target);
  try {
    await run('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', target]);
  } catch {
    return undefined;
  }
  mounts.push(target);
  return target;
}
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
  it.runIf(root)('[54] that belongs to somebody else is refused', async () => {
    const home = path.join(folder, 'home');
    await mkdir(home, { mode: 0o700 });
    await chown(home, 12_345, 12_345);
    expect(await outcome(home)).toBe('UnsafePath');
  });
  it('[54] on a full disk is said to be so', async ({ skip }) => {
    const disk = (await mount('size=64k,mode=700')) ?? skip('nothing can be mounted here');
    const home = path.join(disk, 'home');
    await mkdir(home, { mode: 0o700 });
    await writeFile(path.join(disk, 'filler'), Buffer.alloc(64 * 1024, 'x')).catch(() => undefined);
    expect(await outcome(home)).toMatch(/^(?:StorageFull|StorageUnwritable|NoKernel)$|ENOSPC/);
  });
  it('[54] on a read-only disk is said to be so', async ({ skip }) => {
    const disk = (await mount('size=4m,mode=700')) ?? skip('nothing can be mounted here');
    const home = path.join(disk, 'home');
    await mkdir(home, { mode: 0o700 });
    await run('mount', ['-o', 'remount,ro', disk]);
    expect(await outcome(home)).toMatch(/^(?:StorageUnwritable|UnsafePath|NoKernel)$|EROFS/);
  });
});
