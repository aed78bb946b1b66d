import { readFile } from 'node:fs/promises';
import { run, runShown } from './run.ts';
import { SetupError, type Ui } from './ui.ts';

/** True on Debian, Ubuntu and what is derived from them. */
export async function isDebian(): Promise<boolean> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release);
}

/**
 * The words that make a command run as root: none when we are, `sudo` when that can work. Throws SetupError.
 * `what` completes "… needs root".
 */
export async function asRoot(what: string): Promise<readonly string[]> {
  if (process.getuid?.() === 0) return [];
  const quiet = await run('sudo', ['-n', 'true']).catch(() => undefined);
  if (quiet?.code === 0) return ['sudo', '-n'];
  // sudo may ask for a password, but only where somebody can type one.
  if (quiet !== undefined && process.stdin.isTTY) return ['sudo'];
  throw new SetupError(
    `${what} needs root, and sudo is not available without a password`,
    'Run the same command as root, or in a terminal where sudo may ask.',
  );
}

/** The names of those packages that dpkg does not list as installed. */
export async function missingPackages(packages: readonly string[]): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const name of packages) {
    const { stdout } = await run('dpkg-query', ['-W', '-f', '${Status}', name]);
    if (!stdout.includes('install ok installed')) missing.push(name);
  }
  return missing;
}

/** Whether the lists of packages were fetched by this process: several steps of one set-up need them. */
let listsAreNew = false;

/** Installs Debian packages that are missing, after asking. Throws SetupError when declined or when apt-get failed. */
export async function ensureDebianPackages(packages: readonly string[], why: string, ui: Ui): Promise<void> {
  const missing = await missingPackages(packages);
  if (missing.length === 0) return;
  const names = missing.join(' ');
  if (!(await ui.confirm(`Install ${names} with apt-get (${why})?`))) {
    throw new SetupError(
      `${names} not installed: declined`,
      `Install it yourself, or run the same command again and agree (${why}).`,
    );
  }
  const root = await asRoot('apt-get install');
  const apt = async (...args: readonly string[]): Promise<void> => {
    const words = [...root, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-q', '-o', 'Dpkg::Use-Pty=0', ...args];
    const code = await runShown(words[0] ?? 'env', words.slice(1));
    if (code !== 0) {
      throw new SetupError(
        `apt-get ${args[0] ?? ''} ended with exit code ${code}`,
        'Check that apt-get reaches its mirrors, then run the same command again.',
      );
    }
  };
  ui.log(`installing ${names} with apt-get`);
  if (!listsAreNew) await apt('update');
  listsAreNew = true;
  await apt('install', '-y', '--no-install-recommends', ...missing);
}
