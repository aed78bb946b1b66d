import { spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants, statSync, writeFileSync } from 'node:fs';
import { isAbsolute, join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import type { CommandEnd } from '../protocol/contract.ts';
import { dependencyPaths, insidePaths, workerId } from '../protocol/executor.ts';
import { hoardBounds, hoarded, type Hoarded } from './kernel-hoard.ts';
import { sweepWorkers } from './process-table.ts';
import { fullArea, type ResourceMeter } from './resource-meter.ts';
import { clearWritableAreas } from './writable-areas.ts';

/**
 * Root's own folders only: nothing that the worker can write to is on it (adversarial 50). Programs of packages come
 * first, as a project expects of its own; where the image has none, these two folders do not exist.
 */
export const workerPath = `${dependencyPaths.venv}/bin:${dependencyPaths.modules}/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

/** What every command gets, whatever the image or the Kernel had; declared variables are added. */
export const workerEnvironment: Readonly<Record<string, string>> = {
  PATH: workerPath,
  HOME: insidePaths.home,
  TMPDIR: insidePaths.tmp,
  LANG: 'C.UTF-8',
  LC_ALL: 'C.UTF-8',
  TERM: 'dumb',
  CI: '1',
  NO_COLOR: '1',
  // The workspace can't be written, so there would be nowhere to put them.
  PYTHONDONTWRITEBYTECODE: '1',
  // What a test prints must come before the runner's closing summary, not after it when buffers are flushed at exit.
  PYTHONUNBUFFERED: '1',
  // A check before this one ran code of the candidate: it must not leave a module that Python loads by itself.
  PYTHONNOUSERSITE: '1',
};

/** After the last process is gone its pipes hold at most what they buffered: this is for reading that. */
const drainMs = 1_000;
/** A killed process that has not gone after this long hangs in the kernel; the result says that its end is unknown. */
const goneMs = 10_000;

export interface WorkerCommand {
  readonly argv: readonly string[];
  readonly timeoutMs: number;
  readonly captureBytes: number;
  readonly env: Readonly<Record<string, string>>;
}

export interface WorkerResult {
  readonly end: CommandEnd;
  readonly output: Buffer;
  readonly cut: boolean;
  readonly durationMs: number;
  readonly peakMemory: number | null;
  readonly killed: number;
  readonly empty: boolean;
}

export interface RunningCommand {
  readonly result: Promise<WorkerResult>;
  /** Ends it; the result then says so. */
  stop(why: 'cancelled' | 'kernel-silent'): void;
}

/** Why the supervisor ended a command itself. */
type Stop =
  | { readonly kind: 'timeout' }
  | { readonly kind: 'overflow' }
  | { readonly kind: 'hoard'; readonly of: Hoarded }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'kernel-silent' };

/**
 * Runs one command as the worker: own session, uid and gid 10001 without further groups, stdin from /dev/null, the fixed
 * environment. It is over when its process has exited, never when its pipes close; then everything else of the worker
 * is ended too.
 */
export function runWorker(command: WorkerCommand, meter: ResourceMeter): RunningCommand {
  const started = performance.now();
  const watched = meter.watch();
  const capture = new Capture(command.captureBytes);
  let stopped: Stop | undefined;
  let exited = false;
  let stopping: Promise<unknown> | undefined;
  let giveUp: (end: ProcessEnd) => void = () => {};
  const gaveUp = new Promise<ProcessEnd>((resolve) => {
    giveUp = resolve;
  });

  const endAll = (why: Stop) => {
    if (stopped !== undefined || exited) return;
    stopped = why;
    // The leader's exit is what the result waits for; the sweep after it looks until nothing is left.
    stopping = sweepWorkers();
    setTimeout(() => giveUp({ kind: 'unknown', reason: 'not-ended' }), goneMs).unref();
  };
  const deadline = setTimeout(() => endAll({ kind: 'timeout' }), command.timeoutMs);
  const looks = setInterval(() => {
    const of = hoarded();
    if (of !== null) endAll({ kind: 'hoard', of });
  }, hoardBounds.everyMs);

  const launched = launch(command);
  const child = launched.child;
  if (child !== undefined) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        if (!capture.add(chunk)) endAll({ kind: 'overflow' });
      });
    }
  }

  const finish = async (end: ProcessEnd): Promise<WorkerResult> => {
    exited = true;
    clearTimeout(deadline);
    clearInterval(looks);
    const durationMs = performance.now() - started;
    // A sweep that still went on would end the next command.
    await stopping;
    const swept = await sweepWorkers();
    await drained(child);
    const { peakMemory, oom, pidsRefused } = watched.end();
    // Before the areas are emptied: what filled one is still there, unless the command itself made room again.
    const full = fullArea();
    const clean = swept.empty && cleared();
    return {
      end: clean
        ? commandEnd(end, stopped, { overflown: capture.overflown, oom, pidsRefused, full }, command)
        : { kind: 'unknown', reason: swept.empty ? 'leftovers-not-removed' : 'workers-not-ended' },
      output: capture.bytes(),
      cut: capture.overflown,
      durationMs,
      peakMemory,
      killed: swept.found,
      empty: swept.empty,
    };
  };
  return {
    result: Promise.race([launched.ended, gaveUp]).then(finish),
    stop: (why) => endAll({ kind: why }),
  };
}

function cleared(): boolean {
  try {
    clearWritableAreas();
    return true;
  } catch {
    return false;
  }
}

type ProcessEnd =
  | { readonly kind: 'exit'; readonly code: number }
  | { readonly kind: 'signal'; readonly signal: string }
  | { readonly kind: 'spawn-failed'; readonly errno: string }
  | { readonly kind: 'unknown'; readonly reason: string };

function commandEnd(
  end: ProcessEnd,
  stopped: Stop | undefined,
  seen: {
    readonly overflown: boolean;
    readonly oom: boolean;
    readonly pidsRefused: boolean;
    readonly full: string | null;
  },
  command: WorkerCommand,
): CommandEnd {
  if (end.kind === 'spawn-failed' || end.kind === 'unknown') return end;
  switch (stopped?.kind) {
    case 'timeout':
      return { kind: 'timeout', afterMs: command.timeoutMs };
    case 'overflow':
      return { kind: 'overflow', limitBytes: command.captureBytes };
    case 'hoard':
      return stopped;
    case 'cancelled':
      return { kind: 'cancelled' };
    case 'kernel-silent':
      return { kind: 'unknown', reason: 'kernel-silent' };
    case undefined:
      break;
  }
  // What it wrote before its exit may be read only after it.
  if (seen.overflown) return { kind: 'overflow', limitBytes: command.captureBytes };
  // Also with exit code 0: a program that lost a part of itself has not shown anything.
  if (seen.oom) return { kind: 'oom' };
  // A refusal is told to the program. One that copes with it and exits with 0 has done its work.
  if (end.kind === 'exit' && end.code === 0) return end;
  if (seen.pidsRefused) return { kind: 'pids' };
  return seen.full === null ? end : { kind: 'no-space', area: seen.full };
}

/** Output as it arrived, up to the limit. */
class Capture {
  readonly #limit: number;
  #parts: Buffer[] = [];
  #size = 0;
  overflown = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** False once there was more than fits. */
  add(chunk: Buffer): boolean {
    if (this.overflown) return false;
    const room = this.#limit - this.#size;
    if (chunk.length > room) this.overflown = true;
    // A copy of small parts: a chunk of one byte may hold a buffer of 64 KiB.
    this.#parts.push(Buffer.from(chunk.subarray(0, room)));
    this.#size += Math.min(chunk.length, room);
    if (this.#parts.length > 4096) this.#parts = [Buffer.concat(this.#parts)];
    return !this.overflown;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

interface Launched {
  readonly child: ChildProcess | undefined;
  /** Never rejects. */
  readonly ended: Promise<ProcessEnd>;
}

/** Starts a program as commands are started. Used for the probe as well, so that what it sees is what they get. */
export function launch(command: Pick<WorkerCommand, 'argv' | 'env'>, stdin: 'ignore' | 'pipe' = 'ignore'): Launched {
  const env = { ...workerEnvironment, ...command.env };
  const program = findProgram(command.argv[0] ?? '', env['PATH'] ?? workerPath);
  if (typeof program !== 'string') return failed(program.errno);
  let child: ChildProcess;
  // Forked children take over the adjustment: from its first instruction the worker is the victim, not the supervisor.
  setOomScore('1000');
  try {
    child = spawn(insidePaths.launcher, [program, ...command.argv], {
      cwd: insidePaths.workspace,
      env,
      uid: workerId,
      gid: workerId,
      detached: true,
      // Descriptor 3 closes with a successful exec; otherwise the error number comes through it.
      stdio: [stdin, 'pipe', 'pipe', 'pipe'],
    });
  } catch (error) {
    return failed((error as NodeJS.ErrnoException).code ?? 'EUNKNOWN');
  } finally {
    setOomScore('0');
  }
  return { child, ended: endOf(child) };
}

function failed(errno: string): Launched {
  return { child: undefined, ended: Promise.resolve({ kind: 'spawn-failed', errno }) };
}

function endOf(child: ChildProcess): Promise<ProcessEnd> {
  return new Promise((settle) => {
    const failure: Buffer[] = [];
    // At the descriptor limit a stream may be missing although its type says otherwise.
    const report = child.stdio?.[3] as Readable | null | undefined;
    const reported = new Promise<void>((done) => {
      if (report === null || report === undefined) {
        done();
        return;
      }
      report.on('data', (part: Buffer) => failure.push(part));
      report.on('error', () => done());
      report.on('close', () => done());
    });
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.on('error', () => {});
    child.once('error', (error: NodeJS.ErrnoException) =>
      settle({ kind: 'spawn-failed', errno: error.code ?? 'EUNKNOWN' }),
    );
    child.once('exit', (code, signal) => {
      void Promise.race([reported, after(drainMs)]).then(() => {
        const errno = Buffer.concat(failure)[0];
        if (errno !== undefined) settle({ kind: 'spawn-failed', errno: errnoName(errno) });
        else if (signal !== null) settle({ kind: 'signal', signal });
        else if (code !== null) settle({ kind: 'exit', code });
        else settle({ kind: 'unknown', reason: 'no exit status' });
      });
    });
  });
}

/** Waits until the pipes of a dead process have been read, bounded: somebody else may hold them. */
async function drained(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined) return;
  const streams = [child.stdout, child.stderr].filter((stream) => stream !== null && stream !== undefined);
  const closed = streams
    .filter((stream) => !stream.closed && !stream.destroyed)
    .map((stream) => new Promise<void>((done) => stream.once('close', () => done())));
  await Promise.race([Promise.all(closed), after(drainMs)]);
  for (const stream of streams) stream.destroy();
}

function after(ms: number): Promise<void> {
  return new Promise((done) => {
    setTimeout(done, ms).unref();
  });
}

/** The file to execute, found as execvp would; or the error it would give. */
function findProgram(name: string, path: string): string | { readonly errno: string } {
  if (name === '') return { errno: 'ENOENT' };
  const candidates = name.includes('/')
    ? [isAbsolute(name) ? name : resolve(insidePaths.workspace, name)]
    : path.split(':').map((folder) => join(folder, name));
  let errno = 'ENOENT';
  for (const candidate of candidates) {
    try {
      if (!statSync(candidate).isFile()) {
        errno = 'EACCES';
        continue;
      }
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EACCES') errno = 'EACCES';
    }
  }
  return { errno };
}

function setOomScore(value: string): void {
  try {
    writeFileSync('/proc/self/oom_score_adj', value);
  } catch {
    // The launcher sets it as well; the limits' read-back says whether it holds.
  }
}

const errnoNames: Readonly<Record<number, string>> = {
  1: 'EPERM',
  2: 'ENOENT',
  7: 'E2BIG',
  8: 'ENOEXEC',
  12: 'ENOMEM',
  13: 'EACCES',
  20: 'ENOTDIR',
  40: 'ELOOP',
};

function errnoName(value: number): string {
  return errnoNames[value] ?? `E${value}`;
}
