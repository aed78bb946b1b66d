// Installs the VS Code workbench that the e2e tests run in. `npm run setup` does not need it; `npm test` does.
import { spawn } from 'node:child_process';
import { access, lstat, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ensureDebianPackages, isDebian } from './lib/debian.ts';
import { root } from './lib/root.ts';
import { SetupError } from './lib/ui.ts';

/** Where the workbench's own package.json, lock and node_modules lie. */
export const workbenchFolder = path.join(root, 'test', 'e2e', 'workbench');
/** VS Code's server build inside it. */
export const serverFolder = path.join(workbenchFolder, 'node_modules', 'code-server', 'lib', 'vscode');

const chromiumCandidates = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

export interface EnsureWorkbench {
  /** One line for a person about what is being done. */
  readonly log: (line: string) => void;
  /** Asks before the system is changed (only for `apt-get`); answers true without asking under CI or `--yes`. */
  readonly confirm: (question: string) => Promise<boolean>;
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

function run(program: string, args: readonly string[], cwd: string, log: (line: string) => void): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let tail = '';
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  const keep = (chunk: Buffer): void => {
    tail = (tail + chunk.toString('utf8')).slice(-4000);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  child.on('error', reject);
  child.on('close', (code, signal) => {
    if (code === 0) resolve();
    else {
      log(tail.trimEnd());
      reject(new Error(`${program} ${args[0] ?? ''} ended with ${signal ?? `exit code ${String(code)}`}`));
    }
  });
  return promise;
}

/** The browser that Playwright drives: `ESCROW_CHROMIUM`, else the first usual place that exists, else null. */
export async function findChromium(): Promise<string | null> {
  const named = process.env['ESCROW_CHROMIUM'];
  for (const candidate of named === undefined ? chromiumCandidates : [named]) {
    if (await exists(candidate)) return candidate;
  }
  return null;
}

/** Makes `link` point at `target`, whatever was there. */
async function link(target: string, where: string): Promise<void> {
  const current = await lstat(where).catch(() => undefined);
  if (current?.isSymbolicLink() === true && (await readlink(where)) === target) return;
  await rm(where, { recursive: true, force: true });
  await symlink(target, where, 'dir');
}

/** VS Code's server build, as its lock file names it. Changes nothing outside the checkout. Throws an Error that says what failed. */
export async function ensureServerBuild(log: (line: string) => void): Promise<void> {
  const lock = await readFile(path.join(workbenchFolder, 'package-lock.json'), 'utf8');
  // Written last, after a whole install: a half-done one is done again.
  const marker = path.join(workbenchFolder, 'node_modules', '.escrow-installed');
  if ((await readFile(marker, 'utf8').catch(() => '')) === lock) {
    log('workbench: packages are installed');
    return;
  }
  log('workbench: installing VS Code’s server build with npm ci (about 400 MB, 20 seconds)');
  await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], workbenchFolder, log);
  // The server's own modules were installed at the top level, where it does not look.
  await link('../../..', path.join(serverFolder, 'node_modules'));
  await writeFile(marker, lock);
}

/** The browser; from Debian's packages after a yes where there is none. Throws SetupError. */
export async function ensureBrowser({ log, confirm }: EnsureWorkbench): Promise<void> {
  const found = await findChromium();
  if (found !== null) {
    log(`workbench: browser is ${found}`);
    return;
  }
  if (!(await isDebian())) {
    throw new SetupError('no Chromium found', 'Install Chromium or Google Chrome, or name one in ESCROW_CHROMIUM.');
  }
  await ensureDebianPackages(['chromium', 'fonts-dejavu-core'], 'the browser of the e2e tests', { log, confirm });
}

if (import.meta.main) {
  const agreed = process.env['CI'] !== undefined || process.argv.includes('--yes');
  const ui: EnsureWorkbench = {
    log: (line) => process.stderr.write(`${line}\n`),
    confirm: (question) => {
      process.stderr.write(`${question} ${agreed ? 'yes' : 'no (pass --yes to agree)'}\n`);
      return Promise.resolve(agreed);
    },
  };
  await ensureServerBuild(ui.log);
  await ensureBrowser(ui);
}
