import { access, chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { aptMirror } from '../base-image.ts';
import { tryAgain } from './again.ts';
import { ensureDebianPackages, packagesQuestions, type WantedPackages } from './debian.ts';
import { run, runKept } from './run.ts';
import { SetupError, type Question, type Ui } from './ui.ts';

/** Debian's testing and unstable have it; it needs their libraries, so it gets a root of its own. */
const suite = 'sid';
const packages = 'llama.cpp-tools';
/** Kept between runs, like Podman's images: making it takes a minute and 300 MB. */
const folder = path.join(tmpdir(), 'escrow-test-llama');

const program = path.join(folder, 'llama-server');
const tools: WantedPackages = { names: ['debootstrap'], why: 'makes a root for llama.cpp’s server' };
const question: Question = {
  about: 'llama.cpp',
  text: 'Make a root with llama.cpp’s server from Debian packages (about 300 MB)',
};

async function isThere(): Promise<boolean> {
  if ((process.env['ESCROW_LLAMA_SERVER'] ?? '') !== '') return true;
  const installed = await run('llama-server', ['--version']).catch(() => undefined);
  return installed?.code === 0;
}

const isMade = (): Promise<boolean> =>
  access(program).then(
    () => true,
    () => false,
  );

/** Only Debian's own packages have it, and its root is entered at each start, not only made. */
async function canBeMade(): Promise<boolean> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  return /^ID=debian$/m.test(release) && process.getuid?.() === 0;
}

/** What has to be asked before there is a server; nothing where there is one, or where we can't bring one. */
export async function llamaQuestions(): Promise<readonly Question[]> {
  if ((await isThere()) || (await isMade()) || !(await canBeMade())) return [];
  return [...(await packagesQuestions(tools)), question];
}

/**
 * llama.cpp's own server for the tests against real engines, found by them through `ESCROW_LLAMA_SERVER`. Where it can't
 * be had that is said, and those tests are skipped. Never throws but for defects.
 */
export async function ensureLlamaServer(ui: Ui): Promise<void> {
  if (await isThere()) return;
  try {
    process.env['ESCROW_LLAMA_SERVER'] = await ownServer(ui);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    ui.log(`without llama.cpp's server: ${error.message}; its tests are skipped`);
  }
}

/** The program that runs the server in its own root. Throws SetupError. */
async function ownServer(ui: Ui): Promise<string> {
  if (await isMade()) return program;
  if (!(await canBeMade()))
    throw new SetupError('only root on Debian can make it', 'Put llama-server on the PATH, or run as root.');
  await ensureDebianPackages(tools, ui);
  if (!(await ui.confirm(question))) throw new SetupError('declined', 'Run the same command again and agree.');
  ui.log(`making a root with llama.cpp's server from ${suite} (about a minute)`);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const made = path.join(folder, 'root');
  const part = path.join(folder, 'part');
  const mirror = await aptMirror();
  await tryAgain(ui, async () => {
    await rm(part, { recursive: true, force: true });
    const code = await runKept('debootstrap', [
      '--variant=minbase',
      `--include=${packages}`,
      suite,
      part,
      ...(mirror === null ? [] : [mirror]),
    ]);
    if (code !== 0)
      throw new SetupError(`debootstrap ended with exit code ${code}`, 'Check that apt-get reaches its mirrors.');
  });
  await rm(made, { recursive: true, force: true });
  await rename(part, made);
  // Mounts of its own: the tests' folders are seen inside, and nothing stays mounted when it ends.
  const script = `exec unshare -m sh -c 'mount --bind /tmp "$0/tmp" && mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/llama-server "$@"' '${made}' "$@"`;
  await writeFile(`${program}.part`, `#!/bin/sh\n${script}\n`);
  await chmod(`${program}.part`, 0o755);
  await rename(`${program}.part`, program);
  return program;
}
