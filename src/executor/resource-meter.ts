import { statfsSync } from 'node:fs';
import { insidePaths } from '../protocol/executor.ts';
import type { AreaUse, ResourceSample } from '../protocol/executor-answers.ts';
import { cgroupReader, type CgroupReader, type CgroupReading } from './cgroup.ts';

/** What is filled by whom: commands write to all but the last, the supervisor to the first and the last. */
const areaPaths = [insidePaths.workspace, insidePaths.tmp, insidePaths.home, '/dev/shm', insidePaths.exchange] as const;

/** Between looks: some ten small reads, 0.3 ms. What is higher for a shorter time is seen by the kernel's own peaks. */
const everyMs = 100;

const nothing: CgroupReading = {
  memory: null,
  memoryPeak: null,
  oomKills: null,
  cpuUs: null,
  throttledUs: null,
  pids: null,
  pidsRefused: null,
};

/** Highest values since a meter was asked last. */
interface Highest {
  memory: number | null;
  pids: number | null;
}

const higher = (a: number | null, b: number | null): number | null =>
  a === null ? b : b === null ? a : Math.max(a, b);

/**
 * Looks at what the container uses, often enough to know the peaks between two reports. A look never throws and never
 * waits: what can't be read is null.
 */
export class ResourceMeter {
  readonly #reader: CgroupReader | null;
  #window: Highest = { memory: null, pids: null };
  #watchers = new Set<Highest>();

  constructor(reader: CgroupReader | null = cgroupReader()) {
    this.#reader = reader;
    setInterval(() => this.#look(), everyMs).unref();
  }

  now(): CgroupReading {
    return this.#reader?.read() ?? nothing;
  }

  /** What is used now, and the highest since the last sample. `at` is milliseconds since this process began. */
  sample(): ResourceSample {
    const { memoryPeak, ...now } = this.#look();
    const { memory, pids } = this.#window;
    this.#window = { memory: null, pids: null };
    const at = Math.round(performance.now());
    return { at, ...now, memoryPeak, memoryHighest: memory, pidsHighest: pids, areas: areaPaths.map(areaUse) };
  }

  /**
   * Watches until `end` is called: the highest memory use in between, exactly where the container's own peak rose
   * meanwhile, else as seen every 100 ms; and what was refused.
   */
  watch(): { end(): { readonly peakMemory: number | null; readonly oom: boolean; readonly pidsRefused: boolean } } {
    const before = this.now();
    const highest: Highest = { memory: before.memory, pids: before.pids };
    this.#watchers.add(highest);
    return {
      end: () => {
        const after = this.#look();
        this.#watchers.delete(highest);
        const rose = before.memoryPeak !== null && after.memoryPeak !== null && after.memoryPeak > before.memoryPeak;
        return {
          peakMemory: rose ? after.memoryPeak : highest.memory,
          oom: more(before.oomKills, after.oomKills),
          pidsRefused: more(before.pidsRefused, after.pidsRefused),
        };
      },
    };
  }

  #look(): CgroupReading {
    const now = this.now();
    for (const highest of [this.#window, ...this.#watchers]) {
      highest.memory = higher(highest.memory, now.memory);
      highest.pids = higher(highest.pids, now.pids);
    }
    return now;
  }
}

/** The area of a command that has no room left: fewer free bytes than one page, or no inode. Null where all have some. */
export function fullArea(): string | null {
  for (const path of areaPaths.slice(0, 4)) {
    const { size, used, inodes, inodesUsed } = areaUse(path);
    if (size === null || used === null || inodes === null || inodesUsed === null) continue;
    if (size - used < 4096 || inodes - inodesUsed < 1) return path;
  }
  return null;
}

function areaUse(path: string): AreaUse {
  try {
    const { blocks, bfree, bsize, files, ffree } = statfsSync(path);
    return { path, size: blocks * bsize, used: (blocks - bfree) * bsize, inodes: files, inodesUsed: files - ffree };
  } catch {
    return { path, size: null, used: null, inodes: null, inodesUsed: null };
  }
}

function more(before: number | null, after: number | null): boolean {
  return before !== null && after !== null && after > before;
}
