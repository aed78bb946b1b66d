import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { bareNpmLock, barePackageManifest, manifestFault, readNpmLock } from './npm-lock.ts';
import { findNpm, runClient, type PackageClient } from './package-client.ts';
import { processorNames, type ImagePlatform } from './platform.ts';

/** A file of the build context, by its path in the repository. */
export interface ContextFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

/** Members of npm's configuration that say where packages come from and how it is reached. No credentials. */
const carried = ['registry', 'cafile', 'proxy', 'https-proxy', 'noproxy', 'strict-ssl'] as const;

/** What `npm ci` is called with; `…` stands for this machine's own folders and addresses. Shown before it is run. */
export const npmArguments = [
  'ci',
  '--ignore-scripts',
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--loglevel=error',
  '--os=linux',
] as const;

/** Where npm of this user and machine would take packages from. Throws EscrowError. */
export async function npmSources(
  client: PackageClient,
  scratch: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  // In an empty folder: a repository's .npmrc must not count.
  const { output } = await runClient(client, ['config', 'list', '--json', '--no-update-notifier'], {
    cwd: scratch,
    env: userEnvironment(),
    signal,
  });
  let config: unknown;
  try {
    config = JSON.parse(output.slice(output.indexOf('{')));
  } catch {
    throw new EscrowError('PreparationFailed', 'npm does not tell its configuration.', 'Run: npm config list --json');
  }
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(config as Record<string, unknown>)) {
    const wanted = carried.some((one) => one === name) || /^@[\w.~-]+:registry$/.test(name);
    if (wanted && (typeof value === 'string' || typeof value === 'boolean') && value !== '') {
      found.set(name, String(value));
    }
  }
  return found;
}

/** Only for asking a client what the user's configuration says. */
export function userEnvironment(): Record<string, string> {
  const names = ['HOME', 'USERPROFILE', 'APPDATA', 'LOCALAPPDATA', 'XDG_CONFIG_HOME'];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

export interface NpmInstall {
  /** An empty folder of our own; afterwards `tree` in it holds the packages, laid out as in the repository. */
  readonly folder: string;
  /** Path of the lock file in the repository. */
  readonly lock: ContextFile;
  readonly manifests: readonly ContextFile[];
  readonly platform: ImagePlatform;
  readonly signal: AbortSignal;
}

/**
 * `npm ci` on this machine: the bare manifests and the bare lock are all it sees, home, cache and configuration are
 * fresh and empty, and no script runs. Returns the folder of the packages. Throws EscrowError.
 */
export async function installNpm(input: NpmInstall): Promise<string> {
  const { folder, lock, platform, signal } = input;
  const client = await findNpm();
  const tree = path.join(folder, 'tree');
  const home = path.join(folder, 'home');
  await mkdir(home, { recursive: true });
  const sources = await npmSources(client, home, signal);
  const text = Buffer.from(lock.bytes).toString('utf8');
  const read = readNpmLock(text);
  if (!read.ok) throw unusable(lock.path, `can't be used: ${read.reason}`);
  await writeContext(tree, lock, Buffer.from(bareNpmLock(text)));
  for (const manifest of input.manifests) {
    const wanted = Buffer.from(manifest.bytes).toString('utf8');
    const bare = barePackageManifest(wanted);
    const fault = manifestFault(wanted, path.posix.relative(path.posix.dirname(lock.path), manifest.path));
    if (bare === null || fault !== null) throw unusable(manifest.path, fault ?? 'is no package.json');
    await writeContext(tree, manifest, Buffer.from(bare));
  }
  // In a file of our own rather than as arguments, which everybody on the machine can read.
  const config = path.join(home, 'user-npmrc');
  const lines = [...sources].map(([name, value]) => `${name}=${value.replace(/[\r\n]/g, ' ')}\n`);
  await writeFile(config, lines.join(''), { mode: 0o600 });
  const nothing = path.join(home, 'global-npmrc');
  await writeFile(nothing, '');
  const cwd = path.join(tree, path.dirname(lock.path));
  await runClient(
    client,
    [
      ...npmArguments,
      `--cpu=${processorNames[platform.architecture].npm}`,
      ...(platform.libc === null ? [] : [`--libc=${platform.libc.kind}`]),
      `--cache=${path.join(home, 'cache')}`,
      `--userconfig=${config}`,
      `--globalconfig=${nothing}`,
    ],
    { cwd, env: { HOME: home, USERPROFILE: home, TMPDIR: home, TEMP: home, TMP: home }, signal },
  );
  return tree;
}

function unusable(file: string, why: string): EscrowError {
  return new EscrowError('DependenciesUnusable', `${file} ${why}.`, 'Mend it and freeze again.');
}

async function writeContext(tree: string, file: ContextFile, bytes: Uint8Array): Promise<void> {
  const target = path.join(tree, file.path);
  await mkdir(path.dirname(target), { recursive: true });
  await writeFile(target, bytes);
}
