import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import path from 'node:path';
import { processStart } from '../../../src/protocol/process-identity.ts';

/** Something that must not outlive the test run: a process with its children, the Kernel of a home, a mount, a folder. */
export type Guarded =
  | { readonly kind: 'process'; readonly pid: number; readonly start: string | null }
  | { readonly kind: 'home'; readonly folder: string }
  | { readonly kind: 'mount'; readonly folder: string }
  | { readonly kind: 'folder'; readonly folder: string };

export type GuardMessage =
  | { readonly what: 'keep'; readonly id: string; readonly entry: Guarded }
  | { readonly what: 'release'; readonly id: string };

let pipe: Writable | undefined;
let next = 1;

function tell(message: GuardMessage): void {
  if (pipe === undefined) {
    const guard = spawn(process.execPath, [path.join(import.meta.dirname, 'guard-process.ts')], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    guard.unref();
    pipe = guard.stdin;
    // A guard that died guards nothing; the run itself goes on.
    pipe.on('error', () => undefined);
  }
  pipe.write(`${JSON.stringify(message)}\n`);
}

/**
 * From now on the entry is ended also when this run dies by a signal, which lets no `finally` run: another process
 * holds the other end of a pipe and acts when it closes. Returns the function that gives the entry free again, for
 * when it was ended in the usual way.
 */
function guard(entry: Guarded): () => void {
  const id = String(next++);
  tell({ what: 'keep', id, entry });
  return () => tell({ what: 'release', id });
}

/** Guards a process and its children. */
export async function guardProcess(pid: number): Promise<() => void> {
  return guard({ kind: 'process', pid, start: (await processStart(pid)) ?? null });
}

/** Guards whichever Kernel has the home. */
export function guardHome(folder: string): () => void {
  return guard({ kind: 'home', folder });
}

/** Guards a mounted file system, and the folder that it is mounted on. */
export function guardMount(folder: string): () => void {
  return guard({ kind: 'mount', folder });
}

export function guardFolder(folder: string): () => void {
  return guard({ kind: 'folder', folder });
}
