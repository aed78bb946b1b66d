import { execFile } from 'node:child_process';
import { cpus, freemem, totalmem } from 'node:os';
import { promisify } from 'node:util';
import type { WallTime } from '../../protocol/primitives.ts';
import type { MemoryReading } from '../../protocol/attempt.ts';
import type { ModelFit } from '../../protocol/status.ts';
import { Fault } from './fault.ts';

const run = promisify(execFile);

/** Looks at the memory of this machine. Never throws; what is not told is null. */
export interface MemoryProbe {
  read(): Promise<MemoryReading>;
}

/** Milliseconds that the driver's tool may take. */
const toolMs = 5000;
/** A machine without the tool is not asked again for this long. */
const absentMs = 300_000;

/** Free host memory from the kernel (what can be had without swapping), GPU memory from NVIDIA's own tool on PATH. */
export function createMemoryProbe(deps: {
  readonly now: () => WallTime;
  readonly env: Readonly<Record<string, string | undefined>>;
}): MemoryProbe {
  let absentSince: number | null = null;
  const gpus = async (): Promise<MemoryReading['gpus']> => {
    if (absentSince !== null && deps.now() - absentSince < absentMs) return null;
    try {
      const { stdout } = await run(
        'nvidia-smi',
        ['--query-gpu=name,driver_version,memory.total,memory.free', '--format=csv,noheader,nounits'],
        { timeout: toolMs, maxBuffer: 65_536, env: { ...deps.env } },
      );
      absentSince = null;
      return parseGpus(stdout);
    } catch {
      absentSince = deps.now();
      return null;
    }
  };
  return {
    async read() {
      const told = await gpus();
      return { at: deps.now(), hostTotal: totalmem(), hostFree: freemem(), gpus: told };
    },
  };
}

/** Lines of `name, driver, total MiB, free MiB`; null where none is one. Pure. */
export function parseGpus(text: string): MemoryReading['gpus'] {
  const found = text
    .split('\n')
    .map((line) => line.split(',').map((part) => part.trim()))
    .flatMap(([name, driver, total, free]) => {
      if (name === undefined || driver === undefined || !/^\d+$/.test(total ?? '') || !/^\d+$/.test(free ?? ''))
        return [];
      return [
        {
          name: name.slice(0, 100),
          driver: driver.slice(0, 40),
          total: Number(total) * 1_048_576,
          free: Number(free) * 1_048_576,
        },
      ];
    });
  return found.length === 0 ? null : found;
}

/** Shares of memory that may be in use; null: not watched. */
export interface MemoryCeilings {
  readonly host: number | null;
  readonly gpu: number | null;
}

const share = (free: number, total: number): number => (total <= 0 ? 0 : 1 - free / total);
const percent = (value: number): string => `${Math.round(value * 1000) / 10} %`;

/** Names the ceiling that a reading is at, or null. Pure. */
export function ceilingReached(
  reading: MemoryReading,
  ceilings: MemoryCeilings,
): { readonly code: 'host_memory_ceiling' | 'gpu_memory_ceiling'; readonly detail: string } | null {
  const host = share(reading.hostFree, reading.hostTotal);
  if (ceilings.host !== null && host >= ceilings.host)
    return {
      code: 'host_memory_ceiling',
      detail: `${percent(host)} of this machine's memory is in use, the ceiling is ${percent(ceilings.host)}`,
    };
  const { gpu: ceiling } = ceilings;
  if (ceiling === null) return null;
  const full = (reading.gpus ?? []).find((g) => share(g.free, g.total) >= ceiling);
  return full === undefined
    ? null
    : {
        code: 'gpu_memory_ceiling',
        detail: `${percent(share(full.free, full.total))} of the memory of ${full.name} is in use, the ceiling is ${percent(ceiling)}`,
      };
}

/** Free GPU memory over all devices, or null where it is not told. */
export function gpuFree(reading: MemoryReading): number | null {
  return reading.gpus === null ? null : reading.gpus.reduce((sum, g) => sum + g.free, 0);
}

/**
 * Whether weights of this size fit what is free now. The cache for the context comes on top and is not told by any
 * engine, so `fits_…` says "can be loaded", not "will be fast". Pure.
 */
export function modelFit(sizeBytes: number | null, reading: MemoryReading | null): ModelFit {
  const gpu = reading === null ? null : gpuFree(reading);
  const base = { needBytes: sizeBytes, hostFree: reading?.hostFree ?? null, gpuFree: gpu };
  if (sizeBytes === null || reading === null) return { state: 'unknown', ...base };
  if (gpu !== null && gpu >= sizeBytes) return { state: 'fits_gpu', ...base };
  return { state: reading.hostFree + (gpu ?? 0) >= sizeBytes ? 'fits_host' : 'too_large', ...base };
}

/** The name of what computes when nothing lies on a GPU. */
export function cpuName(): string | null {
  const name = cpus()[0]?.model.trim() ?? '';
  return name === '' ? null : name;
}

/** Milliseconds between looks while a request runs; the tool of a driver takes some 50 ms of one core. */
const watchEveryMs = 1000;

/** Watches memory until stopped. `onReached` is called once, with what to abort the request with. */
export function watchMemory(
  probe: MemoryProbe,
  ceilings: MemoryCeilings,
  phase: () => 'loading' | 'running',
  on: { reading(reading: MemoryReading): void; reached(fault: Fault): void },
  everyMs = watchEveryMs,
): { stop(): void } {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  const look = async (): Promise<void> => {
    const reading = await probe.read();
    if (stopped) return;
    on.reading(reading);
    const reached = ceilingReached(reading, ceilings);
    if (reached !== null) {
      stopped = true;
      on.reached(new Fault('resource', reached.code, `stopped while ${phase()}: ${reached.detail}`));
      return;
    }
    timer = setTimeout(() => void look(), everyMs);
  };
  timer = setTimeout(() => void look(), everyMs);
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
