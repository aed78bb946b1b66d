import * as z from 'zod';
import { ResourceSample } from '../../protocol/executor-answers.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { MonitorRecording } from './port.ts';
import { fits } from '../../protocol/shape.ts';
import { MemoryReading } from '../../protocol/attempt.ts';

/** Design 20: 8 MiB. At some 900 bytes every 2 s that is five hours; then it says that it is full, and stops. */
export const monitorBytes = 8 * 1024 * 1024;

/** Length in bytes of the JSON (8 hex digits), first 16 hex digits of its SHA-256, JSON, newline. */
const header = /^([0-9a-f]{8}) ([0-9a-f]{16}) /;
const headerBytes = 26;

/** One line of the monitor. `host` null: this machine was not asked yet, or did not tell. */
export const MonitorRecord = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('sample'),
    use: z.custom<ResourceSample>((value) => fits(ResourceSample, value)),
    host: MemoryReading.nullable(),
    /** Shortages of memory that the engine has told of so far; null or absent where it does not tell. */
    oomEvents: z.number().nullable().optional(),
  }),
  /** The bound was reached: what came after is not here. */
  z.strictObject({ kind: z.literal('full') }),
]);
export type MonitorRecord = z.infer<typeof MonitorRecord>;

/** What the samples amount to. Null is "unavailable", never 0. Bytes and microseconds. */
export interface UsePeaks {
  readonly samples: number;
  /** Highest memory of the container, by the kernel's own count where it keeps one. */
  readonly memory: number | null;
  readonly pids: number | null;
  readonly cpuUs: number | null;
  /** Of the control group. */
  readonly oomKills: number | null;
  /** Of the engine's events. Absent in older records. */
  readonly oomEvents?: number | null;
  readonly pidsRefused: number | null;
  /** Least free memory of this machine seen meanwhile. */
  readonly hostFree: number | null;
  /** Least free memory of any of its GPUs. */
  readonly gpuFree: number | null;
}

const highest = (a: number | null, b: number | null): number | null =>
  a === null ? b : b === null ? a : Math.max(a, b);
const least = (a: number | null, b: number | null): number | null => (a === null ? b : b === null ? a : Math.min(a, b));

const noPeaks: UsePeaks = {
  samples: 0,
  memory: null,
  pids: null,
  cpuUs: null,
  oomKills: null,
  oomEvents: null,
  pidsRefused: null,
  hostFree: null,
  gpuFree: null,
};

/** The record of what one sandbox used while somebody was attached: bounded, and readable however it was cut. */
export class Monitor {
  readonly #bound: number;
  readonly #readHost: () => Promise<MemoryReading | null>;
  #lines: Buffer[] = [];
  #size = 0;
  #full = false;
  #peaks: UsePeaks = noPeaks;
  #host: MemoryReading | null = null;
  #asking = false;

  /** `readHost` must not throw. It is asked once for each sample, never twice at a time. */
  constructor(readHost: () => Promise<MemoryReading | null>, bound = monitorBytes) {
    this.#readHost = readHost;
    this.#bound = bound;
  }

  get peaks(): UsePeaks {
    return this.#peaks;
  }

  /** `oomEvents`: what the engine has told of so far. */
  add(use: ResourceSample, oomEvents: number | null = null): void {
    const host = this.#host;
    this.#askHost();
    const now = this.#peaks;
    const gpus = host?.gpus?.map(({ free }) => free) ?? [];
    this.#peaks = {
      samples: now.samples + 1,
      memory: highest(now.memory, highest(use.memoryPeak, use.memoryHighest)),
      pids: highest(now.pids, use.pidsHighest),
      // Counters that only rise: the last value is the sum.
      cpuUs: highest(now.cpuUs, use.cpuUs),
      oomKills: highest(now.oomKills, use.oomKills),
      oomEvents: highest(now.oomEvents ?? null, oomEvents),
      pidsRefused: highest(now.pidsRefused, use.pidsRefused),
      hostFree: least(now.hostFree, host?.hostFree ?? null),
      gpuFree: gpus.length === 0 ? now.gpuFree : least(now.gpuFree, Math.min(...gpus)),
    };
    if (this.#full) return;
    const line = encode({ kind: 'sample', use, host, oomEvents });
    const last = encode({ kind: 'full' });
    if (this.#size + line.length + last.length > this.#bound) {
      this.#full = true;
      this.#keep(last);
    } else this.#keep(line);
  }

  /** Everything recorded so far; at most the bound. */
  bytes(): Buffer {
    return Buffer.concat(this.#lines, this.#size);
  }

  /** Everything so far, and what it amounts to. */
  recording(): MonitorRecording {
    return { bytes: this.bytes(), peaks: this.#peaks };
  }

  #keep(line: Buffer): void {
    this.#lines.push(line);
    this.#size += line.length;
    if (this.#lines.length > 256) this.#lines = [Buffer.concat(this.#lines, this.#size)];
  }

  #askHost(): void {
    if (this.#asking) return;
    this.#asking = true;
    void this.#readHost().then((host) => {
      this.#host = host;
      this.#asking = false;
    });
  }
}

function encode(record: MonitorRecord): Buffer {
  const json = Buffer.from(JSON.stringify(record));
  const length = json.length.toString(16).padStart(8, '0');
  return Buffer.concat([Buffer.from(`${length} ${sha256(json).slice(0, 16)} `), json, Buffer.from('\n')]);
}

/**
 * The records of a monitor up to the first that is cut, changed or unknown; `whole` says that there is none. Never
 * throws.
 */
export function readMonitor(bytes: Uint8Array): {
  readonly records: readonly MonitorRecord[];
  readonly whole: boolean;
} {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const records: MonitorRecord[] = [];
  for (let offset = 0; offset < all.length;) {
    const match = header.exec(all.subarray(offset, offset + headerBytes).toString('latin1'));
    const length = Number.parseInt(match?.[1] ?? '', 16);
    const json = all.subarray(offset + headerBytes, offset + headerBytes + length);
    const end = offset + headerBytes + length;
    if (match === null || json.length !== length || all[end] !== 0x0a) return { records, whole: false };
    if (sha256(json).slice(0, 16) !== match[2]) return { records, whole: false };
    const parsed = parse(json.toString('utf8'));
    if (parsed === undefined) return { records, whole: false };
    records.push(parsed);
    offset = end + 1;
  }
  return { records, whole: true };
}

function parse(text: string): MonitorRecord | undefined {
  try {
    const parsed = MonitorRecord.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}
