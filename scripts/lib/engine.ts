import { spawn } from 'node:child_process';
import { access, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { openSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ContainerEngine } from '../../src/server/sandbox/engine.ts';
import type { EngineAddress } from '../../src/server/sandbox/engine-address.ts';
import { EngineFault } from '../../src/server/sandbox/engine-fault.ts';
import { asRoot, ensureDebianPackages, isDebian, packagesQuestions, type WantedPackages } from './debian.ts';
import { engineChoiceHere } from './engine-here.ts';
import { root } from './root.ts';
import { run } from './run.ts';
import { SetupError, type Question, type Ui } from './ui.ts';

/** Where a dockerd that we started is remembered, so that `npm run teardown` ends that one and no other. */
const memoryFile = path.join(root, '.cache', 'dockerd.json');
const logFile = path.join(root, '.cache', 'dockerd.log');

/** How long an engine may take until it answers: three seconds, and more where the machine is busy. */
const startMs = 180_000;

interface Remembered {
  readonly pid: number;
  readonly start: string;
}

/** Start time of a process in clock ticks since boot: with the pid, its identity. Null when there is no such process. */
async function startOf(pid: number): Promise<string | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  // Field 22; the name in parentheses may hold spaces.
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
}

const exists = (file: string): Promise<boolean> =>
  access(file).then(
    () => true,
    () => false,
  );

/** Removes a pid file whose process is gone: a killed engine leaves it, and the next one would refuse to start. */
async function removeStalePidFile(file: string, program: string, sudo: readonly string[], ui: Ui): Promise<void> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  const name = await readFile(`/proc/${text.trim()}/comm`, 'utf8').catch(() => '');
  if (name.trim() === program) return;
  ui.log(`removing ${file}: process ${text.trim()} is not ${program} any more`);
  const words = [...sudo, 'rm', '-f', file];
  await run(words[0] ?? 'rm', words.slice(1));
}

/** Removes a socket that nobody listens on. */
async function removeDeadSocket(file: string, sudo: readonly string[], ui: Ui): Promise<void> {
  if (!(await exists(file))) return;
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(file);
  socket.on('connect', () => resolve(false));
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'ECONNREFUSED'));
  const dead = await promise;
  socket.destroy();
  if (!dead) return;
  ui.log(`removing ${file}: nobody listens on it`);
  const words = [...sudo, 'rm', '-f', file];
  await run(words[0] ?? 'rm', words.slice(1));
}

/** What an engine answers, or why it does not. */
type Ping =
  | { readonly ok: true; readonly version: string }
  | { readonly ok: false; readonly refused: boolean; readonly message: string };

async function pingEngine(address: EngineAddress): Promise<Ping> {
  try {
    const { name, version } = await new ContainerEngine(address).version();
    return { ok: true, version: `${name} ${version}` };
  } catch (error) {
    if (!EngineFault.is(error)) throw error;
    return { ok: false, refused: error.kind === 'permission', message: error.message };
  }
}

/** Waits until the engine answers that is to be started. `failed` says early that it never will. */
async function untilAnswering(timeoutMs: number, failed: () => string | null): Promise<string> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    // Chosen anew each time: a socket that was not there changes the choice.
    const ping = await pingEngine(engineChoiceHere().address);
    if (ping.ok) return ping.version;
    const reason =
      failed() ?? (performance.now() > deadline ? `no answer within ${timeoutMs / 1000} s (${ping.message})` : null);
    if (reason !== null)
      throw new SetupError(`the container engine did not start: ${reason}`, `See its log: ${logFile}`);
    // dockerd announces nothing that can be waited for; its socket exists before it answers.
    await delay(100);
  }
}

/** Starts dockerd detached, without networks of its own: Escrow's containers have none. */
async function startDockerd(sudo: readonly string[], ui: Ui): Promise<void> {
  await removeStalePidFile('/var/run/docker.pid', 'dockerd', sudo, ui);
  await removeStalePidFile('/var/run/docker/containerd/containerd.pid', 'containerd', sudo, ui);
  await removeDeadSocket('/run/containerd/containerd.sock', sudo, ui);
  await mkdir(path.dirname(logFile), { recursive: true });
  const log = openSync(logFile, 'w', 0o600);
  // Our own group may use the socket, so that nobody needs to join the docker group for an engine of their own.
  const group = process.getgid?.() ?? 0;
  const words = [
    ...sudo,
    'dockerd',
    '--iptables=false',
    '--ip6tables=false',
    '--bridge=none',
    '--group',
    String(group),
  ];
  ui.log(`starting ${words.join(' ')}`);
  const child = spawn(words[0] ?? 'dockerd', words.slice(1), { detached: true, stdio: ['ignore', log, log] });
  let ended: string | null = null;
  child.on('error', (error) => (ended = error.message));
  child.on('exit', (code, signal) => (ended = `dockerd ended with ${signal ?? `exit code ${code}`}`));
  const version = await untilAnswering(startMs, () => ended);
  child.unref();
  const pid = Number((await readFile('/var/run/docker.pid', 'utf8')).trim());
  const start = await startOf(pid);
  if (start !== null) await writeFile(memoryFile, JSON.stringify({ pid, start } satisfies Remembered), { mode: 0o600 });
  ui.log(`${version} answers (process ${pid}); npm run teardown ends it`);
}

const ownUser = process.env['USER'] ?? process.env['LOGNAME'] ?? String(process.getuid?.());
const joinQuestion: Question = {
  about: 'docker group',
  text: `Add ${ownUser}, who may not use the container engine that runs, to the group "docker" (its members can become root)`,
};
/** tini is docker-init: it reaps what the supervisor's children leave behind. */
const enginePackages: WantedPackages = {
  names: ['docker.io', 'tini'],
  why: 'the container engine that attempts run in',
};

/** Somebody else's engine runs, but we may not use it: join its group, which takes effect at the next log-in. */
async function joinDockerGroup(ui: Ui): Promise<never> {
  const user = ownUser;
  if (await ui.confirm(joinQuestion)) {
    const sudo = await asRoot('usermod');
    const words = [...sudo, 'usermod', '-aG', 'docker', user];
    const { code, stderr } = await run(words[0] ?? 'usermod', words.slice(1));
    if (code !== 0)
      throw new SetupError(`usermod failed: ${stderr.trim()}`, `Add ${user} to the group docker yourself.`);
    throw new SetupError(
      `${user} is in the group docker from the next log-in on`,
      'Log in again, or run: newgrp docker; then the same command again.',
    );
  }
  throw new SetupError(
    'the container engine may not be used by this user',
    'Run as root, or let an administrator add you to the group docker.',
  );
}

const placeOf = (address: EngineAddress): string =>
  address.kind === 'socket' ? address.path : `${address.host}:${address.port}`;

const isInstalled = async (): Promise<boolean> => (await run('sh', ['-c', 'command -v dockerd'])).code === 0;
const hasServiceManager = (): Promise<boolean> => exists('/run/systemd/system');
const startQuestion = async (): Promise<Question> => ({
  about: 'engine start',
  text: (await hasServiceManager())
    ? 'Start the container engine with systemctl start docker'
    : 'Start a container engine (dockerd) in the background',
});

/** What has to be asked before an engine can answer; nothing where one does, or where we can't bring one. */
export async function engineQuestions(setting: string | null): Promise<readonly Question[]> {
  const { address, namedBy } = engineChoiceHere(setting);
  const ping = await pingEngine(address);
  if (ping.ok || namedBy !== null || process.platform !== 'linux') return [];
  if (ping.refused) return [joinQuestion];
  const packages = (await isInstalled()) ? [] : await packagesQuestions(enginePackages);
  return [...packages, await startQuestion()];
}

/**
 * A container engine that answers: the one that a Kernel would use, else, on Debian and Ubuntu, one from Debian's
 * packages, started by the service manager or by us. `setting`: what the machine settings name. Throws SetupError with
 * what to do.
 */
export async function ensureEngine(setting: string | null, ui: Ui): Promise<void> {
  const { address, namedBy } = engineChoiceHere(setting);
  const ping = await pingEngine(address);
  if (ping.ok) {
    ui.log(`container engine: ${ping.version} answers at ${placeOf(address)}`);
    return;
  }
  if (namedBy !== null) {
    throw new SetupError(
      `the container engine that ${namedBy} names does not answer at ${placeOf(address)} (${ping.message})`,
      'Start it, or name another one.',
    );
  }
  if (process.platform !== 'linux') {
    throw new SetupError(
      `no container engine answers at ${placeOf(address)} (${ping.message})`,
      'Install and start Docker Desktop (or Podman with its Docker socket), then run the same command again.',
    );
  }
  if (ping.refused) return joinDockerGroup(ui);
  if (!(await isInstalled())) {
    if (!(await isDebian())) {
      throw new SetupError(
        `no container engine answers at ${placeOf(address)} (${ping.message}), and this is neither Debian nor Ubuntu`,
        'Install Docker or Podman (with its Docker socket) with your package manager and start it, then run the same command again.',
      );
    }
    await ensureDebianPackages(enginePackages, ui);
    const installed = engineChoiceHere(setting).address;
    const started = await pingEngine(installed);
    if (started.ok) {
      ui.log(`container engine: ${started.version} answers at ${placeOf(installed)}`);
      return;
    }
    if (started.refused) return joinDockerGroup(ui);
  }
  const sudo = await asRoot('starting the container engine');
  if (await hasServiceManager()) {
    if (!(await ui.confirm(await startQuestion()))) {
      throw new SetupError('the container engine does not run', 'Start it: systemctl start docker');
    }
    const words = [...sudo, 'systemctl', 'start', 'docker'];
    const { code, stderr } = await run(words[0] ?? 'systemctl', words.slice(1));
    if (code !== 0)
      throw new SetupError(`systemctl start docker failed: ${stderr.trim()}`, 'See: journalctl -u docker');
    const after = await pingEngine(engineChoiceHere(setting).address);
    if (!after.ok && after.refused) return joinDockerGroup(ui);
    ui.log(`container engine: ${await untilAnswering(startMs, () => null)} answers`);
    return;
  }
  if (!(await ui.confirm(await startQuestion()))) {
    throw new SetupError('the container engine does not run', 'Start it yourself, then run the same command again.');
  }
  await startDockerd(sudo, ui);
}

/** Ends the dockerd that set-up started, if it is still that process. Returns whether there was one. */
export async function stopOurDockerd(ui: Ui): Promise<boolean> {
  const text = await readFile(memoryFile, 'utf8').catch(() => undefined);
  if (text === undefined) return false;
  const { pid, start } = JSON.parse(text) as Remembered;
  if ((await startOf(pid)) === start) {
    const [sudo, ...quiet] = await asRoot('ending the container engine');
    // A minimal system has no program called kill; every shell has it built in.
    if (sudo === undefined) process.kill(pid, 'SIGTERM');
    else await run(sudo, [...quiet, 'sh', '-c', `kill ${pid}`]);
    const deadline = performance.now() + startMs;
    while ((await startOf(pid)) === start) {
      if (performance.now() > deadline)
        throw new SetupError(
          `dockerd (process ${pid}) did not end within ${startMs / 1000} s`,
          `End it yourself: kill ${pid}`,
        );
      await delay(100);
    }
    ui.log(`dockerd (process ${pid}) has ended`);
  }
  await rm(memoryFile, { force: true });
  return true;
}
