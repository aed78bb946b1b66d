import { execFileSync } from 'node:child_process';
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { IntegrationId, RelPath, Sha256 } from '../../../src/protocol/primitives.ts';
import {
  applyChanges,
  movedFiles,
  recoverIntegrations,
  refuseUnsaved,
  reversed,
} from '../../../src/server/review/integrate.ts';
import type { Recovered } from '../../../src/server/review/integrate.ts';
import { openJournalStore } from '../../../src/server/review/integration-journal.ts';
import type { FileChange, JournalStore } from '../../../src/server/review/integration-journal.ts';
import { openTreeFiles } from '../../../src/server/review/tree-files.ts';
import type { TreeFiles } from '../../../src/server/review/tree-files.ts';
import { plainGit } from '../../fixtures/git-repository.ts';
import { leftOut } from '../../fixtures/left-out.ts';

const id = 'int_0123456789ab' as IntegrationId;
/** Thrown where a test ends the process; nothing may be caught on the way and "repaired". */
class Crash extends Error {}

describe('integration into a working tree', () => {
  let root: string;
  let home: string;
  let journals: JournalStore;
  const kept = new Map<Sha256, Uint8Array>();
  const bytesOf = (hash: Sha256): Promise<Uint8Array> => {
    const bytes = kept.get(hash);
    return bytes === undefined ? Promise.reject(new Error(`nothing kept for ${hash}`)) : Promise.resolve(bytes);
  };

  beforeEach(async () => {
    root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'escrow-tree-')));
    home = await mkdtemp(path.join(os.tmpdir(), 'escrow-home-'));
    journals = openJournalStore(path.join(home, 'integrations'));
    kept.clear();
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
    await rm(home, { recursive: true, force: true });
  });

  type Content = string | Uint8Array | null;
  const state = (content: Content, executable: boolean): FileChange['from'] => {
    if (content === null) return null;
    const bytes = Buffer.from(content as string);
    kept.set(sha256(bytes), bytes);
    return { sha256: sha256(bytes), size: bytes.byteLength, executable };
  };
  const change = (
    file: string,
    from: Content,
    to: Content,
    executable: [boolean, boolean] = [false, false],
  ): FileChange => ({
    path: file as RelPath,
    from: state(from, executable[0]),
    to: state(to, executable[1]),
  });
  async function put(file: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
    await mkdir(path.dirname(path.join(root, file)), { recursive: true });
    await writeFile(path.join(root, file), content);
    await chmod(path.join(root, file), mode);
  }
  async function apply(changes: readonly FileChange[], more: Partial<Parameters<typeof applyChanges>[0]> = {}) {
    const tree = await openTreeFiles(root);
    return applyChanges({ id, purpose: 'integrate', tree, journals, changes, bytesOf, ...more });
  }
  const recover = async (isOpen = true): Promise<readonly Recovered[]> => {
    const deps = { journals, openTree: openTreeFiles, bytesOf, isOpen: () => isOpen, log: () => undefined };
    return (await recoverIntegrations(deps)).recovered;
  };
  /** Every file below the root with its bytes and whether it is executable; links and folders by kind. */
  async function tree(folder = root): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const name of (await readdir(folder)).toSorted()) {
      const full = path.join(folder, name);
      const stat = await lstat(full);
      const shown = path.relative(root, full);
      if (stat.isSymbolicLink()) found[shown] = 'link';
      else if (!stat.isFile() && !stat.isDirectory()) found[shown] = 'other';
      else if (stat.isDirectory()) {
        found[`${shown}/`] = 'folder';
        Object.assign(found, await tree(full));
      } else found[shown] = `${(stat.mode & 0o111) === 0 ? '' : 'x '}${(await readFile(full)).toString('latin1')}`;
    }
    return found;
  }
  const journalsLeft = async (): Promise<string[]> => readdir(path.join(home, 'integrations')).catch(() => []);

  it.each<[string, string | Uint8Array, string | Uint8Array]>([
    ['CRLF', 'a\r\nb\r\n', 'a\r\nc\r\n'],
    ['mixed line ends', 'a\r\nb\nc\r', 'a\nb\r\n'],
    ['a byte-order mark', '\uFEFFa\n', '\uFEFFb\n'],
    ['no final newline', 'a', 'b'],
    ['an empty file', '', 'x'],
    ['an emptied file', 'x', ''],
    ['binary', new Uint8Array([0, 255, 10, 13, 0]), new Uint8Array([255, 0, 13])],
    ['a very long line', 'x'.repeat(1_000_000), 'y'.repeat(1_000_000)],
  ])('writes exactly the bytes: %s', async (_, from, to) => {
    await put('src/a', from);
    expect(await apply([change('src/a', from, to)])).toEqual({ state: 'applied', newFolders: [] });
    expect(await readFile(path.join(root, 'src/a'))).toEqual(Buffer.from(to as string));
    expect(await readdir(path.join(root, 'src'))).toEqual(['a']);
    expect(await journalsLeft()).toEqual([]);
  });

  it('keeps the mode of a file and changes only the executable bit when the candidate does', async () => {
    await put('a', '1', 0o640);
    await put('b', '1', 0o664);
    await put('c', '1', 0o755);
    await apply([change('a', '1', '2'), change('b', '1', '2', [false, true]), change('c', '1', '1', [true, false])]);
    const mode = async (file: string): Promise<number> => (await lstat(path.join(root, file))).mode & 0o777;
    expect([await mode('a'), await mode('b'), await mode('c')]).toEqual([0o640, 0o775, 0o644]);
  });

  // Only root may give files away; elsewhere the owner is the person anyway.
  it.skipIf(process.getuid?.() !== 0)(`keeps the owner of a file${leftOut.root}`, async () => {
    await put('a', '1');
    execFileSync('chown', ['1234:2345', path.join(root, 'a')]);
    await apply([change('a', '1', '2')]);
    const stat = await lstat(path.join(root, 'a'));
    expect([stat.uid, stat.gid]).toEqual([1234, 2345]);
  });

  it('creates files with their folders, deletes files, and undoes both', async () => {
    await put('old', 'o');
    const before = await tree();
    const changes = [change('new/deep/file', null, 'n', [false, true]), change('old', 'o', null)];
    const applied = await apply(changes);
    expect(applied).toEqual({ state: 'applied', newFolders: ['new', 'new/deep'] });
    expect(await tree()).toEqual({ 'new/': 'folder', 'new/deep/': 'folder', 'new/deep/file': 'x n' });
    if (applied.state !== 'applied') throw new Error('unreachable');
    await apply(reversed(changes), { purpose: 'undo', emptyFolders: applied.newFolders });
    expect(await tree()).toEqual(before);
  });

  it('never touches HEAD, index or branches', async () => {
    await put('a', '1');
    await plainGit(root, 'init', '-q');
    await plainGit(root, 'add', '-A');
    await plainGit(root, 'commit', '-qm', 'x');
    const before = await tree(path.join(root, '.git'));
    await apply([change('a', '1', '2'), change('b', null, '3')]);
    expect(await tree(path.join(root, '.git'))).toEqual(before);
  });

  describe('refuses and writes nothing', () => {
    async function refused(changes: readonly FileChange[], code: string): Promise<void> {
      const before = await tree();
      await expect(apply(changes)).rejects.toMatchObject({ code });
      expect(await tree()).toEqual(before);
      expect(await journalsLeft()).toEqual([]);
    }

    it('when one of several files is not what it was', async () => {
      await put('a', '1');
      await put('b', 'someone was here');
      await refused([change('a', '1', '2'), change('b', '1', '2')], 'BaseChanged');
    });
    it('when only the executable bit is not what it was', async () => {
      await put('a', '1', 0o755);
      await refused([change('a', '1', '2')], 'BaseChanged');
    });
    it('when the base was deleted', async () => refused([change('a', '1', '2')], 'BaseChanged'));
    it('when a new file is there already', async () => {
      await put('a', 'mine');
      await refused([change('a', null, '2')], 'BaseChanged');
    });
    it('when the file became a link', async () => {
      await put('real', '1');
      await symlink('real', path.join(root, 'a'));
      await refused([change('a', '1', '2')], 'UnsafePath');
    });
    it('when a parent became a link, also out of the tree', async () => {
      await put('real/a', '1');
      await symlink('real', path.join(root, 'way'));
      await symlink(os.tmpdir(), path.join(root, 'out'));
      await refused([change('way/a', '1', '2')], 'UnsafePath');
      await refused([change('out/escrow-test-file', null, '2')], 'UnsafePath');
    });
    it('when a parent is a file, or the file a folder or a pipe', async () => {
      await put('a', '1');
      await mkdir(path.join(root, 'd'));
      execFileSync('mkfifo', [path.join(root, 'p')]);
      await refused([change('a/b', null, '2')], 'UnsafePath');
      await refused([change('d', null, '2')], 'UnsafePath');
      await refused([change('p', '1', '2')], 'UnsafePath');
    });
    it.each([
      '../x',
      '/etc/x',
      '.git/hooks/pre-commit',
      'a/.git/config',
      '.vscode/tasks.json',
      'a/.idea/w.xml',
      '.mcp.json',
      '.devcontainer/devcontainer.json',
      'CON',
      'a\u202Eb',
    ])('for the path %j', async (file) => refused([change(file, null, 'x')], 'UnsafePath'));
    it('when an editor holds unsaved changes', () => {
      expect(() => refuseUnsaved([change('a', '1', '2')], ['a'])).toThrow(
        expect.objectContaining({ code: 'UnsavedChanges' }),
      );
      expect(() => refuseUnsaved([change('a', '1', '2')], ['b'])).not.toThrow();
    });
    it('when a file changes between the look and the first replacement', async () => {
      await put('a', '1');
      await put('b', '1');
      const real = await openTreeFiles(root);
      const late: TreeFiles = {
        ...real,
        async writeNew(file, bytes, like) {
          await real.writeNew(file, bytes, like);
          await writeFile(path.join(root, 'b'), 'saved meanwhile');
        },
      };
      await expect(apply([change('a', '1', '2'), change('b', '1', '2')], { tree: late })).rejects.toMatchObject({
        code: 'BaseChanged',
      });
      expect(await tree()).toEqual({ a: '1', b: 'saved meanwhile' });
    });
    it('when a folder is swapped for a link out of the tree right before it is written to', async () => {
      await put('src/a', '1');
      const outside = await mkdtemp(path.join(os.tmpdir(), 'escrow-outside-'));
      try {
        const real = await openTreeFiles(root);
        const swapped: TreeFiles = {
          ...real,
          async writeNew(file, bytes, like) {
            await rename(path.join(root, 'src'), path.join(root, 'moved'));
            await symlink(outside, path.join(root, 'src'));
            await real.writeNew(file, bytes, like);
          },
        };
        await expect(apply([change('src/a', '1', '2')], { tree: swapped })).rejects.toMatchObject({
          code: 'UnsafePath',
        });
        expect(await readdir(outside)).toEqual([]);
        expect(await tree()).toEqual({ 'moved/': 'folder', 'moved/a': '1', src: 'link' });
      } finally {
        await rm(outside, { recursive: true });
      }
    });
    it('when the disk is full', async () => {
      await put('a', '1');
      const real = await openTreeFiles(root);
      const full: TreeFiles = {
        ...real,
        async writeNew(file, bytes, like) {
          await real.writeNew(file, bytes.subarray(0, 0), like);
          throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
        },
      };
      await expect(apply([change('a', '1', '2')], { tree: full })).rejects.toMatchObject({ code: 'StorageFull' });
      expect(await tree()).toEqual({ a: '1' });
    });
    it('when kept bytes are not those of the hash', async () => {
      await put('a', '1');
      const wrong = change('a', '1', '2');
      kept.set(wrong.to!.sha256, Buffer.from('tampered'));
      await expect(apply([wrong])).rejects.toThrow();
      expect(await tree()).toEqual({ a: '1' });
    });
  });

  it('puts back what it replaced when a later file changes in the middle, and leaves that file alone', async () => {
    await put('a', '1');
    await put('b', '1');
    const real = await openTreeFiles(root);
    const late: TreeFiles = {
      ...real,
      async replace(from, to, exclusive) {
        await real.replace(from, to, exclusive);
        if (to === 'a') await writeFile(path.join(root, 'b'), 'saved meanwhile');
      },
    };
    await expect(apply([change('a', '1', '2'), change('b', '1', '2')], { tree: late })).rejects.toMatchObject({
      code: 'BaseChanged',
    });
    expect(await tree()).toEqual({ a: '1', b: 'saved meanwhile' });
    expect(await journalsLeft()).toEqual([]);
  });

  it('does not replace a file that somebody creates where a new one was to go', async () => {
    const real = await openTreeFiles(root);
    const late: TreeFiles = {
      ...real,
      async replace(from, to, exclusive) {
        await writeFile(path.join(root, to), 'mine');
        await real.replace(from, to, exclusive);
      },
    };
    await expect(apply([change('n', null, '2')], { tree: late })).rejects.toMatchObject({ code: 'BaseChanged' });
    expect(await tree()).toEqual({ n: 'mine' });
  });

  it('undoes only what is still as it was integrated', async () => {
    await put('a', '1');
    const changes = [change('a', '1', '2')];
    await apply(changes);
    await writeFile(path.join(root, 'a'), 'worked on');
    await expect(apply(reversed(changes), { purpose: 'undo' })).rejects.toMatchObject({ code: 'BaseChanged' });
    expect(await tree()).toEqual({ a: 'worked on' });
  });

  it('what can not be cleaned up afterwards makes no refusal of a change that is there', async () => {
    const stuck = (code: string) => () => Promise.reject(Object.assign(new Error(code), { code }));
    await put('src/a.py', 'old');
    const changes = [change('src/a.py', 'old', 'new'), change('src/deep/b.py', null, 'b')];
    const lost: JournalStore = { ...journals, remove: stuck('EACCES') };
    const applied = await apply(changes, { journals: lost });
    expect(applied).toEqual({ state: 'applied', newFolders: ['src/deep'] });
    // The journal stayed: the next start removes it, as the end of this integration is on record.
    expect(await journalsLeft()).toHaveLength(1);
    expect(await recover(false)).toEqual([]);
    expect(await journalsLeft()).toEqual([]);
    const busy: TreeFiles = { ...(await openTreeFiles(root)), removeFolder: stuck('EBUSY') };
    await expect(
      apply(reversed(changes), { purpose: 'undo', tree: busy, emptyFolders: ['src/deep'] }),
    ).resolves.toMatchObject({ state: 'applied' });
    expect(await tree()).toEqual({ 'src/': 'folder', 'src/a.py': 'old', 'src/deep/': 'folder' });
  });

  it('tells which other files of the snapshot have moved on', async () => {
    await put('same', '1');
    await put('changed', '2');
    const entry = (file: string) => ({ path: file as RelPath, mode: 0o644, size: 1, sha256: sha256('1') });
    const files = ['same', 'changed', 'gone', 'own'].map(entry);
    const own = {
      ...entry('own'),
      change: 'modified' as const,
      before: null,
      after: null,
      beforeMode: null,
      afterMode: null,
    };
    expect(await movedFiles(await openTreeFiles(root), files, [own])).toEqual(['changed', 'gone']);
  });

  it('refuses a root that is reached through a link', async () => {
    await symlink(root, `${root}-link`);
    try {
      await expect(openTreeFiles(`${root}-link`)).rejects.toThrow('link');
    } finally {
      await rm(`${root}-link`);
    }
  });

  describe('after a crash', () => {
    const changes = (): FileChange[] => [
      change('a', '1', '2'),
      change('new/n', null, 'n'),
      change('d', 'x', null),
      change('b', '1', '2', [false, true]),
    ];
    const old = { a: '1', b: '1', d: 'x' };
    const done = { a: '2', b: 'x 2', 'new/': 'folder', 'new/n': 'n' };
    const start = async (): Promise<void> => {
      await put('a', '1');
      await put('b', '1');
      await put('d', 'x');
    };
    /** A tree and journals whose n-th touch (before or after it took place) is the last thing the process does. */
    async function crashing(
      at: number,
      when: 'before' | 'after',
    ): Promise<{ tree: TreeFiles; journals: JournalStore; count: () => number }> {
      let n = 0;
      const wrap = <T extends object>(it: T, names: readonly (keyof T)[]): T => {
        const copy = { ...it };
        for (const name of names) {
          const call = it[name] as unknown as (...args: unknown[]) => Promise<unknown>;
          copy[name] = (async (...args: unknown[]) => {
            n += 1;
            if (n > at) throw new Crash();
            if (n === at && when === 'before') throw new Crash();
            const result = await call(...args);
            if (n === at) throw new Crash();
            return result;
          }) as never;
        }
        return copy;
      };
      return {
        tree: wrap(await openTreeFiles(root), [
          'makeFolder',
          'removeFolder',
          'writeNew',
          'replace',
          'remove',
          'syncFolder',
        ]),
        journals: wrap(journals, ['write', 'remove']),
        count: () => n,
      };
    }

    it('at every step, before and after each touch, the tree ends old or new, and nothing of ours stays', async () => {
      await start();
      const whole = await crashing(Infinity, 'after');
      await apply(changes(), whole);
      expect(await tree()).toEqual(done);
      const steps = whole.count();
      expect(steps).toBeGreaterThan(12);
      const ends = new Set<string>();
      for (const when of ['before', 'after'] as const) {
        for (let at = 1; at <= steps; at += 1) {
          await rm(root, { recursive: true });
          await mkdir(root);
          await start();
          const { tree: crashed, journals: lost } = await crashing(at, when);
          await expect(apply(changes(), { tree: crashed, journals: lost })).rejects.toThrow();
          const recovered = await recover();
          const seen = await tree();
          expect([old, done], `crash ${when} touch ${at}`).toContainEqual(seen);
          for (const one of recovered)
            expect(one.state).toBe(JSON.stringify(seen) === JSON.stringify(old) ? 'not-applied' : 'applied');
          expect((await journalsLeft()).filter((name) => name.endsWith('.json'))).toEqual([]);
          ends.add(recovered[0]?.state ?? 'none');
          // A second start finds nothing more to do.
          expect(await recover()).toEqual([]);
        }
      }
      expect([...ends].toSorted()).toEqual(['applied', 'none', 'not-applied']);
    });

    it('in the middle of recovering, the next start still ends it', async () => {
      await start();
      const whole = await crashing(Infinity, 'after');
      await apply(changes(), whole);
      for (let at = 1; at <= whole.count(); at += 1) {
        await rm(root, { recursive: true });
        await mkdir(root);
        await start();
        await expect(apply(changes(), await crashing(at, 'after'))).rejects.toThrow();
        for (let again = 1; again < 6; again += 1) {
          const half = await crashing(again, 'before');
          await recoverIntegrations({
            journals: { ...half.journals, list: () => journals.list() },
            openTree: () => Promise.resolve(half.tree),
            bytesOf,
            isOpen: () => true,
            log: () => undefined,
          });
        }
        await recover();
        expect([old, done], `crash after touch ${at}`).toContainEqual(await tree());
        expect((await journalsLeft()).filter((name) => name.endsWith('.json'))).toEqual([]);
      }
    });

    async function stopBeforeSecondReplacement(): Promise<void> {
      await start();
      let replaced = 0;
      const real = await openTreeFiles(root);
      const crashed: TreeFiles = {
        ...real,
        async replace(from, to, exclusive) {
          replaced += 1;
          if (replaced > 1) throw new Crash();
          await real.replace(from, to, exclusive);
        },
        // A dead process does not clean up either.
        remove: () => Promise.reject(new Crash()),
        removeFolder: () => Promise.reject(new Crash()),
      };
      await expect(
        apply(changes(), { tree: crashed, journals: { ...journals, remove: () => Promise.reject(new Crash()) } }),
      ).rejects.toThrow();
      expect((await tree())['a']).toBe('2');
      expect((await tree())['b']).toBe('1');
    }

    it('finishes what is half done', async () => {
      await stopBeforeSecondReplacement();
      expect(await recover()).toMatchObject([{ state: 'applied', id }]);
      expect(await tree()).toEqual(done);
    });

    it('puts the rest back when somebody wrote one of the files meanwhile, and keeps their bytes', async () => {
      await stopBeforeSecondReplacement();
      await writeFile(path.join(root, 'b'), 'mine');
      expect(await recover()).toMatchObject([{ state: 'not-applied' }]);
      expect(await tree()).toEqual({ a: '1', b: 'mine', d: 'x' });
    });

    it('leaves alone what was edited after it had been replaced', async () => {
      await stopBeforeSecondReplacement();
      await writeFile(path.join(root, 'a'), 'mine');
      await recover();
      expect((await tree())['a']).toBe('mine');
      expect((await tree())['b']).toBe('1');
    });

    it('takes away only its own temporary files for a journal whose end is recorded', async () => {
      await stopBeforeSecondReplacement();
      const before = Object.entries(await tree());
      const theirs = before.filter(([name]) => !path.basename(name).startsWith('.escrow-'));
      expect(theirs.length).toBeLessThan(before.length);
      expect(await recover(false)).toEqual([]);
      expect(Object.entries(await tree())).toEqual(theirs);
      expect(await journalsLeft()).toEqual([]);
    });

    it('keeps the journal of a tree that cannot be opened, and says that it is not at its end', async () => {
      await stopBeforeSecondReplacement();
      const away = { journals, bytesOf, isOpen: () => true, log: () => undefined };
      const { recovered, left } = await recoverIntegrations({
        ...away,
        openTree: () => Promise.reject(new Error('not mounted')),
      });
      expect([recovered, [...left]]).toEqual([[], [id]]);
      expect(await recover()).toMatchObject([{ state: 'applied' }]);
      expect(await tree()).toEqual(done);
    });

    it('a journal that finds no room leaves nothing in the tree', async () => {
      await start();
      for (const nth of [1, 2]) {
        let writes = 0;
        const full: JournalStore = {
          ...journals,
          async write(journal) {
            writes += 1;
            if (writes === nth) throw Object.assign(new Error('full'), { code: 'ENOSPC' });
            await journals.write(journal);
          },
        };
        await expect(apply(changes(), { journals: full })).rejects.toMatchObject({ code: 'StorageFull' });
        expect(await tree()).toEqual(old);
        expect(await journalsLeft()).toEqual([]);
      }
    });

    it('keeps a journal whose tree is not there, and one that cannot be read', async () => {
      await stopBeforeSecondReplacement();
      await rename(root, `${root}-away`);
      await writeFile(path.join(home, 'integrations', 'int_broken.json'), '{');
      expect(await recover()).toEqual([]);
      expect((await journalsLeft()).toSorted()).toEqual([`${id}.json`, 'int_broken.json']);
      await rename(`${root}-away`, root);
      expect(await recover()).toMatchObject([{ state: 'applied' }]);
    });
  });

  it('applies and undoes any set of changes to exactly where it started', async () => {
    const content = fc.option(fc.uint8Array({ maxLength: 40 }), { nil: null });
    await fc.assert(
      fc.asyncProperty(
        fc.dictionary(
          fc.constantFrom('a', 'b', 'x/c', 'x/y/d', 'z/e'),
          fc.tuple(content, content, fc.boolean(), fc.boolean()),
          { minKeys: 1 },
        ),
        async (files) => {
          await rm(root, { recursive: true });
          await mkdir(root);
          await put('keep', 'k');
          const changes: FileChange[] = [];
          for (const [file, [from, to, x1, x2]] of Object.entries(files)) {
            if (from !== null) await put(file, from, x1 ? 0o755 : 0o644);
            const one = change(file, from, to, [x1, x2]);
            if (JSON.stringify(one.from) !== JSON.stringify(one.to)) changes.push(one);
          }
          const before = await tree();
          const applied = await apply(changes);
          if (applied.state !== 'applied') throw new Error(applied.reason);
          await apply(reversed(changes), { purpose: 'undo', emptyFolders: applied.newFolders });
          expect(await tree()).toEqual(before);
        },
      ),
      { numRuns: 60 },
    );
  });
});
