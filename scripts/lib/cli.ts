import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import path from 'node:path';
import { dist } from './root.ts';

/** What one command of the built command line gave. */
export interface CliResult {
  readonly code: number | null;
  /** The last line of stdout, parsed. */
  readonly value: unknown;
  readonly stderr: string;
  readonly ms: number;
}

/** Runs the built command line with `--json`, as a script of a user would. Each line before the last goes to `onLine`. */
export async function escrow(
  args: readonly string[],
  options: { readonly cwd: string; readonly home: string; readonly onLine?: (value: unknown) => void },
): Promise<CliResult> {
  const started = performance.now();
  const child = spawn(process.execPath, [path.join(dist, 'cli.cjs'), ...args, '--json'], {
    cwd: options.cwd,
    env: { ...process.env, ESCROW_HOME: options.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.on('error', reject);
  child.on('close', resolve);
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString('utf8')));
  let last: unknown = null;
  let any = false;
  for await (const line of createInterface({ input: child.stdout })) {
    if (any) options.onLine?.(last);
    last = JSON.parse(line) as unknown;
    any = true;
  }
  return { code: await promise, value: last, stderr, ms: performance.now() - started };
}
