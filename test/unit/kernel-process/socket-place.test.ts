import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { placeSocket } from '../../../src/server/rpc/listener.ts';
import { leftOut } from '../../fixtures/left-out.ts';

let folder: string;
let runtime: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'escrow-place-'));
  runtime = path.join(folder, 'r');
  await mkdir(runtime);
  await chmod(runtime, 0o700);
});

afterEach(() => rm(folder, { recursive: true }));

/** A home whose own folder is too deep for a socket. */
async function deepHome(name: string): Promise<string> {
  const home = path.join(folder, name.repeat(90));
  await mkdir(home, { recursive: true, mode: 0o700 });
  return home;
}

describe.skipIf(process.platform === 'win32')(`the socket of a home with a long path${leftOut.posix}`, () => {
  const place = (home: string) => placeSocket(home, { XDG_RUNTIME_DIR: runtime });

  test('lies in a private folder, and the next Kernel removes the one of a Kernel that was killed', async () => {
    const home = await deepHome('a');
    const killed = place(home);
    await writeFile(killed.path, '');
    const next = place(home);
    expect(next.path).not.toBe(killed.path);
    expect(await readdir(runtime)).toEqual([path.basename(next.folder ?? '')]);
  });

  test("stays where it is another home's, or a link", async () => {
    const other = place(await deepHome('b'));
    const home = await deepHome('a');
    const mine = place(home);
    const prefix = path.basename(mine.folder ?? '').slice(0, -6);
    await writeFile(path.join(folder, 'kept'), '');
    await symlink(folder, path.join(runtime, `${prefix}linked`));
    place(home);
    const left = await readdir(runtime);
    expect(left).toContain(path.basename(other.folder ?? ''));
    expect(left).toContain(`${prefix}linked`);
    expect(await readdir(folder)).toContain('kept');
  });
});
