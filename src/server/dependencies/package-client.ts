import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';

/** Some hundred packages over a slow line; a client that needs longer hangs. */
const clientMs = 20 * 60_000;
/** What a client prints is for a person who looks for a fault. */
const keptOutput = 64 * 1024;

/** A program of this machine with the arguments that always come first. */
export interface PackageClient {
  readonly argv: readonly string[];
}

export interface ClientRun {
  readonly output: string;
}

/** Folders in which programs of this machine are looked for: beside the Node that runs this, then the fixed PATH. */
function programFolders(): readonly string[] {
  const own = process.versions['electron'] === undefined ? [path.dirname(process.execPath)] : [];
  return [...new Set([...own, ...(process.env['PATH'] ?? '').split(path.delimiter)])].filter((one) =>
    path.isAbsolute(one),
  );
}

async function isProgram(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** npm as a script and the Node to run it with. Throws EscrowError DependenciesUnusable where there is none. */
export async function findNpm(): Promise<PackageClient> {
  for (const folder of programFolders()) {
    const windows = process.platform === 'win32';
    const shipped = path.join(folder, 'node_modules', 'npm', 'bin', 'npm-cli.js');
    const script = await realpath(windows ? shipped : path.join(folder, 'npm')).catch(() => undefined);
    // A script of another kind (a version manager's) would look for its own configuration in a home that is empty here.
    if (script === undefined || !script.endsWith('.js')) continue;
    const node = path.join(folder, windows ? 'node.exe' : 'node');
    return { argv: [(await isProgram(node)) ? node : process.execPath, script] };
  }
  throw new EscrowError(
    'DependenciesUnusable',
    'npm is not installed where the Kernel looks for it.',
    'Install npm (it comes with Node), or set escrow.kernel.node to the Node that has one.',
    { folders: programFolders() },
  );
}

/** A Python of this machine with pip. Throws EscrowError DependenciesUnusable where there is none. */
export async function findPip(signal: AbortSignal): Promise<PackageClient> {
  const windows = process.platform === 'win32';
  for (const folder of programFolders()) {
    for (const name of ['python3', 'python']) {
      const python = path.join(folder, windows ? `${name}.exe` : name);
      if (!(await isProgram(python))) continue;
      // Isolated: neither the user's variables nor their packages count.
      const client: PackageClient = { argv: [python, '-I', '-m', 'pip'] };
      try {
        await runClient(client, ['--version'], { cwd: folder, env: {}, signal });
        return client;
      } catch (error) {
        if (EscrowError.is(error, 'Cancelled')) throw error;
      }
    }
  }
  throw new EscrowError(
    'DependenciesUnusable',
    'There is no Python with pip where the Kernel looks for it.',
    'Install pip (on Debian: apt-get install python3-pip).',
    { folders: programFolders() },
  );
}

/**
 * Runs a package client to its end, its output bounded. On abort and after the deadline its whole process group is
 * ended. Throws EscrowError Cancelled, or PreparationFailed with the end of what it printed.
 */
export async function runClient(
  client: PackageClient,
  args: readonly string[],
  options: {
    readonly cwd: string;
    /** All that it gets, besides PATH. */
    readonly env: Readonly<Record<string, string>>;
    readonly signal: AbortSignal;
  },
): Promise<ClientRun> {
  const [program = '', ...first] = client.argv;
  if (options.signal.aborted) throw cancelled();
  const child = spawn(program, [...first, ...args], {
    cwd: options.cwd,
    env: {
      PATH: [path.dirname(program), process.env['PATH'] ?? ''].join(path.delimiter),
      ...(process.platform === 'win32' ? { SystemRoot: process.env['SystemRoot'] ?? 'C:\\Windows' } : {}),
      ...(process.versions['electron'] !== undefined && program === process.execPath
        ? { ELECTRON_RUN_AS_NODE: '1' }
        : {}),
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: process.platform !== 'win32',
    windowsHide: true,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (output = `${output}${text}`.slice(-keptOutput)));
  }
  let stopped = false;
  const stop = (): void => {
    stopped = true;
    try {
      // The group: npm's own children too.
      if (child.pid !== undefined && process.platform !== 'win32') process.kill(-child.pid, 'SIGKILL');
      else child.kill('SIGKILL');
    } catch {
      // It is gone already.
    }
  };
  const deadline = setTimeout(stop, clientMs);
  options.signal.addEventListener('abort', stop, { once: true });
  try {
    const code = await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status) => resolve(status ?? 128));
    });
    if (options.signal.aborted) throw cancelled();
    if (code === 0) return { output };
    throw new EscrowError(
      'PreparationFailed',
      `${path.basename(first.at(-1) ?? program)} ${args[0] ?? ''} ended with exit code ${code}${stopped ? ' (it was ended: too slow)' : ''}: ${lastLine(output)}`,
      'See the details for what it printed, mend it, and prepare again.',
      { argv: [...client.argv, ...args], code, output: output.slice(-8192) },
    );
  } catch (error) {
    if (EscrowError.is(error)) throw error;
    throw new EscrowError(
      'PreparationFailed',
      `${program} could not be started: ${error instanceof Error ? error.message : String(error)}`,
      'Check that it is installed, and prepare again.',
      { argv: [...client.argv, ...args] },
    );
  } finally {
    clearTimeout(deadline);
    options.signal.removeEventListener('abort', stop);
  }
}

export function cancelled(): EscrowError {
  return new EscrowError('Cancelled', 'The preparation was cancelled.', 'Prepare the image again when you want it.');
}

function lastLine(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const telling = lines.findLast((line) => /error/i.test(line)) ?? lines.at(-1) ?? '';
  return telling.slice(0, 300);
}
