import { chmod, mkdir, open, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { dependencyPaths } from '../../protocol/executor.ts';
import { userEnvironment, type ContextFile } from './install-npm.ts';
import { findPip, runClient, type PackageClient } from './package-client.ts';
import { markerEnvironment, wheelPlatforms, type ImagePlatform } from './platform.ts';
import { barePythonLock, readPythonLock, requirementsFor } from './python-lock.ts';

/** Members of pip's configuration that say where packages come from and how it is reached. No credentials of others. */
const carried = ['index-url', 'extra-index-url', 'cert', 'proxy', 'trusted-host', 'timeout'] as const;

/** What `pip download` is called with before places and platform. Shown before it is run. */
export const pipArguments = [
  'download',
  '--disable-pip-version-check',
  '--no-input',
  '--no-deps',
  '--require-hashes',
  '--only-binary=:all:',
] as const;

export interface FetchedWheel {
  readonly file: string;
  readonly sha256: string;
  readonly bytes: number;
}

/** Where pip of this user and machine would take packages from. Throws EscrowError. */
export async function pipSources(
  client: PackageClient,
  scratch: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const [python = ''] = client.argv;
  // -I would hide the user's configuration from pip as well; nothing but their configuration is read here.
  const { output } = await runClient({ argv: [python, '-m', 'pip'] }, ['config', 'list'], {
    cwd: scratch,
    env: userEnvironment(),
    signal,
  });
  const found = new Map<string, string>();
  for (const line of output.split('\n')) {
    const [, section, name, value] = /^(global|download)\.([\w-]+)='(.*)'$/.exec(line.trim()) ?? [];
    if (name === undefined || value === undefined || !carried.some((one) => one === name)) continue;
    if (section === 'download' || !found.has(name)) found.set(name, value.replaceAll('\\n', ' ').trim());
  }
  return found;
}

export interface PythonInstall {
  /** An empty folder of our own; afterwards `tree` in it holds the environment. */
  readonly folder: string;
  readonly lock: ContextFile;
  readonly platform: ImagePlatform;
  readonly signal: AbortSignal;
}

/**
 * Wheels for the image's Python, fetched by pip on this machine, each with a hash of the lock, then laid out as an
 * environment. Neither step runs anything of a package: wheels are archives. Throws EscrowError.
 */
export async function installPython(
  input: PythonInstall,
): Promise<{ readonly tree: string; readonly wheels: readonly FetchedWheel[] }> {
  const { folder, lock, platform, signal } = input;
  const read = readPythonLock(Buffer.from(lock.bytes).toString('utf8'));
  if (!read.ok) throw unusable(`${lock.path}, ${read.reason}.`, 'Mend the lock file and freeze again.');
  const environment = markerEnvironment(platform);
  const { python } = platform;
  if (environment === null || python === null) {
    throw unusable('The base image has no Python 3.', 'Name a base image with Python in the contract.');
  }
  let wanted;
  try {
    wanted = requirementsFor(read.requirements, environment);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw unusable(`${lock.path}: ${error.message}.`, 'Compile the lock file without this marker and freeze again.');
  }
  const home = path.join(folder, 'home');
  const wheelsFolder = path.join(folder, 'wheels');
  const tree = path.join(folder, 'tree');
  const site = path.join(tree, 'venv', 'lib', `python3.${python.minor}`, 'site-packages');
  for (const made of [home, wheelsFolder, site, path.join(tree, 'venv', 'bin')]) await mkdir(made, { recursive: true });
  const client = await findPip(signal);
  const sources = await pipSources(client, home, signal);
  const requirements = path.join(folder, 'requirements.txt');
  await writeFile(requirements, barePythonLock(wanted));
  const target = [
    `--python-version=3.${python.minor}`,
    '--implementation=cp',
    `--abi=cp3${python.minor}`,
    '--abi=abi3',
    '--abi=none',
    ...wheelPlatforms(platform).map((tag) => `--platform=${tag}`),
    '--platform=any',
  ];
  // In a file of our own rather than as arguments, which everybody on the machine can read.
  const config = path.join(home, 'pip.conf');
  const lines = [...sources].map(([name, value]) => `${name} = ${value.replace(/[\r\n]/g, ' ')}\n`);
  await writeFile(config, `[global]\n${lines.join('')}`, { mode: 0o600 });
  const env = {
    HOME: home,
    USERPROFILE: home,
    TMPDIR: home,
    TEMP: home,
    TMP: home,
    // A wheel is the same whoever fetched it; the cache of the user is not touched.
    PIP_NO_CACHE_DIR: '1',
    PIP_CONFIG_FILE: config,
  };
  if (wanted.length > 0) {
    await runClient(
      client,
      [...pipArguments, '--no-cache-dir', '--quiet', ...target, '--dest', wheelsFolder, '-r', requirements],
      { cwd: folder, env, signal },
    );
    await runClient(
      client,
      [
        'install',
        '--disable-pip-version-check',
        '--no-input',
        '--no-index',
        '--no-deps',
        '--no-compile',
        // Asks the Python that pip runs under; the download has asked for the right one already.
        '--ignore-requires-python',
        '--no-warn-script-location',
        '--quiet',
        '--require-hashes',
        '--only-binary=:all:',
        ...target,
        '--find-links',
        wheelsFolder,
        '--target',
        site,
        '-r',
        requirements,
      ],
      { cwd: folder, env, signal },
    );
  }
  const wheels = await Promise.all(
    (await readdir(wheelsFolder)).toSorted().map((name) => measured(wheelsFolder, name)),
  );
  await layOut(tree, site, python);
  return { tree, wheels };
}

async function measured(folder: string, name: string): Promise<FetchedWheel> {
  const file = path.join(folder, name);
  const hash = createHash('sha256');
  const handle = await open(file);
  try {
    for await (const chunk of handle.createReadStream({ autoClose: false })) hash.update(chunk as Buffer);
  } finally {
    await handle.close();
  }
  return { file: name, sha256: hash.digest('hex'), bytes: (await stat(file)).size };
}

/** An environment around the installed packages: what `venv` would make, without running the image's Python. */
async function layOut(tree: string, site: string, python: NonNullable<ImagePlatform['python']>): Promise<void> {
  const venv = path.join(tree, 'venv');
  await writeFile(
    path.join(venv, 'pyvenv.cfg'),
    `home = ${path.posix.dirname(python.program)}\ninclude-system-site-packages = false\nversion = ${python.full}\n`,
  );
  const bin = path.join(venv, 'bin');
  // With --target, pip puts programs into a folder among the packages.
  const installed = path.join(site, 'bin');
  for (const name of await readdir(installed).catch(() => [])) {
    const from = path.join(installed, name);
    const to = path.join(bin, name);
    await rename(from, to);
    const bytes = await readFile(to);
    const mended = withInterpreter(bytes, `${dependencyPaths.venv}/bin/python3`);
    if (mended !== null) await writeFile(to, mended);
    await chmod(to, 0o755);
  }
  await rm(installed, { recursive: true, force: true });
  await symlink(python.program, path.join(bin, 'python3'));
  for (const name of ['python', `python3.${python.minor}`]) await symlink('python3', path.join(bin, name));
}

/** A script's bytes with the image's Python instead of this machine's; null for what starts with no Python. */
export function withInterpreter(script: Buffer, interpreter: string): Buffer | null {
  if (script[0] !== 0x23 || script[1] !== 0x21) return null;
  const firstEnd = script.indexOf(0x0a);
  if (firstEnd < 0) return null;
  const first = script.subarray(0, firstEnd).toString('latin1');
  const line = Buffer.from(`#!${interpreter}\n`);
  if (/python/i.test(first)) return Buffer.concat([line, script.subarray(firstEnd + 1)]);
  // What pip writes where the interpreter's path is long or has spaces: a shell that executes it.
  const head = script.subarray(0, 1024).toString('latin1');
  const trick = /^#!\/bin\/sh\n'''exec' .*python.*\n' '''\n/i.exec(head)?.[0];
  return trick === undefined ? null : Buffer.concat([line, script.subarray(trick.length)]);
}

function unusable(message: string, next: string): EscrowError {
  return new EscrowError('DependenciesUnusable', message, next);
}
