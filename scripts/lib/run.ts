import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { root } from './root.ts';

export interface Ran {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end, its output captured whole. Rejects only when it could not be started. */
export function run(program: string, args: readonly string[], options: SpawnOptions = {}): Promise<Ran> {
  const { promise, resolve, reject } = Promise.withResolvers<Ran>();
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => err.push(chunk));
  child.on('error', reject);
  child.on('close', (code, signal) =>
    resolve({ code, signal, stdout: Buffer.concat(out).toString('utf8'), stderr: Buffer.concat(err).toString('utf8') }),
  );
  return promise;
}

/**
 * Runs a program whose output goes to our stderr as it comes; resolves to its exit code (128 + n for a signal). A
 * SIGTERM to this process ends the program first: it would go on by itself.
 */
export function runShown(program: string, args: readonly string[], options: SpawnOptions = {}): Promise<number> {
  return ended(spawn(program, args, { ...options, stdio: ['ignore', 2, 2] }));
}

/** What the programs of the last set-up said, the whole of it; tests have one of their own. */
const keptLog = process.env['ESCROW_SET_UP_LOG'] ?? path.join(root, '.cache', 'set-up.log');
/** Characters of a failed program's output that are shown: where it says what went wrong. */
const shownEnd = 4000;
let begun: Promise<void> | undefined;

/**
 * Runs a program that works beside others, so that its output would mix with theirs: it goes into `keptLog` when the
 * program ends, and its end to stderr where it failed. Resolves to its exit code (128 + n for a signal). SIGTERM as for
 * `runShown`.
 */
export async function runKept(program: string, args: readonly string[], options: SpawnOptions = {}): Promise<number> {
  begun ??= mkdir(path.dirname(keptLog), { recursive: true }).then(() => writeFile(keptLog, ''));
  await begun;
  const { code, output } = await runGathered(program, args, options);
  await appendFile(keptLog, `$ ${[program, ...args].join(' ')}\n${output.trimEnd()}\n→ ${code}\n\n`);
  if (code !== 0) process.stderr.write(`${output.slice(-shownEnd).trimEnd()}\n(the whole of it: ${keptLog})\n`);
  return code;
}

/** Runs a program to its end; both of its outputs as one text, in the order in which they came. SIGTERM as for `runShown`. */
export async function runGathered(
  program: string,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<{ readonly code: number; readonly output: string }> {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const parts: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => parts.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => parts.push(chunk));
  return { code: await ended(child), output: Buffer.concat(parts).toString('utf8') };
}

function ended(child: ChildProcess): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const end = (signal: NodeJS.Signals): void => {
    // By then nobody listens, so that the signal does what it does.
    child.once('close', () => process.kill(process.pid, signal));
    child.kill(signal);
  };
  process.once('SIGTERM', end);
  child.on('error', (error) => {
    process.off('SIGTERM', end);
    reject(error);
  });
  child.prependListener('close', (code: number | null) => {
    process.off('SIGTERM', end);
    resolve(code ?? 128);
  });
  return promise;
}
