import path from 'node:path';
import { homePath } from '../protocol/home.ts';
import { readyDescriptorVariable } from '../protocol/startup.ts';
import { EscrowError } from '../protocol/errors.ts';
import { reportFailure, runRestore, runtimeFault, runToExit, type KernelProcessOptions } from './kernel-process.ts';
import { createKernel } from './kernel.ts';

/** Bundled, this file lies in the folder of the bundles; from source, they are two folders up. */
function bundleFolder(entry: string): string {
  const folder = path.dirname(path.resolve(entry));
  return entry.endsWith('.ts') ? path.resolve(folder, '../../dist') : folder;
}

/** `kernel.cjs restore FOLDER`, for the command line: one line of JSON on stdout, an exit code as of a failed start. */
async function restore(options: KernelProcessOptions, folder: string): Promise<void> {
  try {
    process.stdout.write(`${JSON.stringify({ restored: await runRestore(options, folder) })}\n`);
  } catch (error) {
    if (EscrowError.is(error)) {
      process.stdout.write(`${JSON.stringify({ message: error.message, error: error.toData() })}\n`);
    }
    process.exitCode = reportFailure(options.env, error);
  }
}

function main(): void {
  const env = { ...process.env };
  // What was meant for this process alone: its children must neither become Node by it nor report on our descriptor.
  delete process.env['ELECTRON_RUN_AS_NODE'];
  delete process.env[readyDescriptorVariable];
  process.umask(0o077);
  const fault = runtimeFault(process.versions.node);
  if (fault !== undefined) process.exit(reportFailure(env, fault));
  const distDir = env['ESCROW_DIST_DIR'] ?? bundleFolder(process.argv[1] ?? '');
  const options = { home: homePath(env), distDir, env };
  const [verb, folder] = process.argv.slice(2);
  if (verb === 'restore' && folder !== undefined) void restore(options, folder);
  else runToExit(options, createKernel);
}

main();
