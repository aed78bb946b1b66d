import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { tryAgain, usualPausesMs } from './again.ts';
import { run, runKept } from './run.ts';
import { SetupError, type Question, type Ui } from './ui.ts';

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

/** Lets sudo ask for its password now, where it would: later, steps run side by side. Throws SetupError as `asRoot`. */
export async function rootBeforehand(what: string): Promise<void> {
  const [program, quiet] = await asRoot(what);
  if (program === undefined || quiet !== undefined) return;
  const asking = spawn(program, ['-v'], { stdio: 'inherit' });
  const [code] = (await once(asking, 'close')) as [number | null];
  if (code !== 0) throw new SetupError(`${what} needs root, and sudo did not give it`, 'Run the same command as root.');
}

/** Debian packages that are wanted together, and what for. */
export interface WantedPackages {
  readonly names: readonly string[];
  readonly why: string;
}

/** The names of those packages that dpkg does not list as installed. */
async function missingOf({ names }: WantedPackages): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const name of names) {
    const { stdout } = await run('dpkg-query', ['-W', '-f', '${Status}', name]);
    if (!stdout.includes('install ok installed')) missing.push(name);
  }
  return missing;
}

const questionOf = (missing: readonly string[], why: string): Question => ({
  about: why,
  text: `Install ${missing.join(' ')} with apt-get (${why})`,
});

/** What has to be asked before these packages are installed; nothing where they are, or where apt-get can't do it. */
export async function packagesQuestions(wanted: WantedPackages): Promise<readonly Question[]> {
  if (!(await isDebian())) return [];
  const missing = await missingOf(wanted);
  return missing.length === 0 ? [] : [questionOf(missing, wanted.why)];
}

/** apt-get works for one at a time; set-up's steps run side by side. */
let aptTurn: Promise<unknown> = Promise.resolve();
/** Whether the lists of packages were fetched by this process: several steps of one set-up need them. */
let listsAreNew = false;
/** Seconds that another program (an update by the system itself) may hold apt's lock: it says so itself afterwards. */
const foreignLockS = 300;
/** Of each file that apt-get fetches. */
const retries = 3;

/**
 * Installs Debian packages that are missing, after asking. Throws SetupError when declined or when apt-get failed, after
 * each of these pauses once more.
 */
export async function ensureDebianPackages(
  wanted: WantedPackages,
  ui: Ui,
  pausesMs: readonly number[] = usualPausesMs,
): Promise<void> {
  const missing = await missingOf(wanted);
  if (missing.length === 0) return;
  const names = missing.join(' ');
  if (!(await ui.confirm(questionOf(missing, wanted.why)))) {
    throw new SetupError(
      `${names} not installed: declined`,
      `Install it yourself, or run the same command again and agree (${wanted.why}).`,
    );
  }
  const turn = aptTurn.then(() => tryAgain(ui, () => install(missing, ui), pausesMs));
  aptTurn = turn.catch(() => undefined);
  await turn;
}

async function install(packages: readonly string[], ui: Ui): Promise<void> {
  const root = await asRoot('apt-get install');
  const apt = async (...args: readonly string[]): Promise<void> => {
    const settings = ['Dpkg::Use-Pty=0', `DPkg::Lock::Timeout=${foreignLockS}`, `Acquire::Retries=${retries}`];
    const options = ['-q', ...settings.flatMap((setting) => ['-o', setting])];
    const words = [...root, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...options, ...args];
    const code = await runKept(words[0] ?? 'env', words.slice(1));
    if (code !== 0) {
      // Lists that are old, or were fetched in part, name what the mirrors do not have.
      listsAreNew = false;
      throw new SetupError(
        `apt-get ${args[0] ?? ''} ended with exit code ${code}`,
        'Check that apt-get reaches its mirrors, then run the same command again.',
      );
    }
  };
  const started = performance.now();
  ui.log(`installing ${packages.join(' ')} with apt-get`);
  if (!listsAreNew) await apt('update');
  listsAreNew = true;
  await apt('install', '-y', '--no-install-recommends', ...packages);
  ui.log(`installed ${packages.join(' ')} (${((performance.now() - started) / 1000).toFixed(0)} s)`);
}
