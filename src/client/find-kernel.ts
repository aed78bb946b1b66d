import { watch } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { readEndpoint, type Endpoint } from '../protocol/endpoint.ts';
import { EscrowError } from '../protocol/errors.ts';
import { greetKernel, type Welcome } from '../protocol/handshake.ts';
import { checkHome, prepareHome } from '../protocol/home.ts';
import { oldestProtocolVersion, protocolVersion, type ClientHello } from '../protocol/methods.ts';
import { processState } from '../protocol/process-identity.ts';
import { compareVersions } from '../protocol/version.ts';
import { startKernel, type StartOptions } from './start-kernel.ts';

/** Milliseconds a client waits for a Kernel to come up, or for one that goes to be gone. */
const defaultDeadlineMs = 30_000;

/** Milliseconds a local socket may take to connect. */
const connectMs = 3000;

/**
 * Looks this often when no event tells (a folder watch may be missing on some file systems), and less and less often
 * while another process keeps the lock without an endpoint: each look then costs a process.
 */
const lookAgainMs = 200;
const longestRestMs = 2000;

/** A Kernel that says that it listens and then cannot be found again is not started more often than this. */
const maxStarts = 3;

/** An authenticated socket that speaks LSP framing from its next byte on. The caller owns it. */
export interface KernelSocket {
  readonly socket: Socket;
  readonly welcome: Welcome & { readonly protocol: number };
  readonly endpoint: Endpoint;
  /** True when this client is newer than the Kernel, which goes on because somebody needs it. */
  readonly updatePending: boolean;
}

export interface FindOptions {
  readonly home: string;
  readonly hello: ClientHello;
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
}

export type FindOrStartOptions = FindOptions &
  Omit<StartOptions, 'home'> & {
    /** False: never start one, throw NoKernel instead. */
    readonly autostart: boolean;
  };

/** What was found behind the endpoint file. */
type Found =
  | { readonly kind: 'connected'; readonly kernel: KernelSocket }
  | { readonly kind: 'absent' }
  /** It is ending, or its process lives but does not accept: wait. */
  | { readonly kind: 'going'; readonly why: string };

function openSocket(endpoint: Endpoint, signal: AbortSignal | undefined): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path: endpoint.path });
    const limit = AbortSignal.any([AbortSignal.timeout(connectMs), ...(signal === undefined ? [] : [signal])]);
    const onAbort = (): void => fail(new Error('connecting took too long'));
    const fail = (error: Error): void => {
      limit.removeEventListener('abort', onAbort);
      socket.destroy();
      reject(error);
    };
    limit.addEventListener('abort', onAbort, { once: true });
    socket.once('error', fail);
    socket.once('connect', () => {
      limit.removeEventListener('abort', onAbort);
      socket.off('error', fail);
      // Whoever owns the socket learns of errors by its end; an unheard error event would end the process.
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}

const ours = { min: oldestProtocolVersion, max: protocolVersion };

async function greet(
  endpoint: Endpoint,
  options: FindOptions,
  intent: 'connect' | 'drain-if-idle',
): Promise<{ readonly socket: Socket; readonly welcome: Welcome; readonly draining: boolean }> {
  const socket = await openSocket(endpoint, options.signal);
  try {
    const { token } = endpoint;
    const { hello, signal } = options;
    const greeted = await greetKernel(socket, { token, protocol: ours, hello, intent, signal });
    return { socket, ...greeted };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Asks an older Kernel to go; true when it does. An older client never asks. */
async function replaces(endpoint: Endpoint, options: FindOptions): Promise<boolean> {
  if (compareVersions(endpoint.version, options.hello.version) >= 0) return false;
  const { socket, draining } = await greet(endpoint, options, 'drain-if-idle');
  socket.destroy();
  return draining;
}

async function look(options: FindOptions, mayReplace: boolean): Promise<Found> {
  const endpoint = await readEndpoint(options.home);
  if (endpoint === undefined) return { kind: 'absent' };
  try {
    if (mayReplace && (await replaces(endpoint, options))) return { kind: 'going', why: 'an older Kernel makes room' };
    const { socket, welcome } = await greet(endpoint, options, 'connect');
    const { protocol } = welcome;
    if (protocol === null) throw new Error('the handshake let a missing version through');
    const updatePending = compareVersions(welcome.version, options.hello.version) < 0;
    return { kind: 'connected', kernel: { socket, endpoint, updatePending, welcome: { ...welcome, protocol } } };
  } catch (error) {
    options.signal?.throwIfAborted();
    if (EscrowError.is(error, 'KernelDraining')) return { kind: 'going', why: error.message };
    // Somebody else may have published meanwhile: what was refused was then the older one.
    const now = await readEndpoint(options.home);
    if (now?.instanceId !== endpoint.instanceId) return { kind: 'going', why: 'the Kernel is being replaced' };
    if (EscrowError.is(error)) throw error;
    // The file of a dead Kernel counts as none. It stays: only the holder of the lock removes it.
    const state = await processState(endpoint.pid, endpoint.processStart);
    // Where the platform can't tell, a start does no harm: the lock decides.
    return state === 'alive'
      ? { kind: 'going', why: `process ${endpoint.pid} has the endpoint but does not answer` }
      : { kind: 'absent' };
  }
}

/** Resolves when the state folder changes, after a while, or at the end of the wait. */
function somethingHappens(home: string, restMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      watcher?.close();
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, restMs);
    signal.addEventListener('abort', done, { once: true });
    let watcher: ReturnType<typeof watch> | undefined;
    try {
      watcher = watch(home, { persistent: false }, (_event, name) => {
        if (name === null || name.startsWith('endpoint.json')) done();
      });
      watcher.on('error', () => undefined);
    } catch {
      // No watch on this file system: the timer does.
    }
  });
}

/** A home that must be there already: without one there is no Kernel either. */
async function existingHome(home: string): Promise<string> {
  try {
    return await checkHome(home);
  } catch (error) {
    throw EscrowError.is(error, 'NotFound') ? noKernel(home) : error;
  }
}

/**
 * The running Kernel of a home, or undefined; starts none, and waits only for one that is being replaced. Throws
 * EscrowError HandshakeRefused, VersionMismatch, UnsafePath.
 */
export async function findKernel(options: FindOptions): Promise<KernelSocket | undefined> {
  try {
    const found = await look({ ...options, home: await existingHome(options.home) }, false);
    return found.kind === 'connected' ? found.kernel : undefined;
  } catch (error) {
    if (EscrowError.is(error, 'NoKernel')) return undefined;
    throw error;
  }
}

/**
 * Connects to the Kernel of a home and starts one when there is none (`autostart`). Many callers at once end with one
 * Kernel: the lock decides, the losers wait for the winner's endpoint. A newer client asks an older, idle Kernel to go
 * first; an older client takes a newer Kernel as it is. Throws EscrowError NoKernel, HandshakeRefused,
 * VersionMismatch, UnsafePath, and whatever kept the Kernel from starting (RuntimeTooOld, StorageTooNew, …).
 */
export async function findOrStartKernel(options: FindOrStartOptions): Promise<KernelSocket> {
  const home = options.autostart ? await prepareHome(options.home) : await existingHome(options.home);
  const deadline = AbortSignal.timeout(options.deadlineMs ?? defaultDeadlineMs);
  const signal = options.signal === undefined ? deadline : AbortSignal.any([deadline, options.signal]);
  const find: FindOptions = { ...options, home, signal };
  let waitingFor = 'the Kernel';
  let starts = 0;
  let restMs = lookAgainMs;
  for (;;) {
    options.signal?.throwIfAborted();
    let found: Found;
    try {
      found = await look(find, options.autostart);
      if (found.kind === 'connected') return found.kernel;
      if (found.kind === 'absent') {
        if (!options.autostart) throw noKernel(home);
        const outcome = await startKernel({ ...options, home }, signal);
        if (outcome.kind === 'failed') throw outcome.error;
        if (outcome.kind === 'ready' && ++starts <= maxStarts) continue;
        if (outcome.kind === 'ready') throw diesAtOnce(home);
        waitingFor = 'the Kernel that has the lock of the state folder';
        restMs = Math.min(restMs * 1.5, longestRestMs);
      } else {
        if (!options.autostart) throw noKernel(home);
        waitingFor = found.why;
      }
    } catch (error) {
      options.signal?.throwIfAborted();
      if (EscrowError.is(error)) throw error;
      if (!signal.aborted) throw error;
    }
    if (!signal.aborted) await somethingHappens(home, restMs, signal);
    if (signal.aborted) {
      options.signal?.throwIfAborted();
      throw new EscrowError(
        'NoKernel',
        `No Kernel could be reached in time (waited for: ${waitingFor}).`,
        `Look at ${path.join(home, 'kernel.log')}.`,
        { waitingFor },
      );
    }
  }
}

const noKernel = (home: string): EscrowError =>
  new EscrowError('NoKernel', 'No Kernel is running.', 'Start it: open an Escrow view, or run `escrow kernel start`.', {
    home,
  });

const diesAtOnce = (home: string): EscrowError =>
  new EscrowError(
    'NoKernel',
    `The Kernel was started ${maxStarts} times and was gone each time.`,
    `Look at ${path.join(home, 'kernel.log')}.`,
    { home },
  );
