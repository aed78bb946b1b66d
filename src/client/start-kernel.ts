import { spawn } from 'node:child_process';
import { closeSync, constants, fstatSync, ftruncateSync, openSync } from 'node:fs';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { EscrowError } from '../protocol/errors.ts';
import { kernelExit, readyDescriptorVariable, StartReport } from '../protocol/startup.ts';
import { kernelEnvironment } from './kernel-environment.ts';

/** What a Kernel prints outside its log goes to a file of at most about this size. */
const maxOutput = 1024 * 1024;

/** A start report is one line; more is not one. */
const maxReport = 64 * 1024;

export interface StartOptions {
  /** State folder, already checked. */
  readonly home: string;
  /** The Kernel's entry: `dist/kernel.cjs`, or a TypeScript entry under a Node that strips types. */
  readonly kernelPath: string;
  /** Node ≥22, or VS Code's own executable. */
  readonly nodePath: string;
  /** True when `nodePath` is VS Code's own runtime. Default: whether this process runs on Electron. */
  readonly electron?: boolean | undefined;
  /** Tests only: further variables. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
}

export type StartOutcome =
  | { readonly kind: 'ready'; readonly pid: number }
  /** Another process has the lock: it is the Kernel, or on its way out. */
  | { readonly kind: 'another' }
  | { readonly kind: 'failed'; readonly error: EscrowError };

/** Undefined where the folder can't be written (full, read-only): the Kernel then says so itself, by its report. */
function openOutput(home: string): number | undefined {
  const noFollow = process.platform === 'win32' ? 0 : constants.O_NOFOLLOW;
  try {
    const descriptor = openSync(
      path.join(home, 'kernel-output.log'),
      constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | noFollow,
      0o600,
    );
    if (fstatSync(descriptor).size > maxOutput) ftruncateSync(descriptor);
    return descriptor;
  } catch {
    return undefined;
  }
}

function outcomeOf(report: string, exit: number | null, pid: number, home: string): StartOutcome {
  const unexplained = (): StartOutcome => ({
    kind: 'failed',
    error: new EscrowError(
      'NoKernel',
      `The Kernel ended while it started (exit ${exit === null ? 'unknown' : String(exit)}).`,
      `Look at ${path.join(home, 'kernel-output.log')} and kernel.log beside it.`,
      { exit },
    ),
  });
  if (report === '') return exit === kernelExit.anotherKernel ? { kind: 'another' } : unexplained();
  let parsed: StartReport;
  try {
    parsed = StartReport.parse(JSON.parse(report));
  } catch {
    return unexplained();
  }
  if (parsed.kind === 'ready') return { kind: 'ready', pid };
  if (parsed.error.code === 'AnotherKernel') return { kind: 'another' };
  const error = EscrowError.fromWire(parsed.message, parsed.error);
  return error === undefined ? unexplained() : { kind: 'failed', error };
}

/**
 * Starts a Kernel detached from this process and waits until it says that it listens, that another has the lock, or
 * why it cannot start. It lives on when the caller ends. Throws EscrowError NoKernel when it cannot be spawned or does
 * not say anything until `signal` aborts.
 */
export async function startKernel(options: StartOptions, signal: AbortSignal): Promise<StartOutcome> {
  // Nothing is started for a caller that has given up: nobody would know of it.
  signal.throwIfAborted();
  const output = openOutput(options.home);
  try {
    const child = spawn(options.nodePath, [options.kernelPath], {
      cwd: options.home,
      detached: true,
      windowsHide: true,
      stdio: ['ignore', output ?? 'ignore', output ?? 'ignore', 'pipe'],
      env: {
        ...kernelEnvironment({
          home: options.home,
          electron: options.electron ?? process.versions['electron'] !== undefined,
          extra: options.environment,
        }),
        [readyDescriptorVariable]: '3',
      },
    });
    return await new Promise<StartOutcome>((resolve, reject) => {
      const pipe = child.stdio[3] as Readable | undefined;
      let text = '';
      let piped = false;
      let exited: number | null | undefined;
      const cannotSpawn = (error: Error): void => {
        reject(
          new EscrowError(
            'NoKernel',
            `The Kernel could not be started with ${options.nodePath}: ${error.message}`,
            'Set escrow.kernel.node to a Node of version 22 or newer.',
            { nodePath: options.nodePath },
          ),
        );
      };
      const settle = (): void => {
        signal.removeEventListener('abort', onAbort);
        pipe?.destroy();
        child.unref();
      };
      const onAbort = (): void => {
        settle();
        reject(
          new EscrowError(
            'NoKernel',
            'The Kernel was started but has not said yet that it listens.',
            `Try again in a moment; else look at ${path.join(options.home, 'kernel.log')}.`,
            { pid: child.pid ?? null },
          ),
        );
      };
      const conclude = (): void => {
        const line = text.split('\n')[0] ?? '';
        // Without a report only the exit code tells, so wait for it.
        if (!piped || (line === '' && exited === undefined)) return;
        settle();
        resolve(outcomeOf(line, exited ?? null, child.pid ?? 0, options.home));
      };
      child.once('error', (error) => {
        settle();
        cannotSpawn(error);
      });
      child.once('exit', (code) => {
        exited = code;
        conclude();
      });
      pipe?.setEncoding('utf8');
      pipe?.on('data', (chunk: string) => {
        if (text.length < maxReport) text += chunk;
        if (!text.includes('\n')) return;
        piped = true;
        conclude();
      });
      pipe?.on('error', () => undefined);
      pipe?.once('close', () => {
        piped = true;
        conclude();
      });
      signal.addEventListener('abort', onAbort, { once: true });
      if (signal.aborted) onAbort();
    });
  } finally {
    if (output !== undefined) closeSync(output);
  }
}
