import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';

/**
 * The kernel's count of processes of one container that it ended for lack of memory, read by this machine and not by
 * anybody in the container or in the engine. It goes with the control group, so the moment of a read matters.
 */
export interface HostCounter {
  /** Null where it can't be read, or not any more. Never throws. */
  read(): number | null;
}

/**
 * The counter of the container that `pid` belongs to. Null where this machine does not have it: the engine is elsewhere
 * (the control group of that process then is not one of this container), or its control groups are not seen from here.
 */
export async function hostCounter(
  pid: number,
  engineId: string,
  files: { readonly proc: string; readonly cgroups: string } = { proc: '/proc', cgroups: '/sys/fs/cgroup' },
): Promise<HostCounter | null> {
  const text = pid > 0 ? await readFile(`${files.proc}/${pid}/cgroup`, 'utf8').catch(() => '') : '';
  const path = counterPath(text, engineId);
  if (path === null) return null;
  const read = (): number | null => {
    try {
      const count = /^oom_kill (\d{1,15})$/m.exec(readFileSync(`${files.cgroups}/${path}`, 'latin1'))?.[1];
      return count === undefined ? null : Number(count);
    } catch {
      return null;
    }
  };
  return read() === null ? null : { read };
}

/** From the lines `number:controllers:path` of /proc/<pid>/cgroup: v1 where memory has a hierarchy of its own, else v2. */
function counterPath(text: string, engineId: string): string | null {
  const groups = text.split('\n').map((line) => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    return { controllers: controllers.split(','), path };
  });
  // Docker and Podman put the container's id into the path; another process of the same number has not.
  const ours = groups.filter(({ path }) => path.includes(engineId) && !path.includes('/../'));
  const first = ours.find(({ controllers }) => controllers.includes('memory'));
  if (first !== undefined) return `memory${first.path}/memory.oom_control`;
  const second = ours.find(({ controllers }) => controllers.join('') === '');
  return second === undefined ? null : `${second.path.slice(1)}/memory.events`;
}
