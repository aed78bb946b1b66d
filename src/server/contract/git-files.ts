import { execFile } from 'node:child_process';
import { realpath } from 'node:fs/promises';
import { devNull, homedir } from 'node:os';
import { dirname, sep } from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';

/** What the index says a path is; the bytes are read from the working tree. */
export interface TrackedFile {
  readonly path: string;
  readonly kind: 'file' | 'executable' | 'link' | 'submodule';
}

/** Bounds for one run of git: a listing of some hundred thousand paths fits. */
const gitTimeoutMs = 20_000;
const gitMaxOutput = 64 * 1024 * 1024;

/**
 * Nothing of the tree may run (adversarial 47): no fsmonitor, no hooks, no pager, no helpers, no lazy fetch of a
 * partial clone. Only plumbing that neither checks files out nor diffs is called, so filters and textconv never start.
 */
const safeConfig = [
  '--no-pager',
  '--no-optional-locks',
  ...[
    'core.fsmonitor=false',
    `core.hooksPath=${devNull}`,
    'core.untrackedCache=false',
    'core.sshCommand=false',
    'core.askPass=',
    'credential.helper=',
    'protocol.allow=never',
    'gc.auto=0',
    'maintenance.auto=false',
    'core.quotePath=false',
  ].flatMap((setting) => ['-c', setting]),
];

/** A fixed list: nothing of the Kernel's own environment (GIT_DIR, GIT_EXTERNAL_DIFF, …) reaches git. */
function safeEnvironment(): NodeJS.ProcessEnv {
  const kept: NodeJS.ProcessEnv = {};
  for (const name of ['PATH', 'HOME', 'XDG_CONFIG_HOME', 'USERPROFILE', 'SystemRoot', 'SYSTEMROOT', 'TEMP', 'TMP']) {
    const value = process.env[name];
    if (value !== undefined) kept[name] = value;
  }
  return {
    ...kept,
    LC_ALL: 'C',
    GIT_OPTIONAL_LOCKS: '0',
    GIT_TERMINAL_PROMPT: '0',
    GIT_NO_LAZY_FETCH: '1',
    GIT_ALLOW_PROTOCOL: '',
    GIT_PAGER: '',
    GIT_EDITOR: 'false',
    GIT_SSH_COMMAND: 'false',
    GIT_ATTR_NOSYSTEM: '1',
  };
}

interface GitRun {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

function git(root: string, args: readonly string[], stdin?: string): Promise<GitRun> {
  return new Promise<GitRun>((resolve, reject) => {
    const child = execFile(
      'git',
      [...safeConfig, '-C', root, ...args],
      // Not the tree: on Windows a program is looked up in the current folder first.
      {
        cwd: homedir(),
        env: safeEnvironment(),
        encoding: 'buffer',
        timeout: gitTimeoutMs,
        killSignal: 'SIGKILL',
        maxBuffer: gitMaxOutput,
        windowsHide: true,
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : null;
        if (error !== null && code === null) reject(error);
        else resolve({ code, stdout, stderr: stderr.toString('utf8').slice(0, 2000) });
      },
    );
    // A git that ends before it has read everything must not become an uncaught error: its exit code tells.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(stdin ?? '');
  });
}

/** As `git`, with its time-out, a missing program and too much output as an error that a person can act on. */
async function gitIn(root: string, args: readonly string[], stdin?: string): Promise<GitRun> {
  try {
    return await git(root, args, stdin);
  } catch (error) {
    throw noRepository(
      root,
      `git ${args[0] ?? ''}: ${String(error)}`,
      'See whether `git status` works in that folder.',
    );
  }
}

function noRepository(path: string, detail: string, next: string): EscrowError {
  return new EscrowError('NotAGitRepository', `${path} is not inside a git working tree: ${detail}`, next, { path });
}

/**
 * Real path of the working tree that holds a file. Throws EscrowError NotAGitRepository, also when git is missing,
 * refuses the owner of the folder, or is configured to call another folder its working tree.
 */
export async function repositoryRoot(file: string): Promise<string> {
  const folder = await realpath(dirname(file)).catch(() => undefined);
  if (folder === undefined) throw noRepository(file, 'its folder does not exist', 'Open a file that exists.');
  let run: GitRun;
  try {
    run = await git(folder, ['rev-parse', '--show-toplevel']);
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw noRepository(
      file,
      missing ? 'git was not found' : String(error),
      missing ? 'Install git and make sure that it is on the PATH.' : 'See whether `git status` works in that folder.',
    );
  }
  if (run.code !== 0) {
    const dubious = run.stderr.includes('dubious ownership');
    throw noRepository(
      file,
      dubious ? 'git does not trust the owner of the folder' : 'git finds no repository there',
      dubious
        ? `Trust it with: git config --global --add safe.directory ${folder}`
        : 'Run `git init` in the folder of your project, add your files and commit them.',
    );
  }
  const root = await realpath(run.stdout.toString('utf8').replace(/\r?\n$/, '')).catch(() => undefined);
  if (root === undefined || (folder !== root && !folder.startsWith(root.endsWith(sep) ? root : root + sep))) {
    throw noRepository(file, 'its repository names another folder as working tree', 'Remove core.worktree from it.');
  }
  return root;
}

/** Everything in the index, in its order, each path once. Throws EscrowError NotAGitRepository. */
export async function trackedFiles(root: string): Promise<readonly TrackedFile[]> {
  const run = await gitIn(root, ['ls-files', '-z', '--stage', '--full-name']);
  if (run.code !== 0) throw noRepository(root, run.stderr.trim(), 'See whether `git status` works in that folder.');
  const found = new Map<string, TrackedFile>();
  for (const record of run.stdout.toString('utf8').split('\0')) {
    const tab = record.indexOf('\t');
    if (tab < 0) continue;
    const path = record.slice(tab + 1);
    // An unmerged path has up to three stages; the working tree holds one file.
    if (!found.has(path)) found.set(path, { path, kind: kindOf(record.slice(0, 6)) });
  }
  return [...found.values()];
}

function kindOf(mode: string): TrackedFile['kind'] {
  if (mode === '120000') return 'link';
  if (mode === '160000') return 'submodule';
  return mode === '100755' ? 'executable' : 'file';
}

/** Those of the paths that git ignores. Tracked paths are never ignored. Throws EscrowError NotAGitRepository. */
export async function ignoredFiles(root: string, paths: readonly string[]): Promise<ReadonlySet<string>> {
  if (paths.length === 0) return new Set();
  // `./` in front: a path that starts with a colon would be read as pathspec magic.
  const run = await gitIn(root, ['check-ignore', '-z', '--stdin'], paths.map((path) => `./${path}\0`).join(''));
  // 1: none of them is ignored.
  if (run.code !== 0 && run.code !== 1) {
    throw noRepository(root, run.stderr.trim(), 'See whether `git status` works in that folder.');
  }
  const ignored = run.stdout.toString('utf8').split('\0');
  return new Set(ignored.filter(Boolean).map((path) => path.replace(/^\.\//, '')));
}
