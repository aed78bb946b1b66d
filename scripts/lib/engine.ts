import { spawn } from 'node:child_process';
import { access, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { openSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { asRoot, ensureDebianPackages, isDebian } from './debian.ts';
import { engineAddress, pingEngine } from './engine-http.ts';
import { root } from './root.ts';
import { run } from './run.ts';
import { SetupError, type Ui } from './ui.ts';

/** Where a dockerd that we started is remembered, so that `npm run teardown` ends that one and no other. */
const memoryFile = path.join(root, '.cache', 'dockerd.json');
const logFile = path.join(root, '.cache', 'dockerd.log');

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

/** Waits until the engine answers. `failed` says early that it never will. */
async function untilAnswering(timeoutMs: number, failed: () => string | null): Promise<string> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const ping = await pingEngine(engineAddress());
    if (ping.ok) return ping.version;
    const reason =
      failed() ?? (performance.now() > deadline ? `no answer within ${timeoutMs / 1000} s (${ping.code})` : null);
    if (reason !== null)
      throw new SetupError(`the container engine did not start: ${reason}`, `See its log: ${logFile}`);
    // dockerd announces nothing that can be waited for; its socket exists before it answers.
    await delay(100);
  }
}

/** Starts dockerd detached, without networks of its own: Escrow's containers have none. */
async function startDockerd(sudo: readonly string[], ui: Ui): Promise<string> {
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
  const version = await untilAnswering(60_000, () => ended);
  child.unref();
  const pid = Number((await readFile('/var/run/docker.pid', 'utf8')).trim());
  const start = await startOf(pid);
  if (start !== null) await writeFile(memoryFile, JSON.stringify({ pid, start } satisfies Remembered), { mode: 0o600 });
  ui.log(`dockerd ${version} answers (process ${pid}); npm run teardown ends it`);
  return version;
}

/** Somebody else's engine runs, but we may not use it: join its group, which takes effect at the next log-in. */
async function joinDockerGroup(ui: Ui): Promise<never> {
  const user = process.env['USER'] ?? process.env['LOGNAME'] ?? String(process.getuid?.());
  const question = `The container engine runs, but ${user} may not use it. Add ${user} to the group "docker" (its members can become root)?`;
  if (await ui.confirm(question)) {
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

/**
 * A container engine that answers: the one that is there, else, on Debian and Ubuntu, one from Debian's packages, started
 * by the service manager or by us. Throws SetupError with what to do.
 */
export async function ensureEngine(ui: Ui): Promise<void> {
  const address = engineAddress();
  const where = address.kind === 'socket' ? address.path : `${address.host}:${address.port}`;
  const ping = await pingEngine(address);
  if (ping.ok) {
    ui.log(`container engine: ${ping.version} answers at ${where}`);
    return;
  }
  if (address.named) {
    throw new SetupError(
      `the container engine that DOCKER_HOST names does not answer (${ping.code}: ${ping.message})`,
      'Start it, or unset DOCKER_HOST.',
    );
  }
  if (process.platform !== 'linux') {
    throw new SetupError(
      `no container engine answers at ${where} (${ping.code})`,
      'Install and start Docker Desktop (or Podman with its Docker socket), then run the same command again.',
    );
  }
  if (ping.code === 'EACCES') return joinDockerGroup(ui);
  const installed = (await run('sh', ['-c', 'command -v dockerd'])).code === 0;
  if (!installed) {
    if (!(await isDebian())) {
      throw new SetupError(
        `no container engine answers at ${where} (${ping.code}), and this is neither Debian nor Ubuntu`,
        'Install Docker or Podman (with its Docker socket) with your package manager and start it, then run the same command again.',
      );
    }
    // tini is docker-init: it reaps what the supervisor's children leave behind.
    await ensureDebianPackages(['docker.io', 'tini'], 'the container engine that attempts run in', ui);
    const started = await pingEngine(address);
    if (started.ok) {
      ui.log(`container engine: ${started.version} answers at ${where}`);
      return;
    }
    if (started.code === 'EACCES') return joinDockerGroup(ui);
  }
  const sudo = await asRoot('starting the container engine');
  if (await exists('/run/systemd/system')) {
    if (!(await ui.confirm('Start the container engine with systemctl start docker?'))) {
      throw new SetupError('the container engine does not run', 'Start it: systemctl start docker');
    }
    const words = [...sudo, 'systemctl', 'start', 'docker'];
    const { code, stderr } = await run(words[0] ?? 'systemctl', words.slice(1));
    if (code !== 0)
      throw new SetupError(`systemctl start docker failed: ${stderr.trim()}`, 'See: journalctl -u docker');
    const after = await pingEngine(address);
    if (!after.ok && after.code === 'EACCES') return joinDockerGroup(ui);
    ui.log(`container engine: ${await untilAnswering(60_000, () => null)} answers at ${where}`);
    return;
  }
  if (!(await ui.confirm('Start a container engine (dockerd) in the background?'))) {
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
    const deadline = performance.now() + 30_000;
    while ((await startOf(pid)) === start) {
      if (performance.now() > deadline)
        throw new SetupError(`dockerd (process ${pid}) did not end within 30 s`, `End it yourself: kill ${pid}`);
      await delay(100);
    }
    ui.log(`dockerd (process ${pid}) has ended`);
  }
  await rm(memoryFile, { force: true });
  return true;
}
