import { readFileSync } from 'node:fs';

const root = '/sys/fs/cgroup';

/** 2 with the unified hierarchy, 1 with a memory controller of its own, null where neither is mounted. */
export function cgroupVersion(): 1 | 2 | null {
  if (readText(`${root}/cgroup.controllers`) !== null) return 2;
  if (readText(`${root}/memory/memory.limit_in_bytes`) !== null) return 1;
  return null;
}

/** How many processes of this container the kernel has ended for lack of memory; null where it does not say. */
export function oomKills(): number | null {
  const text = readText(`${root}/memory.events`) ?? readText(`${root}/memory/memory.oom_control`);
  const value = text === null ? undefined : /^oom_kill (\d+)$/m.exec(text)?.[1];
  return value === undefined ? null : Number(value);
}

/** The container's highest memory use so far in bytes, its tmpfs included; null where the kernel does not say. */
export function peakMemory(): number | null {
  const text = readText(`${root}/memory.peak`) ?? readText(`${root}/memory/memory.max_usage_in_bytes`);
  return text === null || !/^\d+\s*$/.test(text) ? null : Number(text);
}

/** The limits as the kernel states them, unparsed. CPU as `quota period` in microseconds. */
export function cgroupLimits(): {
  readonly memory: string | null;
  readonly memoryAndSwap: string | null;
  readonly pids: string | null;
  readonly cpu: string | null;
} {
  if (cgroupVersion() === 2) {
    return {
      memory: readText(`${root}/memory.max`),
      memoryAndSwap: readText(`${root}/memory.swap.max`),
      pids: readText(`${root}/pids.max`),
      cpu: readText(`${root}/cpu.max`),
    };
  }
  const quota = readText(`${root}/cpu/cpu.cfs_quota_us`);
  const period = readText(`${root}/cpu/cpu.cfs_period_us`);
  return {
    memory: readText(`${root}/memory/memory.limit_in_bytes`),
    memoryAndSwap: readText(`${root}/memory/memory.memsw.limit_in_bytes`),
    pids: readText(`${root}/pids/pids.max`),
    cpu: quota === null || period === null ? null : `${quota} ${period}`,
  };
}

/** A small file's text without surrounding white space; null where it can't be read. */
export function readText(path: string): string | null {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return null;
  }
}
