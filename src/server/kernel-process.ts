import { randomBytes } from 'node:crypto';
import { closeSync, fstatSync, writeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { publishEndpoint, retractEndpoint, writeWhole } from '../protocol/endpoint.ts';
import { EscrowError } from '../protocol/errors.ts';
import { prepareHome } from '../protocol/home.ts';
import { oldestProtocolVersion, protocolVersion } from '../protocol/methods.ts';
import { processStart, processState } from '../protocol/process-identity.ts';
import { kernelExit, readyDescriptorVariable, type StartReport } from '../protocol/startup.ts';
import { compareVersions, productVersion } from '../protocol/version.ts';
import { crashPoints, type CrashPoint } from './crash-points.ts';
import { openFileLog, type FileLog, type Logger } from './log.ts';
import { createListener, placeSocket, type Listener } from './rpc/listener.ts';
import type { ConnectedClient, Kernel } from './rpc/port.ts';
import { readSettings, type KernelSettings } from './settings.ts';
import { finishRestore, restoreBackup, type Restored } from './store/backup.ts';
import { acquireKernelLock } from './store/kernel-lock.ts';
import { storageFault } from './store/faults.ts';
import { shippedBinding } from './store/native.ts';
import { openStore } from './store/open-store.ts';
import type { Store } from './store/port.ts';
import { within } from './within.ts';

/** What the composed Kernel is made from. The store is closed by this shell, after `drain`. */
export interface KernelShellDeps {
  readonly store: Store;
  readonly home: string;
  readonly instanceId: string;
  readonly now: () => number;
  readonly monotonic: () => number;
  readonly log: Logger;
  readonly distDir: string;
  readonly settings: KernelSettings;
  /** Named places at which a test ends the process; does nothing without its variable. */
  readonly at: CrashPoint;
  readonly clients: () => readonly ConnectedClient[];
}

export interface KernelProcessOptions {
  /** State folder; made and checked here. */
  readonly home: string;
  /** Folder of the bundles: executor, rehearsal scripts, SQLite's binding. */
  readonly distDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version?: string;
}

/** Milliseconds after which a drain that does not come back is given up: more than the Kernel bounds itself to (120 s). */
const drainMs = 150_000;

/** Milliseconds that a Kernel waits for its first client, at least: as long as a client looks for a Kernel. */
const firstClientMs = 60_000;

const drainSignals = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** Milliseconds that a handle nobody owns may keep a finished process alive. */
const lingerMs = 2000;

const exitCodeOf = (error: unknown): number => {
  if (!EscrowError.is(error)) return kernelExit.defect;
  switch (error.code) {
    case 'AnotherKernel':
      return kernelExit.anotherKernel;
    case 'RuntimeTooOld':
      return kernelExit.runtime;
    case 'StorageFull':
    case 'StorageUnwritable':
    case 'StorageTooNew':
      return kernelExit.storage;
    case 'UnsafePath':
    case 'InvalidSettings':
      return kernelExit.configuration;
    default:
      return kernelExit.defect;
  }
};

let startReported = false;

/** Tells whoever started this process how it went, on the descriptor it named; once, and never throws. */
export function reportStart(env: Readonly<Record<string, string | undefined>>, report: StartReport): void {
  const descriptor = Number(env[readyDescriptorVariable]);
  // Only once: after it is closed, the number may belong to the database.
  if (startReported || !Number.isInteger(descriptor) || descriptor < 3) return;
  startReported = true;
  try {
    const kind = fstatSync(descriptor);
    if (!kind.isFIFO() && !kind.isSocket()) return;
    try {
      writeSync(descriptor, `${JSON.stringify(report)}\n`);
    } finally {
      closeSync(descriptor);
    }
  } catch {
    // Whoever started us is gone, which is their right.
  }
}

/** Reports a failed start on every channel there is and returns the exit code for it. */
export function reportFailure(env: Readonly<Record<string, string | undefined>>, error: unknown): number {
  const typed = EscrowError.is(error)
    ? error
    : new EscrowError(
        'Internal',
        error instanceof Error ? error.message : String(error),
        'See kernel.log in the state folder and report it.',
      );
  process.stderr.write(`escrow kernel: ${typed.message} ${typed.next}\n`);
  if (!EscrowError.is(error) && error instanceof Error) process.stderr.write(`${error.stack ?? ''}\n`);
  reportStart(env, { kind: 'failed', message: typed.message, error: typed.toData() });
  return exitCodeOf(error);
}

/** Node-API version and language level of the Kernel's parts (better-sqlite3 crashes on Node 20: feasibility). */
const oldestNode = 22;

/** Why this runtime cannot run the Kernel, or undefined. `version` as `process.versions.node` says it. */
export function runtimeFault(version: string): EscrowError | undefined {
  if (Number.parseInt(version, 10) >= oldestNode) return undefined;
  return new EscrowError(
    'RuntimeTooOld',
    `The Kernel needs Node ${oldestNode} or newer; this is ${version}.`,
    'Set escrow.kernel.node to a newer Node.',
    { have: version, oldest: oldestNode },
  );
}

/** Who holds the lock, for the message of a second Kernel. Written by the holder; the lock itself can't be read. */
async function describeHolder(home: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    const holder = JSON.parse(await readFile(path.join(home, 'holder.json'), 'utf8')) as {
      pid: number;
      processStart: string | null;
    };
    return { ...holder, state: await processState(holder.pid, holder.processStart) };
  } catch {
    return {};
  }
}

/**
 * Runs the Kernel process: lock → store → compose → reconcile → listen → publish → serve → drain. Resolves with the
 * exit code when the Kernel has ended by itself (idle, stop, signal, replaced). Throws EscrowError AnotherKernel,
 * UnsafePath, InvalidSettings, StorageTooNew, StorageFull, StorageUnwritable when it cannot start.
 */
export async function runKernelProcess(
  options: KernelProcessOptions,
  createKernel: (deps: KernelShellDeps) => Kernel,
): Promise<number> {
  const home = await prepareHome(options.home);
  const fileLog = openFileLog({
    file: path.join(home, 'kernel.log'),
    now: Date.now,
    least: options.env['ESCROW_LOG'] === 'debug' ? 'debug' : 'info',
  });
  try {
    return await underLock(home, options, createKernel, fileLog);
  } catch (raw) {
    // Lock, holder and endpoint are files of the state folder as the database is.
    const error = storageFault(raw, 'starting the Kernel');
    // Without the lock the log belongs to another process, which may be rotating it.
    if (!EscrowError.is(error, 'AnotherKernel')) {
      fileLog.log('error', 'the Kernel did not start or ended badly', { error });
    }
    throw error;
  } finally {
    fileLog.close();
  }
}

/**
 * Puts a backup in the place of a home's state, in a process of its own that holds the lock meanwhile. Throws EscrowError
 * AnotherKernel while a Kernel runs, and whatever restoreBackup throws.
 */
export async function runRestore(options: KernelProcessOptions, folder: string): Promise<Restored> {
  const home = await prepareHome(options.home);
  const nativeBinding = shippedBinding(options.distDir);
  const lock = acquireKernelLock(home, nativeBinding);
  if (lock === undefined) throw anotherKernel(await describeHolder(home));
  try {
    await finishRestore(home);
    return await restoreBackup(home, folder, Date.now, nativeBinding);
  } finally {
    lock.release();
  }
}

const anotherKernel = (holder: Readonly<Record<string, unknown>>): EscrowError =>
  new EscrowError(
    'AnotherKernel',
    `Another Kernel has this state folder${'pid' in holder ? ` (pid ${String(holder['pid'])})` : ''}.`,
    'Use it: clients find it by themselves.',
    { holder },
  );

async function underLock(
  home: string,
  options: KernelProcessOptions,
  createKernel: (deps: KernelShellDeps) => Kernel,
  fileLog: FileLog,
): Promise<number> {
  const settings = await readSettings(home, options.env);
  const nativeBinding = shippedBinding(options.distDir);
  const lock = acquireKernelLock(home, nativeBinding);
  if (lock === undefined) throw anotherKernel(await describeHolder(home));
  try {
    const instanceId = randomBytes(12).toString('hex');
    // Whoever published an endpoint before is dead: the lock proves it.
    await retractEndpoint(home);
    const at = crashPoints(options.env);
    at('locked');
    const start = (await processStart(process.pid)) ?? null;
    await writeWhole(
      path.join(home, 'holder.json'),
      `${JSON.stringify({ pid: process.pid, processStart: start, instanceId, startedAt: Date.now() })}\n`,
    );
    await finishRestore(home);
    const store = openStore({
      home,
      now: Date.now,
      nativeBinding,
      at,
      artefactAllowance: settings.artefactAllowance,
    });
    at('store-opened');
    try {
      return await serve({ home, options, settings, instanceId, start, store, at, log: fileLog.log }, createKernel);
    } finally {
      store.close();
    }
  } finally {
    lock.release();
  }
}

type DrainReason = Parameters<Kernel['drain']>[0];

interface ServeContext {
  readonly home: string;
  readonly options: KernelProcessOptions;
  readonly settings: KernelSettings;
  readonly instanceId: string;
  readonly start: string | null;
  readonly store: Store;
  readonly at: CrashPoint;
  readonly log: Logger;
}

async function serve(context: ServeContext, createKernel: (deps: KernelShellDeps) => Kernel): Promise<number> {
  const { home, options, settings, instanceId, store, log } = context;
  const version = options.version ?? productVersion;
  const clients: ConnectedClient[] = [];
  const ending = Promise.withResolvers<DrainReason>();
  let draining = false;
  const startDrain = (reason: DrainReason): void => {
    if (draining) return;
    draining = true;
    ending.resolve(reason);
  };

  const kernel = createKernel({
    store,
    home,
    instanceId,
    now: Date.now,
    monotonic: () => performance.now(),
    log,
    distDir: options.distDir,
    settings,
    at: context.at,
    clients: () => clients,
  });

  // Whoever started this process is on its way, however long a busy machine takes for it.
  let met = false;
  const idle = idleExit({
    after: () => (met ? settings.idleExitMs : Math.max(settings.idleExitMs, firstClientMs)),
    mayExit: () => clients.length === 0 && kernel.idle(),
    exit: () => startDrain('idle'),
  });
  kernel.onIdleChanged(idle.check);
  kernel.onStopRequested(() => startDrain('stop'));
  let signalled = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    log('warn', 'signal', { signal });
    // Signalled twice: the next Kernel settles what this one leaves.
    if (signalled) process.exit(kernelExit.defect);
    signalled = true;
    startDrain('signal');
  };
  for (const signal of drainSignals) process.on(signal, onSignal);

  const listener = createListener({
    kernel,
    instanceId,
    epoch: store.epoch,
    version,
    policy: { executionEnabled: settings.executionEnabled, draining: () => draining },
    log,
    clients,
    onClientsChanged: () => {
      met ||= clients.length > 0;
      idle.check();
    },
    drainIfIdle: (clientVersion) => {
      const goes = compareVersions(version, clientVersion) < 0 && clients.length === 0 && kernel.idle();
      if (goes) startDrain('replaced');
      return draining;
    },
  });

  try {
    context.at('before-reconcile');
    await kernel.reconcile();
    context.at('reconciled');
    if (!draining) await open(context, listener, version);
    idle.check();
    const reason = await ending.promise;
    log('info', 'draining', { reason });
    const drained =
      (await within(
        drainMs,
        kernel.drain(reason).then(() => true),
      )) === true;
    if (!drained) log('error', 'the drain did not come back; the next Kernel reconciles', { afterMs: drainMs });
    return drained ? kernelExit.ok : kernelExit.defect;
  } finally {
    idle.dispose();
    await retractEndpoint(home).catch((error: unknown) => log('warn', 'the endpoint file stays', { error }));
    await listener.close();
    for (const signal of drainSignals) process.off(signal, onSignal);
    log('info', 'ended', { instanceId });
  }
}

async function open(context: ServeContext, listener: Listener, version: string): Promise<void> {
  const { home, options, instanceId, store, log } = context;
  const place = placeSocket(home, options.env);
  await listener.listen(place);
  context.at('listening');
  await publishEndpoint(home, {
    pid: process.pid,
    processStart: context.start,
    instanceId,
    protocol: { min: oldestProtocolVersion, max: protocolVersion },
    path: place.path,
    token: listener.token,
    version,
  });
  context.at('published');
  log('info', 'listening', { instanceId, epoch: store.epoch, version, node: process.version });
  reportStart(options.env, { kind: 'ready', instanceId });
}

/** Calls `exit` once the process may exit and went on to for a while. */
function idleExit(options: {
  /** Milliseconds, asked for each time that the wait begins. */
  readonly after: () => number;
  readonly mayExit: () => boolean;
  readonly exit: () => void;
}): {
  readonly check: () => void;
  readonly dispose: () => void;
} {
  let timer: NodeJS.Timeout | undefined;
  let disposed = false;
  const stop = (): void => {
    clearTimeout(timer);
    timer = undefined;
  };
  return {
    check() {
      if (disposed || !options.mayExit()) {
        stop();
        return;
      }
      timer ??= setTimeout(() => {
        timer = undefined;
        if (options.mayExit()) options.exit();
      }, options.after());
    },
    dispose() {
      disposed = true;
      stop();
    },
  };
}

/**
 * The last lines of an entry point: runs, sets the exit code, and ends the process even where a handle that nobody
 * owns would keep it. A defect anywhere ends the process at once: the container's own dead man's switch does the rest.
 */
export function runToExit(options: KernelProcessOptions, createKernel: (deps: KernelShellDeps) => Kernel): void {
  const die = (error: unknown): void => {
    const log = openFileLog({ file: path.join(options.home, 'kernel.log'), now: Date.now });
    log.log('error', 'a defect ends the Kernel', { error });
    process.exit(reportFailure(options.env, error));
  };
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);
  void runKernelProcess(options, createKernel).then(
    (code) => {
      process.exitCode = code;
      setTimeout(() => process.exit(code), lingerMs).unref();
    },
    (error: unknown) => {
      process.exit(reportFailure(options.env, error));
    },
  );
}
