import path from 'node:path';
import { EscrowError } from '../protocol/errors.ts';
import { homePath } from '../protocol/home.ts';
import { reportFailure, runToExit } from './kernel-process.ts';
import { createKernel } from './kernel.ts';

/** Node-API version and language level of the Kernel's parts (better-sqlite3 crashes on Node 20). */
const oldestNode = 22;

/** Bundled, this file lies in the folder of the bundles; from source, they are two folders up. */
function bundleFolder(entry: string): string {
  const folder = path.dirname(path.resolve(entry));
  return entry.endsWith('.ts') ? path.resolve(folder, '../../dist') : folder;
}

function main(): void {
  // Needed only to start under VS Code's own runtime; children must not become Node by it.
  delete process.env['ELECTRON_RUN_AS_NODE'];
  process.umask(0o077);
  const env = { ...process.env };
  if (Number.parseInt(process.versions.node, 10) < oldestNode) {
    process.exit(
      reportFailure(
        env,
        new EscrowError(
          'RuntimeTooOld',
          `The Kernel needs Node ${oldestNode} or newer; this is ${process.version}.`,
          'Set escrow.kernel.node to a newer Node.',
          { have: process.version, oldest: oldestNode },
        ),
      ),
    );
  }
  runToExit(
    { home: homePath(env), distDir: env['ESCROW_DIST_DIR'] ?? bundleFolder(process.argv[1] ?? ''), env },
    createKernel,
  );
}

main();
