import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { realPath, samePaths } from '../../../src/extension/documents/same-paths.ts';

let folder: string;

beforeEach(async () => {
  folder = await realpath(await mkdtemp(path.join(tmpdir(), 'escrow-paths-')));
  await mkdir(path.join(folder, 'repository'));
  await writeFile(path.join(folder, 'repository', 'a.py'), '');
  await symlink(path.join(folder, 'repository'), path.join(folder, 'opened'), 'dir');
});

afterEach(() => rm(folder, { recursive: true }));

const at = (...parts: string[]): string => path.join(folder, ...parts);

test('an unsaved file of a folder that was opened through a link is the file that the Kernel asks about', () => {
  const asked = [at('repository', 'a.py'), at('repository', 'b.py')];
  expect(samePaths(asked, [at('opened', 'a.py')], realPath)).toEqual([at('repository', 'a.py')]);
});

test('so is one that is not on the disk (any more)', () => {
  expect(samePaths([at('repository', 'new.py')], [at('opened', 'new.py')], realPath)).toEqual([
    at('repository', 'new.py'),
  ]);
  expect(samePaths([at('gone', 'x', 'y.py')], [at('gone', 'x', 'y.py')], realPath)).toEqual([at('gone', 'x', 'y.py')]);
});

test('another file of the same name is not', () => {
  expect(samePaths([at('repository', 'a.py')], [at('a.py')], realPath)).toEqual([]);
});
