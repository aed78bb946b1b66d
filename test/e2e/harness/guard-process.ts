// The other end of guard.ts: when the pipe from the test run ends, whatever is still named goes. A process of its own,
// in a session of its own: it is there after the run was killed.
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { createInterface } from 'node:readline';
import { endKernel } from '../../fixtures/kernel.ts';
import { processState } from '../../../src/protocol/process-identity.ts';
import type { Guarded, GuardMessage } from './guard.ts';
import { family } from './processes.ts';
import { until } from './until.ts';

const guarded = new Map<string, Guarded>();

async function endProcess(pid: number, start: string | null): Promise<void> {
  if ((await processState(pid, start)) === 'dead') return;
  // Without a Kernel that a window started: it is ended as what it is.
  const all = await family(pid);
  const signal = (name: NodeJS.Signals): void => {
    for (const one of all) {
      try {
        process.kill(one, name);
      } catch {
        // Gone already.
      }
    }
  };
  // One that was stopped takes no other signal.
  signal('SIGCONT');
  signal('SIGKILL');
  await until('it is gone', 10_000, async () => ((await processState(pid, start)) === 'dead' ? true : undefined));
}

async function end(entry: Guarded): Promise<void> {
  switch (entry.kind) {
    case 'process':
      return endProcess(entry.pid, entry.start);
    case 'home':
      // A Kernel that is told to end settles what runs first: no container stays.
      return endKernel(entry.folder);
    case 'mount':
      // Lazily: it goes when the last of its users has gone.
      await promisify(execFile)('umount', ['-l', entry.folder]);
      return rm(entry.folder, { recursive: true, force: true });
    case 'folder':
      return rm(entry.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    default:
      entry satisfies never;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line) as GuardMessage;
  if (message.what === 'keep') guarded.set(message.id, message.entry);
  else guarded.delete(message.id);
}

// In this order: a window would start its Kernel again, and a Kernel needs its folder.
for (const kind of ['process', 'home', 'mount', 'folder'] as const) {
  const entries = [...guarded.values()].filter((entry) => entry.kind === kind);
  await Promise.allSettled(entries.map(end));
}
