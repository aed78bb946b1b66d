import { spawn, type SpawnOptions } from 'node:child_process';

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
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const child = spawn(program, args, { ...options, stdio: ['ignore', 2, 2] });
  const end = (signal: NodeJS.Signals): void => {
    // By then nobody listens, so that the signal does what it does.
    child.once('close', () => process.kill(process.pid, signal));
    child.kill(signal);
  };
  process.once('SIGTERM', end);
  child.on('error', reject);
  child.prependListener('close', (code: number | null) => {
    process.off('SIGTERM', end);
    resolve(code ?? 128);
  });
  return promise;
}
