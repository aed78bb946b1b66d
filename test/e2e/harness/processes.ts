import { readdir, readFile } from 'node:fs/promises';

export interface ProcessInfo {
  readonly pid: number;
  readonly parent: number;
  /** Id of its session: a detached process has one of its own, also while its parent lives. */
  readonly session: number;
  readonly command: string;
}

/** Every process that `/proc` shows; one that ends meanwhile is left out. */
export async function processes(): Promise<readonly ProcessInfo[]> {
  const found: ProcessInfo[] = [];
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const [stat, command] = await Promise.all([
        readFile(`/proc/${entry}/stat`, 'utf8'),
        readFile(`/proc/${entry}/cmdline`, 'utf8'),
      ]);
      // The name in brackets may hold spaces and brackets itself: the fields begin after the last one.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (fields[0] === 'Z') continue;
      found.push({
        pid: Number(entry),
        parent: Number(fields[1]),
        session: Number(fields[3]),
        command: command.replaceAll('\0', ' ').trim(),
      });
    } catch {
      continue;
    }
  }
  return found;
}

/** A process with its descendants, apart from those that were detached: what one kill of a family would end. */
export async function family(ancestor: number): Promise<readonly number[]> {
  const own = (await processes()).find((entry) => entry.pid === ancestor)?.session;
  const attached = (await descendants(ancestor)).filter((entry) => entry.session === own);
  return [ancestor, ...attached.map((entry) => entry.pid)];
}

/** The descendants of `ancestor`, the nearest first. */
export async function descendants(ancestor: number): Promise<readonly ProcessInfo[]> {
  const all = await processes();
  const found: ProcessInfo[] = [];
  let level = new Set([ancestor]);
  while (level.size > 0) {
    const children = all.filter((entry) => level.has(entry.parent));
    found.push(...children);
    level = new Set(children.map((entry) => entry.pid));
  }
  return found;
}

/** Whether the process is there (a zombie is not). */
export async function isRunning(pid: number): Promise<boolean> {
  return (await processes()).some((entry) => entry.pid === pid);
}
