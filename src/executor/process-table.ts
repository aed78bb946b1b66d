import { readdirSync, readFileSync } from 'node:fs';
import { workerId } from '../protocol/executor.ts';

/** Two scans in a row must be empty; 5 s is far beyond the 54 ms measured for a respawning bomb (facts/feasibility). */
const patienceMs = 5_000;
const betweenScansMs = 3;

export interface Swept {
  /** Two scans in a row found no process of the worker's uid. */
  readonly empty: boolean;
  /** Processes that the first scan found. */
  readonly found: number;
  readonly ms: number;
}

/**
 * Ends every process but this one and PID 1, again and again until two scans of the process table in a row are without
 * a process of the worker. `kill(-1)` is one system call that no fork can outrun; a loop over pids can be outrun.
 */
export async function sweepWorkers(): Promise<Swept> {
  const started = performance.now();
  const found = workerProcesses();
  let emptyScans = found === 0 ? 1 : 0;
  for (;;) {
    killAll();
    emptyScans = workerProcesses() === 0 ? emptyScans + 1 : 0;
    const ms = performance.now() - started;
    if (emptyScans >= 2) return { empty: true, found, ms };
    if (ms > patienceMs) return { empty: false, found, ms };
    await new Promise((resolve) => setTimeout(resolve, betweenScansMs));
  }
}

/** How many processes of the worker's uid there are. Zombies count: their parent or PID 1 has still to take them. */
export function workerProcesses(): number {
  let names: readonly string[];
  try {
    names = readdirSync('/proc');
  } catch {
    // What can't be seen is not known to be gone.
    return 1;
  }
  return names.filter((name) => /^\d+$/.test(name) && belongsToWorker(name)).length;
}

/** The supervisor as another process of root sees it: init's only child that is root's. Undefined where none is found. */
export function supervisorProcess(): number | undefined {
  const found = readdirSync('/proc').find((name) => {
    if (!/^\d+$/.test(name)) return false;
    const status = statusOf(name) ?? '';
    return /^PPid:\s+1$/m.test(status) && /^Uid:\s+0\s/m.test(status);
  });
  return found === undefined ? undefined : Number(found);
}

/** Undefined where the process is gone; empty where it can't be looked at, which is not known to be gone. */
function statusOf(pid: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/status`, 'latin1');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' || code === 'ESRCH' ? undefined : '';
  }
}

/** Any of the four uids. The owner of the /proc folder would not do: it is root's for a process that can't be dumped. */
function belongsToWorker(pid: string): boolean {
  const status = statusOf(pid);
  if (status === undefined) return false;
  const uids = /^Uid:\s+(.*)$/m.exec(status)?.[1];
  return uids?.split(/\s+/).includes(String(workerId)) ?? true;
}

function killAll(): void {
  try {
    process.kill(-1, 'SIGKILL');
  } catch {
    // ESRCH: there was nobody.
  }
}
