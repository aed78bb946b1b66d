import path from 'node:path';
import { homePath } from '../protocol/home.ts';
import { readyDescriptorVariable } from '../protocol/startup.ts';
import { reportFailure, runtimeFault, runToExit } from './kernel-process.ts';
import { createKernel } from './kernel.ts';

/** Bundled, this file lies in the folder of the bundles; from source, they are two folders up. */
function bundleFolder(entry: string): string {
  const folder = path.dirname(path.resolve(entry));
  return entry.endsWith('.ts') ? path.resolve(folder, '../../dist') : folder;
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
  runToExit({ home: homePath(env), distDir, env }, createKernel);
}

main();
