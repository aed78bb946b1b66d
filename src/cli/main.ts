import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { createInterface } from 'node:readline/promises';
import { findKernel, findOrStartKernel, type KernelSocket } from '../client/find-kernel.ts';
import { KernelConnection } from '../client/kernel-connection.ts';
import { restoreState } from '../client/restore-state.ts';
import { homePath } from '../protocol/home.ts';
import type { ClientHello } from '../protocol/methods.ts';
import { productVersion } from '../protocol/version.ts';
import { commands } from './commands/all.ts';
import { exitCodes } from './exit-code.ts';
import type { KernelAccess, KernelLink } from './kernel-access.ts';
import { createOutput } from './output.ts';
import { runCli } from './run.ts';
import { visibleLine } from './visible.ts';

/** Bundled, the Kernel lies beside this file; from source, in dist/. */
const kernelPath = import.meta.filename.endsWith('.ts')
  ? path.resolve(import.meta.dirname, '../../dist/kernel.cjs')
  : path.join(import.meta.dirname, 'kernel.cjs');

/** This process is one client. When it goes, what it controls is settled at once: nobody could re-attach as it. */
const hello: ClientHello = {
  kind: 'cli',
  name: `command line ${process.pid}`,
  version: productVersion,
  clientId: `cli-${randomBytes(8).toString('hex')}`,
  onClose: 'settle',
  graceMs: 0,
};

/** Opens at most one connection and closes it at the end. */
function createKernelAccess(home: string): KernelAccess & { close(): void } {
  let connection: KernelConnection | undefined;
  const link = (socket: KernelSocket): KernelLink => {
    const opened = new KernelConnection(socket);
    connection = opened;
    return {
      call: (method, params, options) => opened.call(method, params, options),
      on: (name, listener) => opened.on(name, listener),
      ended: opened.closed,
    };
  };
  return {
    get connected() {
      return connection !== undefined;
    },
    home,
    logFile: path.join(home, 'kernel.log'),
    async connect() {
      return link(await findOrStartKernel({ home, hello, kernelPath, nodePath: process.execPath, autostart: true }));
    },
    async find() {
      const socket = await findKernel({ home, hello });
      return socket === undefined ? undefined : link(socket);
    },
    restore: (folder) => restoreState({ home, folder, kernelPath, nodePath: process.execPath }),
    close: () => connection?.dispose(),
  };
}

async function main(): Promise<void> {
  const interrupted = new AbortController();
  process.on('SIGINT', () => {
    // The second Ctrl-C leaves at once; the end of the connection makes the Kernel settle what this process controls.
    if (interrupted.signal.aborted) process.exit(exitCodes.interrupted);
    process.stderr.write('\ncancelling; waiting until the end has been observed (Ctrl-C again leaves at once)\n');
    interrupted.abort();
  });
  // A reader that went away (`escrow … | head`) ends the printing, not with a stack trace.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(exitCodes.failed);
    throw error;
  });

  const kernel = createKernelAccess(homePath());
  process.exitCode = await runCli(process.argv.slice(2), {
    commands,
    version: productVersion,
    kernel,
    interrupted: interrupted.signal,
    output: (json) => createOutput({ json }),
    async confirm(question) {
      const prompt = createInterface({ input: process.stdin, output: process.stderr });
      try {
        const answer = await prompt.question(`${visibleLine(question)} [y/N] `, { signal: interrupted.signal });
        return /^y(es)?$/i.test(answer.trim());
      } catch (error) {
        if (interrupted.signal.aborted) return false;
        throw error;
      } finally {
        prompt.close();
      }
    },
  });
  kernel.close();
}

if (Number.parseInt(process.versions.node, 10) < 22) {
  process.stderr.write(
    `error: Escrow needs Node 22 or newer; this is ${process.version} [RuntimeTooOld]\n→ Run it with a newer Node.\n`,
  );
  process.exitCode = exitCodes.kernel;
} else {
  void main();
}
