// Bytes of unknown origin into a real folder.
import { chmod, mkdir, mkdtemp, readFile, readdir, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FreshFolder } from '../../../src/cli/fresh-folder.ts';
import { unless } from '../../fixtures/left-out.ts';

let root: string;
const at = (...parts: readonly string[]): string => path.join(root, ...parts);
const bytes = Buffer.from('bytes\n');
beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'escrow-fresh-'));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

describe('a folder for bytes of unknown origin', () => {
  it('is made, or taken where it is empty; what is written is readable by its owner alone and can’t be executed', async () => {
    await mkdir(at('empty'));
    for (const name of ['new', 'empty']) {
      const folder = await FreshFolder.open(at(name));
      expect(await folder.write('src/deep/run.sh', bytes)).toBeNull();
      expect(await folder.write('src/b.py', bytes, 'files')).toBeNull();
      expect(await readFile(at(name, 'src/deep/run.sh'))).toEqual(bytes);
      expect((await stat(at(name, 'src/deep/run.sh'))).mode & 0o777).toBe(0o600);
      expect(await readFile(at(name, 'files/src/b.py'))).toEqual(bytes);
    }
  });

  it('is refused where it is not empty, a file, a link, or in no folder; nothing is written then', async () => {
    await mkdir(at('full'));
    await writeFile(at('full', 'mine'), 'mine');
    await writeFile(at('file'), 'mine');
    await mkdir(at('target'));
    await symlink(at('target'), at('link'));
    await symlink(at('nowhere'), at('dangling'));
    for (const name of ['full', 'file', 'link', 'dangling']) {
      await expect(FreshFolder.open(at(name)), name).rejects.toMatchObject({ code: 'UnsafePath' });
    }
    await expect(FreshFolder.open(at('none', 'new'))).rejects.toMatchObject({ code: 'NotFound' });
    await expect(FreshFolder.open(at('file', 'new'))).rejects.toThrow(/is no folder$/);
    expect((await readdir(root)).toSorted()).toEqual(['dangling', 'file', 'full', 'link', 'target']);
    expect(await readdir(at('target'))).toEqual([]);
  });

  it.each([
    ['../out.py', 'dot-segment'],
    ['/etc/passwd', 'absolute'],
    ['C:x.py', 'absolute'],
    ['a\\b', 'backslash'],
    ['.git/hooks/pre-commit', 'git-folder'],
    ['a\u202Eb', 'invisible-character'],
    ['', 'empty'],
  ])('takes no name %j, whatever folder it is put under', async (name, fault) => {
    const folder = await FreshFolder.open(at('new'));
    expect([await folder.write(name, bytes), await folder.write(name, bytes, 'files')]).toEqual([fault, fault]);
    expect(await readdir(at('new'))).toEqual([]);
  });

  it('writes nothing over: not the same name, not one that differs in letter case, not a file in place of a folder', async () => {
    const folder = await FreshFolder.open(at('new'));
    expect(await folder.write('Src/a.py', bytes)).toBeNull();
    for (const name of ['Src/a.py', 'src/A.PY', 'Src', 'Src/a.py/b', 'src/b.py', 'src/deep/b.py']) {
      expect(await folder.write(name, Buffer.from('other')), name).toBe('name-taken');
    }
    expect(await folder.write('Src/b.py', bytes)).toBeNull();
    expect(await readdir(at('new'))).toEqual(['Src']);
    expect(await readFile(at('new/Src/a.py'))).toEqual(bytes);
  });

  it('follows no link that somebody puts into it meanwhile', async () => {
    await mkdir(at('target'));
    const folder = await FreshFolder.open(at('new'));
    expect(await folder.write('src/a.py', bytes)).toBeNull();
    await rename(at('new/src'), at('moved'));
    await symlink(at('target'), at('new/src'));
    await symlink(at('target/new.py'), at('new/b.py'));
    await symlink(at('target'), at('new/lib'));
    for (const name of ['src/b.py', 'b.py', 'lib/c.py']) {
      await expect(folder.write(name, bytes), name).rejects.toMatchObject({ code: 'UnsafePath' });
    }
    expect(await readdir(at('target'))).toEqual([]);
  });

  const asRoot = process.getuid?.() === 0;
  it.skipIf(asRoot)(`that can’t be written says so${unless(!asRoot, 'root may write everywhere')}`, async () => {
    await mkdir(at('locked'), { mode: 0o500 });
    await expect(FreshFolder.open(at('locked', 'new'))).rejects.toMatchObject({ code: 'UnsafePath' });
    await chmod(at('locked'), 0o700);
  });
});
