// Installs the VS Code workbench that the e2e tests run in. `npm run setup` does not need it; `npm test` does.
import { access, lstat, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { tryAgain } from './lib/again.ts';
import { ensureDebianPackages, isDebian, packagesQuestions, type WantedPackages } from './lib/debian.ts';
import { root } from './lib/root.ts';
import { runKept } from './lib/run.ts';
import { createUi, SetupError, type Question, type Ui } from './lib/ui.ts';

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

const browserPackages: WantedPackages = {
  names: ['chromium', 'fonts-dejavu-core'],
  why: 'the browser of the e2e tests',
};

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
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

/** VS Code's server build, as its lock file names it. Changes nothing outside the checkout. Throws SetupError. */
export async function ensureServerBuild(ui: Pick<Ui, 'log'>): Promise<void> {
  const { log } = ui;
  const lock = await readFile(path.join(workbenchFolder, 'package-lock.json'), 'utf8');
  // Written last, after a whole install: a half-done one is done again.
  const marker = path.join(workbenchFolder, 'node_modules', '.escrow-installed');
  if ((await readFile(marker, 'utf8').catch(() => '')) === lock) {
    log('workbench: packages are installed');
    return;
  }
  log('workbench: installing VS Code’s server build with npm ci (about 400 MB)');
  const started = performance.now();
  await tryAgain(ui, async () => {
    const code = await runKept('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: workbenchFolder });
    if (code !== 0) {
      throw new SetupError(
        `npm ci for VS Code’s server build ended with exit code ${code}`,
        'Check that npm reaches its registry, then run the same command again.',
      );
    }
  });
  // The server's own modules were installed at the top level, where it does not look.
  await link('../../..', path.join(serverFolder, 'node_modules'));
  await writeFile(marker, lock);
  log(`workbench: VS Code’s server build is installed (${((performance.now() - started) / 1000).toFixed(0)} s)`);
}

/** What has to be asked before there is a browser; nothing where there is one, or where we can't bring one. */
export async function browserQuestions(): Promise<readonly Question[]> {
  return (await findChromium()) === null ? packagesQuestions(browserPackages) : [];
}

/** The browser; from Debian's packages after a yes where there is none. Throws SetupError. */
export async function ensureBrowser(ui: Ui): Promise<void> {
  const found = await findChromium();
  if (found !== null) {
    ui.log(`workbench: browser is ${found}`);
    return;
  }
  if (!(await isDebian())) {
    throw new SetupError('no Chromium found', 'Install Chromium or Google Chrome, or name one in ESCROW_CHROMIUM.');
  }
  await ensureDebianPackages(browserPackages, ui);
}

if (import.meta.main) {
  const ui = createUi(process.argv.includes('--yes'));
  await ensureServerBuild(ui);
  await ensureBrowser(ui);
}
