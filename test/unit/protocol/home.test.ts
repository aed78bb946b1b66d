import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { cloudFolder, homePath, mountType, prepareHome } from '../../../src/protocol/home.ts';
import { leftOut } from '../../fixtures/left-out.ts';

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'escrow-home-')));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const refused = (reason: string) =>
  expect.objectContaining({ code: 'UnsafePath', details: expect.objectContaining({ reason }) });

describe('the state folder', () => {
  test('is made closed to others, with all its parents', async () => {
    const home = path.join(folder, 'a', 'b');
    expect(await prepareHome(home)).toBe(home);
    expect(statSync(home).mode & 0o777).toBe(0o700);
    expect(await prepareHome(home)).toBe(home);
  });

  test('that others may read is refused, with the command that mends it', async () => {
    const home = path.join(folder, 'h');
    mkdirSync(home);
    // Whatever the umask of this process is.
    chmodSync(home, 0o750);
    await expect(prepareHome(home)).rejects.toEqual(refused('mode'));
    chmodSync(home, 0o700);
    await prepareHome(home);
  });

  test('that is a link is refused; a link above it is resolved', async () => {
    mkdirSync(path.join(folder, 'real'), { mode: 0o700 });
    symlinkSync(path.join(folder, 'real'), path.join(folder, 'link'));
    await expect(prepareHome(path.join(folder, 'link'))).rejects.toEqual(refused('symlink'));
    expect(await prepareHome(path.join(folder, 'link', 'h'))).toBe(path.join(folder, 'real', 'h'));
  });

  test('that is a file, or lies below one, is refused', async () => {
    writeFileSync(path.join(folder, 'f'), '');
    await expect(prepareHome(path.join(folder, 'f'))).rejects.toEqual(refused('not-a-folder'));
    await expect(prepareHome(path.join(folder, 'f', 'g'))).rejects.toEqual(refused('not-a-folder'));
  });

  test('below a folder that anybody may change is refused, below a sticky one not', async () => {
    const open = path.join(folder, 'open');
    mkdirSync(open);
    chmodSync(open, 0o777);
    await expect(prepareHome(path.join(open, 'h'))).rejects.toEqual(refused('parent-open'));
    chmodSync(open, 0o1777);
    await prepareHome(path.join(open, 'h'));
  });

  test.skipIf(process.getuid?.() !== 0)(`of somebody else is refused${leftOut.root}`, async () => {
    const { chownSync } = await import('node:fs');
    const home = path.join(folder, 'h');
    mkdirSync(home, { mode: 0o700 });
    chownSync(home, 12_345, 12_345);
    await expect(prepareHome(home)).rejects.toEqual(refused('owner'));
  });

  test.for(['Dropbox', 'OneDrive - Contoso', 'Mobile Documents', 'Google Drive', 'Nextcloud'])(
    'in a folder that %s synchronises is refused',
    async (name) => {
      await expect(prepareHome(path.join(folder, name, 'escrow'))).rejects.toEqual(refused('cloud-synced'));
    },
  );
});

test.skipIf(process.platform !== 'linux')(
  `a place where no folder can be made is an answer, not an endless wait${leftOut.linux}`,
  async () => {
    await expect(prepareHome('/proc/escrow')).rejects.toMatchObject({
      code: 'StorageUnwritable',
      details: { cause: 'ENOENT' },
    });
    await expect(prepareHome('/proc/escrow/deeper')).rejects.toMatchObject({ code: 'StorageUnwritable' });
  },
);

test('many makers of one folder at once all succeed', async () => {
  // Deep and often: a maker that finds the folder above missing must not mind that another has just made it.
  for (let round = 0; round < 10; round += 1) {
    const home = path.join(folder, `x${round}`, 'a/b/c/d/e/f/g/h/i/j');
    expect(await Promise.all(Array.from({ length: 8 }, () => prepareHome(home)))).toEqual(Array(8).fill(home));
  }
});

test('cloud folders are known by name only as a whole', () => {
  expect(cloudFolder('/home/me/dropbox-tools/x', {})).toBeUndefined();
  expect(cloudFolder('/home/me/Dropbox (Work)/x', {})).toBe('Dropbox (Work)');
});

test('the file system of a path is that of the longest mount point, the last one of equal ones', () => {
  const mounts = [
    '22 1 0:1 / / rw - ext4 /dev/sda1 rw',
    '23 22 0:2 / /home rw shared:1 - nfs4 server:/home rw',
    '24 23 0:3 / /home/me/local rw - ext4 /dev/sdb1 rw',
    String.raw`25 22 0:4 / /mnt/my\040share rw - cifs //s/x rw`,
    '26 22 0:5 / /mnt/two rw - ext4 /dev/sdc rw',
    '27 22 0:6 / /mnt/two rw - fuse.sshfs x rw',
  ].join('\n');
  const types = ['/srv/x', '/home/me/state', '/home/me/local/x', '/home/me/localized', '/mnt/my share/x', '/mnt/two/x'];
  expect(types.map((p) => mountType(mounts, p))).toEqual(['ext4', 'nfs4', 'ext4', 'nfs4', 'cifs', 'fuse.sshfs']);
});

test('ESCROW_HOME names the folder; without it the platform does', () => {
  expect(homePath({ ESCROW_HOME: '/x/y' })).toBe('/x/y');
  expect(path.isAbsolute(homePath({}))).toBe(true);
  expect(homePath({ ESCROW_HOME: '' })).toBe(homePath({}));
});
