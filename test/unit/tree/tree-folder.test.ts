import { mkdir, mkdtemp, readFile, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inFolder } from '../../../src/server/tree-folder.ts';
import { leftOut } from '../../fixtures/left-out.ts';

describe('acting in a folder of a tree', () => {
  let root: string;
  beforeEach(async () => {
    root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'escrow-folder-')));
    await mkdir(path.join(root, 'a/b'), { recursive: true });
    await writeFile(path.join(root, 'a/b/file'), 'inside');
  });
  afterEach(() => rm(root, { recursive: true, force: true }));
  const read = (folder: string, name = 'file'): Promise<string> =>
    inFolder(root, folder, (at) => readFile(`${at}/${name}`, 'utf8'));

  it('reaches real folders', async () => {
    expect(await read('a/b')).toBe('inside');
    await writeFile(path.join(root, 'top'), 'top');
    expect(await read('', 'top')).toBe('top');
    expect(await read('.', 'top')).toBe('top');
  });

  it.each(['a', 'a/b'])('does not follow a link at %s', async (at) => {
    await rename(path.join(root, at), path.join(root, 'real'));
    await symlink(path.join(root, 'real'), path.join(root, at));
    await expect(read('a/b')).rejects.toMatchObject({ fault: 'parent-link', at });
  });

  it('says what is wrong with a parent', async () => {
    await expect(read('a/none')).rejects.toMatchObject({ fault: 'missing', at: 'a/none' });
    await expect(read('a/b/file/c')).rejects.toMatchObject({ fault: 'parent-file', at: 'a/b/file' });
    await rm(root, { recursive: true });
    await expect(read('a')).rejects.toMatchObject({ fault: 'missing', at: '' });
  });

  it.runIf(process.platform === 'linux')(
    `stays in the folder that it reached when its name is given to a link${leftOut.linux}`,
    async () => {
      const outside = await mkdtemp(path.join(os.tmpdir(), 'escrow-outside-'));
      try {
        await writeFile(path.join(outside, 'file'), 'outside');
        const seen = await inFolder(root, 'a/b', async (at) => {
          await rename(path.join(root, 'a'), path.join(root, 'moved'));
          await mkdir(path.join(root, 'a'));
          await symlink(outside, path.join(root, 'a/b'));
          await writeFile(`${at}/new`, 'n');
          return readFile(`${at}/file`, 'utf8');
        });
        expect(seen).toBe('inside');
        expect(await readFile(path.join(root, 'moved/b/new'), 'utf8')).toBe('n');
      } finally {
        await rm(outside, { recursive: true });
      }
    },
  );
});
