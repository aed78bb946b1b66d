import { readFileSync } from 'node:fs';

/** Where the control groups are mounted in a container. */
export const cgroupRoot = '/sys/fs/cgroup';

/** What a control group says of itself at one moment. Null: this kernel does not tell, or it could not be read. */
export interface CgroupReading {
  /** Bytes in use now, the container's tmpfs included. */
  readonly memory: number | null;
  /** Highest use so far in bytes. */
  readonly memoryPeak: number | null;
  /** Processes that the kernel has ended for lack of memory. */
  readonly oomKills: number | null;
  /** Processor time used so far in microseconds. */
  readonly cpuUs: number | null;
  /** Time in microseconds for which the CPU limit has held it up. */
  readonly throttledUs: number | null;
  /** Processes and threads now. */
  readonly pids: number | null;
  /** How often the process limit has refused a new one. */
  readonly pidsRefused: number | null;
}

/** The limits as the kernel states them, unparsed. CPU as `quota period` in microseconds. */
export interface CgroupLimits {
  readonly memory: string | null;
  readonly memoryAndSwap: string | null;
  readonly pids: string | null;
  readonly cpu: string | null;
}

/** One hierarchy's way to tell the same facts. */
export interface CgroupReader {
  readonly version: 1 | 2;
  read(): CgroupReading;
  limits(): CgroupLimits;
}

/**
 * The reader for what is mounted under `root`: v2 with the unified hierarchy, v1 where the memory controller has a
 * folder of its own (hybrid mounts included), null where neither is there.
 */
export function cgroupReader(root: string = cgroupRoot): CgroupReader | null {
  if (readText(`${root}/cgroup.controllers`) !== null) return version2(root);
  if (readText(`${root}/memory/memory.limit_in_bytes`) !== null) return version1(root);
  return null;
}

function version2(root: string): CgroupReader {
  const text = (name: string) => readText(`${root}/${name}`);
  return {
    version: 2,
    read: () => {
      const cpu = text('cpu.stat');
      return {
        memory: numberIn(text('memory.current')),
        memoryPeak: numberIn(text('memory.peak')),
        oomKills: fieldIn(text('memory.events'), 'oom_kill'),
        cpuUs: fieldIn(cpu, 'usage_usec'),
        throttledUs: fieldIn(cpu, 'throttled_usec'),
        pids: numberIn(text('pids.current')),
        pidsRefused: fieldIn(text('pids.events'), 'max'),
      };
    },
    limits: () => ({
      memory: text('memory.max'),
      memoryAndSwap: text('memory.swap.max'),
      pids: text('pids.max'),
      cpu: text('cpu.max'),
    }),
  };
}

function version1(root: string): CgroupReader {
  const text = (name: string) => readText(`${root}/${name}`);
  /** Nanoseconds there, microseconds in v2. */
  const micro = (value: number | null) => (value === null ? null : Math.round(value / 1000));
  return {
    version: 1,
    read: () => ({
      memory: numberIn(text('memory/memory.usage_in_bytes')),
      memoryPeak: numberIn(text('memory/memory.max_usage_in_bytes')),
      oomKills: fieldIn(text('memory/memory.oom_control'), 'oom_kill'),
      cpuUs: micro(numberIn(text('cpuacct/cpuacct.usage'))),
      throttledUs: micro(fieldIn(text('cpu/cpu.stat'), 'throttled_time')),
      pids: numberIn(text('pids/pids.current')),
      pidsRefused: fieldIn(text('pids/pids.events'), 'max'),
    }),
    limits: () => {
      const quota = text('cpu/cpu.cfs_quota_us');
      const period = text('cpu/cpu.cfs_period_us');
      return {
        memory: text('memory/memory.limit_in_bytes'),
        memoryAndSwap: text('memory/memory.memsw.limit_in_bytes'),
        pids: text('pids/pids.max'),
        cpu: quota === null || period === null ? null : `${quota} ${period}`,
      };
    },
  };
}

/** A file that is one whole number; null for anything else (`max` is no number). */
function numberIn(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

/** The number after a name in lines of `name number`. */
function fieldIn(text: string | null, name: string): number | null {
  const line = text?.split('\n').find((one) => one.startsWith(`${name} `));
  return line === undefined ? null : numberIn(line.slice(name.length + 1).trim());
}

/** A small file's text without surrounding white space; null where it can't be read. */
export function readText(path: string): string | null {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return null;
  }
}
