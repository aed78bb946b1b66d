import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { MemoryReading } from '../../../src/protocol/attempt.ts';
import type { Fault } from '../../../src/server/inference/fault.ts';
import {
  ceilingReached,
  createMemoryProbe,
  modelFit,
  parseGpus,
  watchMemory,
} from '../../../src/server/inference/memory.ts';

const GiB = 1024 ** 3;
const reading = (hostFree: number, gpuFree: number | null = null): MemoryReading => ({
  at: 0,
  hostTotal: 32 * GiB,
  hostFree: hostFree * GiB,
  gpus: gpuFree === null ? null : [{ name: 'RTX', driver: '550', total: 8 * GiB, free: gpuFree * GiB }],
});

describe('memory of this machine', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'smi-'));
  });
  afterEach(async () => rm(folder, { recursive: true }));

  /** A stand-in for NVIDIA's tool, on a PATH of its own. */
  const standIn = async (script: string): Promise<void> => {
    await writeFile(join(folder, 'nvidia-smi'), `#!/bin/sh\n${script}\n`);
    await chmod(join(folder, 'nvidia-smi'), 0o755);
  };
  const probe = () => createMemoryProbe({ now: () => 7, env: { PATH: `${folder}:/bin:/usr/bin` } });

  test('GPUs as the driver tells them, asked for exactly what is read', async () => {
    await standIn(
      'echo "$*" >"$(dirname "$0")/asked"\necho "NVIDIA RTX 4060, 550.54, 8188, 7000"\necho "NVIDIA A2, 550.54, 15356, 15000"',
    );
    const seen = await probe().read();
    expect(seen.at).toBe(7);
    expect(seen.hostFree).toBeGreaterThan(0);
    expect(seen.hostFree).toBeLessThanOrEqual(seen.hostTotal);
    expect(seen.gpus).toEqual([
      { name: 'NVIDIA RTX 4060', driver: '550.54', total: 8188 * 1_048_576, free: 7000 * 1_048_576 },
      { name: 'NVIDIA A2', driver: '550.54', total: 15_356 * 1_048_576, free: 15_000 * 1_048_576 },
    ]);
  });

  test.each([
    ['no tool', null],
    ['a tool that fails', 'exit 9'],
    ['a tool that says something else', 'echo "No devices were found"'],
  ])('%s: not told, and no error', async (_name, script) => {
    if (script !== null) await standIn(script);
    expect((await probe().read()).gpus).toBeNull();
  });

  test('hostile lines are skipped', () => {
    expect(parseGpus('a\n,,,\nx, y, -1, 5\n1, 2, 3, 4, 5\n')).toEqual([
      { name: '1', driver: '2', total: 3 * 1_048_576, free: 4 * 1_048_576 },
    ]);
  });
});

describe('ceilings', () => {
  test('of the host and of each GPU, by name and figure', () => {
    const both = { host: 0.9, gpu: 0.9 };
    expect(ceilingReached(reading(16, 4), both)).toBeNull();
    expect(ceilingReached(reading(2, 4), both)).toEqual({
      code: 'host_memory_ceiling',
      detail: "93.8 % of this machine's memory is in use, the ceiling is 90 %",
    });
    expect(ceilingReached(reading(16, 0.5), both)?.code).toBe('gpu_memory_ceiling');
    expect(ceilingReached(reading(0, 0), { host: null, gpu: null })).toBeNull();
    expect(ceilingReached(reading(16), both)).toBeNull();
  });

  test('a watch ends the request once, says whether it was loading or running, and keeps the least it saw', async () => {
    const free = [16, 9, 1, 0.5];
    const seen: number[] = [];
    let times = 0;
    const reached = await new Promise<Fault>((resolve) => {
      watchMemory(
        { read: () => Promise.resolve(reading(free.shift() ?? 0)) },
        { host: 0.95, gpu: null },
        () => 'loading',
        {
          reading: (r) => seen.push(r.hostFree / GiB),
          reached: (fault) => {
            times += 1;
            if (times === 1) resolve(fault);
          },
        },
        1,
      );
    });
    expect({ kind: reached.kind, code: reached.code }).toEqual({ kind: 'resource', code: 'host_memory_ceiling' });
    expect(reached.message).toContain('stopped while loading');
    expect(seen).toEqual([16, 9, 1]);
    expect(times).toBe(1);
  });
});

describe('whether weights fit', () => {
  test.each([
    [4 * GiB, reading(16, 6), 'fits_gpu'],
    [4 * GiB, reading(16, 2), 'fits_host'],
    [17 * GiB, reading(16, 2), 'fits_host'],
    [19 * GiB, reading(16, 2), 'too_large'],
    [4 * GiB, reading(3), 'too_large'],
    [null, reading(3), 'unknown'],
    [4 * GiB, null, 'unknown'],
  ] as const)('%d bytes', (size, memory, state) => {
    expect(modelFit(size, memory).state).toBe(state);
  });
});
