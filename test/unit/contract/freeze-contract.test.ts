import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, link, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { ContractSource } from '../../../src/protocol/contract.ts';
import type * as z from 'zod';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { checkContract, freezeContract } from '../../../src/server/contract/freeze-contract.ts';
import type { Frozen } from '../../../src/server/contract/freeze-contract.ts';
import { gitRepository } from '../../fixtures/git-repository.ts';
import type { GitRepository } from '../../fixtures/git-repository.ts';
import { scope } from '../../fixtures/scope.ts';

type Draft = Partial<z.input<typeof ContractSource>>;

const files = {
  'src/usage.py': 'x = 1\n',
  'src/other.py': 'y = 1\n',
  'tests/test_usage.py': 'import unittest\n',
  'acceptance/hidden.py': 'secret = 1\n',
  'README.md': '# Hello\n',
};

describe('freezing a contract', () => {
  let repo: GitRepository | undefined;
  afterEach(async () => {
    await repo?.dispose();
    repo = undefined;
  });

  async function start(more: Readonly<Record<string, string | Uint8Array>> = {}): Promise<GitRepository> {
    repo = await gitRepository({ ...files, ...more });
    return repo;
  }
  async function write(draft: Draft = {}): Promise<string> {
    return repo!.write('change.contract.jsonc', text(draft));
  }
  const text = (draft: Draft): string =>
    JSON.stringify({
      title: 'T',
      instruction: 'Do it.',
      writable: ['src/usage.py'],
      acceptance: [{ id: 'unit', argv: ['python3', '-m', 'unittest', 'tests.test_usage'] }],
      ...draft,
    });
  const freeze = async (draft: Draft = {}): Promise<Frozen> => freezeContract(await write(draft), scope);
  /** `code: what the remark stands on` for each error. */
  async function errors(draft: Draft): Promise<string[]> {
    const file = await write(draft);
    const source = text(draft);
    const { diagnostics } = await checkContract(file, scope);
    const found = diagnostics.filter((d) => d.severity === 'error');
    const refusal = await freezeContract(file, scope).then(
      () => null,
      (error: unknown) => error,
    );
    // What is an error in the editor is a refusal at freezing.
    if (found.length > 0) expect(EscrowError.is(refusal, 'InvalidContract')).toBe(true);
    return found.map((d) => `${d.code}: ${source.slice(d.offset, d.offset + d.length)}`);
  }

  it('takes what git tracks, without contracts, and puts tests under protection', async () => {
    await start();
    await repo!.write('untracked.txt', 'no');
    const { contract, bytes, root, digest } = await freeze();
    expect(contract.files.map((f) => [f.path, f.protected])).toEqual([
      ['README.md', false],
      ['acceptance/hidden.py', false],
      ['src/other.py', false],
      ['src/usage.py', false],
      ['tests/test_usage.py', true],
    ]);
    expect(contract.readable).toEqual(contract.files.map((f) => f.path));
    expect(root).toBe(repo!.root);
    for (const file of contract.files) expect(sha256(bytes.get(file.path)!)).toBe(file.sha256);
    expect(digest).toMatch(/^[0-9a-f]{64}$/);
  });

  it('keeps supplemental files out of everything that the agent gets', async () => {
    await start();
    const { contract, bytes, supplementalBytes } = await freeze({
      supplemental: [{ path: 'acceptance/**', argv: ['python3', 'acceptance/hidden.py'] }],
    });
    expect(contract.files.map((f) => f.path)).not.toContain('acceptance/hidden.py');
    expect([...bytes.keys()]).not.toContain('acceptance/hidden.py');
    expect(contract.readable).not.toContain('acceptance/hidden.py');
    expect([...supplementalBytes.keys()]).toEqual(['acceptance/hidden.py']);
    expect(contract.checks.at(-1)).toMatchObject({ id: 'supplemental-1', kind: 'supplemental', baseline: null });
  });

  it('takes bytes as they are: line ends, byte-order mark, no final newline', async () => {
    const odd = Buffer.from('\uFEFFa = 1\r\nb = 2', 'utf8');
    await start({ 'src/odd.py': odd, '.gitattributes': '*.py text eol=lf\n' });
    const { bytes } = await freeze();
    expect(Buffer.from(bytes.get('src/odd.py' as never)!).equals(odd)).toBe(true);
  });

  it('takes the working tree, not the last commit', async () => {
    await start();
    await repo!.write('src/usage.py', 'x = 2\n');
    const { bytes } = await freeze();
    expect(Buffer.from(bytes.get('src/usage.py' as never)!).toString()).toBe('x = 2\n');
  });

  it('has the same digest in another folder and under another umask, and another one for other bytes', async () => {
    await start();
    const first = (await freeze()).digest;
    await chmod(path.join(repo!.root, 'src/usage.py'), 0o600);
    expect((await freeze()).digest).toBe(first);
    const moved = `${repo!.root}-moved`;
    await rename(repo!.root, moved);
    expect((await freezeContract(path.join(moved, 'change.contract.jsonc'), scope)).digest).toBe(first);
    await writeFile(path.join(moved, 'README.md'), '# Hello!\n');
    expect((await freezeContract(path.join(moved, 'change.contract.jsonc'), scope)).digest).not.toBe(first);
    await rename(moved, repo!.root);
  });

  it('knows an executable file by its bit alone', async () => {
    await start();
    await chmod(path.join(repo!.root, 'src/other.py'), 0o700);
    const { contract } = await freeze();
    expect(contract.files.find((f) => f.path === 'src/other.py')?.mode).toBe(0o755);
    expect(contract.files.find((f) => f.path === 'src/usage.py')?.mode).toBe(0o644);
  });

  it('lets a file that does not exist be created, readable once it is there', async () => {
    await start();
    const { contract } = await freeze({ writable: ['src/usage.py', 'src/new.py'], readable: ['src/usage.py'] });
    expect(contract.writable).toEqual([
      { path: 'src/usage.py', symbols: null, exists: true },
      { path: 'src/new.py', symbols: null, exists: false },
    ]);
    expect(contract.readable).toEqual(['src/new.py', 'src/usage.py']);
  });

  it('has the tools that were asked for, and a digest that says so', async () => {
    await start();
    const without = await freeze();
    expect(without.contract.tools).toEqual([]);
    const withIt = await freeze({ tools: ['search'] });
    expect(withIt.contract.tools).toEqual(['search']);
    expect(withIt.digest).not.toBe(without.digest);
  });

  it('takes an untracked file only when it is named', async () => {
    await start();
    await repo!.write('notes/a.txt', 'a');
    const { contract } = await freeze({ snapshot: { include: ['src/**', 'tests/**', 'notes/a.txt'] } });
    expect(contract.files.map((f) => f.path)).toContain('notes/a.txt');
    expect(
      (await freeze({ snapshot: { include: ['src/**', 'tests/**', 'notes/**'] } })).contract.files.map((f) => f.path),
    ).not.toContain('notes/a.txt');
  });

  it('takes a tracked file with glob characters in its name by that name', async () => {
    await start({ 'src/[id].ts': 'export {};\n' });
    const { contract } = await freeze({ writable: ['src/[id].ts'] });
    expect(contract.writable[0]).toMatchObject({ path: 'src/[id].ts', exists: true });
  });

  it.each<[string, Draft, string]>([
    ['an unknown file', { readable: ['src/usgae.py'] }, 'unknown-path: "src/usgae.py"'],
    [
      'a readable file outside the snapshot',
      { snapshot: { include: ['src/**'] }, readable: ['README.md'] },
      'not-in-snapshot: "README.md"',
    ],
    ['a writable glob', { writable: ['src/*.py'] }, 'writable-glob: "src/*.py"'],
    [
      'a file that is writable twice',
      { writable: ['src/usage.py', { path: 'src/usage.py' }] },
      'duplicate-path: "src/usage.py"',
    ],
    ['a writable file that is protected', { protected: ['src/**'] }, 'writable-protected: "src/usage.py"'],
    ['a writable test', { writable: ['tests/test_usage.py'] }, 'writable-protected: "tests/test_usage.py"'],
    [
      'a writable file that the check runs',
      { writable: ['src/usage.py'], acceptance: [{ id: 'a', argv: ['python3', 'src/usage.py'] }] },
      'writable-protected: "src/usage.py"',
    ],
    ['a writable folder', { writable: ['src'] }, 'folder: "src"'],
    ['a path out of the tree', { writable: ['../x'] }, 'unsafe-path: "../x"'],
    ['an absolute path', { writable: ['/etc/passwd'] }, 'unsafe-path: "/etc/passwd"'],
    ["git's folder", { writable: ['.git/hooks/pre-commit'] }, 'unsafe-path: ".git/hooks/pre-commit"'],
    ["an editor's settings", { writable: ['.vscode/tasks.json'] }, 'host-tool-path: ".vscode/tasks.json"'],
    ['nested settings', { writable: ['a/.idea/x.xml'] }, 'host-tool-path: "a/.idea/x.xml"'],
    ['a server list for agents', { writable: ['.mcp.json'] }, 'host-tool-path: ".mcp.json"'],
    [
      'a development container',
      { writable: ['.devcontainer/devcontainer.json'] },
      'host-tool-path: ".devcontainer/devcontainer.json"',
    ],
    [
      'two checks with one id',
      {
        acceptance: [
          { id: 'a', argv: ['x'] },
          { id: 'a', argv: ['y'] },
        ],
      },
      'duplicate-id: "a"',
    ],
    [
      'two checks with one command',
      {
        acceptance: [
          { id: 'a', argv: ['x'] },
          { id: 'b', argv: ['x'] },
        ],
      },
      'duplicate-argv: ["x"]',
    ],
    [
      'no check that fails',
      { acceptance: [{ id: 'a', argv: ['x'], baseline: 'pass' }] },
      'no-failing-check: [{"id":"a","argv":["x"],"baseline":"pass"}]',
    ],
    [
      'a shell line as program',
      { acceptance: [{ id: 'a', argv: ['python3 -m unittest'] }] },
      'bad-argument: "python3 -m unittest"',
    ],
    ['a program that looks like an option', { acceptance: [{ id: 'a', argv: ['-c', 'x'] }] }, 'bad-argument: "-c"'],
    [
      'a hidden file in the snapshot',
      {
        snapshot: { include: ['src/**', 'acceptance/hidden.py'] },
        supplemental: [{ path: 'acceptance/hidden.py', argv: ['x'] }],
      },
      'supplemental-exposed: "acceptance/hidden.py"',
    ],
    [
      'a hidden file as writable',
      { writable: ['acceptance/hidden.py'], supplemental: [{ path: 'acceptance/hidden.py', argv: ['x'] }] },
      'supplemental-exposed: "acceptance/hidden.py"',
    ],
    [
      'a hidden file in an acceptance command',
      {
        acceptance: [{ id: 'a', argv: ['python3', 'acceptance/hidden.py'] }],
        supplemental: [{ path: 'acceptance/hidden.py', argv: ['x'] }],
      },
      'supplemental-exposed: "acceptance/hidden.py"',
    ],
    ['scratch over files', { scratch: ['src'] }, 'scratch-overlap: "src"'],
    [
      'a new file that would be another one elsewhere',
      { writable: ['src/usage.py', 'src/Usage.py'] },
      'collision: "src/Usage.py"',
    ],
    ['a new file below a file', { writable: ['src/usage.py', 'README.md/x'] }, 'parent-file: "README.md/x"'],
  ])('refuses %s', async (_, draft, expected) => {
    await start();
    expect(await errors(draft)).toContain(expected);
  });

  it('suggests the path that was meant', async () => {
    await start();
    const { diagnostics } = await checkContract(await write({ readable: ['src/usgae.py'] }), scope);
    expect(diagnostics[0]?.message).toContain('Did you mean src/usage.py?');
  });

  it('refuses by name what is ignored, a link, behind a link, a pipe, or named like a secret', async () => {
    await start({ '.gitignore': 'ignored.txt\n' });
    await repo!.write('ignored.txt', 'x');
    await repo!.write('.env', 'TOKEN=1');
    await repo!.write('id_rsa', 'x');
    await repo!.write('outside/deep/a.txt', 'x');
    await symlink('src/usage.py', path.join(repo!.root, 'linked.py'));
    await symlink('outside', path.join(repo!.root, 'way'));
    execFileSync('mkfifo', [path.join(repo!.root, 'pipe')]);
    const named = ['ignored.txt', '.env', 'id_rsa', 'linked.py', 'way/deep/a.txt', 'pipe'];
    expect((await errors({ snapshot: { include: ['src/**', 'tests/**', ...named] } })).toSorted()).toEqual(
      [
        'ignored: "ignored.txt"',
        'link: "linked.py"',
        'not-regular: "pipe"',
        'parent-link: "way/deep/a.txt"',
        'secret: ".env"',
        'secret: "id_rsa"',
      ].toSorted(),
    );
  });

  it('leaves such files out of a snapshot that does not name them, and says so', async () => {
    await start({ 'certs/server.pem': 'x', '.env.local': 'x', '.env.example': 'TOKEN=' });
    await symlink('src/usage.py', path.join(repo!.root, 'linked.py'));
    await repo!.git('add', '-A');
    const { diagnostics } = await checkContract(await write(), scope);
    expect(diagnostics).toMatchObject([{ severity: 'warning', code: 'left-out' }]);
    for (const name of ['certs/server.pem (secret)', '.env.local (secret)', 'linked.py (link)']) {
      expect(diagnostics[0]?.message).toContain(name);
    }
    const { contract } = await freeze();
    expect(contract.files.map((f) => f.path)).toEqual(expect.arrayContaining(['.env.example']));
    expect(contract.files.map((f) => f.path)).not.toContain('certs/server.pem');
    expect(contract.files.map((f) => f.path)).not.toContain('linked.py');
  });

  it('refuses a private key whatever its name', async () => {
    await start({ 'src/data.txt': '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n' });
    await expect(freeze()).rejects.toMatchObject({
      code: 'InvalidContract',
      message: expect.stringContaining('src/data.txt holds a private key'),
    });
  });

  it('refuses more than fits into the sandbox', async () => {
    await start({ 'big.bin': Buffer.alloc(60 * 1024 * 1024, 1) });
    expect(await errors({})).toEqual(['too-large: {']);
  });

  it('needs a git repository', async () => {
    await start();
    const file = await write();
    await rm(path.join(repo!.root, '.git'), { recursive: true });
    const { root, diagnostics } = await checkContract(file, scope);
    expect(root).toBeNull();
    expect(diagnostics.map((d) => d.code)).toEqual(['not-a-repository']);
    await expect(freezeContract(file, scope)).rejects.toMatchObject({ code: 'NotAGitRepository' });
  });

  it('says that a contract file cannot be read', async () => {
    await start();
    await expect(freezeContract(path.join(repo!.root, 'no.contract.jsonc'), scope)).rejects.toMatchObject({
      code: 'NotFound',
    });
    execFileSync('mkfifo', [path.join(repo!.root, 'pipe.contract.jsonc')]);
    await expect(freezeContract(path.join(repo!.root, 'pipe.contract.jsonc'), scope)).rejects.toMatchObject({
      code: 'NotFound',
    });
  });

  it('says that a contract file is not UTF-8', async () => {
    await start();
    const file = await repo!.write('wide.contract.jsonc', Buffer.from(`\uFEFF${text({})}`, 'utf16le'));
    await expect(freezeContract(file, scope)).rejects.toMatchObject({
      code: 'InvalidContract',
      next: 'Save it with the encoding UTF-8.',
    });
  });

  it('lets nothing be written into a repository inside this one', async () => {
    await start();
    const commit = (await repo!.git('rev-parse', 'HEAD')).trim();
    await repo!.git('update-index', '--add', '--cacheinfo', `160000,${commit},sub`);
    const file = await write({ writable: ['sub/new.py'] });
    const { diagnostics } = await checkContract(file, scope);
    expect(diagnostics.map((d) => d.message)).toContain('sub/new.py lies in sub, which is another repository.');
  });

  it('says of a tracked file that is not in the working tree where it may be', async () => {
    await start();
    await rm(path.join(repo!.root, 'src/usage.py'));
    const file = await write({ snapshot: { include: ['src/usage.py'] }, writable: ['src/new.py'] });
    const { diagnostics } = await checkContract(file, scope);
    expect(diagnostics.map((d) => d.code)).toContain('absent');
  });

  it('checks an editor’s text instead of the file, and writes nothing', async () => {
    await start();
    const file = await write();
    const before = await repo!.git('status', '--porcelain');
    const { diagnostics } = await checkContract(file, scope, text({ writable: ['../x'] }));
    expect(diagnostics.map((d) => d.code)).toEqual(['unsafe-path']);
    expect(await repo!.git('status', '--porcelain')).toBe(before);
  });

  it('counts in a text with a byte-order mark as editors do', async () => {
    await start();
    const file = await repo!.write('bom.contract.jsonc', `\uFEFF${text({ writable: ['../x'] })}`);
    const { diagnostics } = await checkContract(file, scope);
    expect(
      text({ writable: ['../x'] })
        .slice(diagnostics[0]!.offset)
        .startsWith('"../x"'),
    ).toBe(true);
  });

  it('runs nothing of the tree: fsmonitor, hooks, filters, textconv, lazy fetch', async () => {
    await start({ '.gitattributes': '* filter=evil diff=evil\n' });
    const marker = path.join(repo!.root, 'ran');
    const trap = await repo!.write('.git/trap.sh', `#!/bin/sh\necho "$0 $@" >> '${marker}'\ncat\n`, 0o755);
    // A shell of git's reads most of these.
    const command = `"${trap}"`;
    for (const [key, value] of [
      ['core.fsmonitor', command],
      ['core.hooksPath', path.dirname(trap)],
      ['core.sshCommand', command],
      ['core.pager', command],
      ['core.editor', command],
      ['core.askPass', trap],
      ['credential.helper', trap],
      ['filter.evil.clean', command],
      ['filter.evil.smudge', command],
      ['filter.evil.process', command],
      ['diff.evil.textconv', command],
      ['diff.external', command],
      ['alias.ls-files', `!${command}`],
      ['extensions.partialClone', 'origin'],
      ['remote.origin.url', `ext::${trap}`],
      ['remote.origin.promisor', 'true'],
    ] as const) {
      await repo!.git('config', key, value);
    }
    for (const hook of ['post-index-change', 'pre-commit', 'post-checkout', 'fsmonitor-watchman']) {
      await repo!.write(`.git/hooks/${hook}`, `#!/bin/sh\necho ${hook} >> '${marker}'\n`, 0o755);
    }
    const file = await write();
    // A changed file makes git want to look at its content.
    await writeFile(path.join(repo!.root, 'src/usage.py'), 'x = 3\n');
    await freezeContract(file, scope);
    await expect(import('node:fs/promises').then((fs) => fs.readFile(marker, 'utf8'))).rejects.toMatchObject({
      code: 'ENOENT',
    });
    // Positive control: the same repository does run it when git is used in the ordinary way.
    spawnSync('git', ['status'], { cwd: repo!.root, stdio: 'ignore' });
    await expect(import('node:fs/promises').then((fs) => fs.readFile(marker, 'utf8'))).resolves.toContain('trap.sh');
  });

  it('does not follow a repository that names another folder as its tree', async () => {
    await start();
    const other = await gitRepository({ 'secret.txt': 'x' });
    try {
      await repo!.git('config', 'core.worktree', other.root);
      await expect(freezeContract(await write(), scope)).rejects.toMatchObject({ code: 'NotAGitRepository' });
    } finally {
      await other.dispose();
    }
  });

  it('ignores what the environment tells git', async () => {
    await start();
    const file = await write();
    const other = await gitRepository({ 'secret.txt': 'x' });
    process.env['GIT_DIR'] = path.join(other.root, '.git');
    try {
      expect((await freezeContract(file, scope)).contract.files.map((f) => f.path)).toContain('src/usage.py');
    } finally {
      delete process.env['GIT_DIR'];
      await other.dispose();
    }
  });

  it('reads a hard-linked file and a file without permissions alike when it may', async () => {
    await start();
    await mkdir(path.join(repo!.root, 'more'));
    await link(path.join(repo!.root, 'src/other.py'), path.join(repo!.root, 'more/same.py'));
    await repo!.git('add', '-A');
    expect((await freeze()).contract.files.map((f) => f.path)).toContain('more/same.py');
  });
});
