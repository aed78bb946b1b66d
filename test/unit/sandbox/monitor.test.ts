// The record of what a sandbox used: bounded, and readable however it was cut or changed.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ResourceSample } from '../../../src/protocol/executor-answers.ts';
import type { MemoryReading } from '../../../src/protocol/attempt.ts';
import { createMemoryProbe } from '../../../src/server/inference/memory.ts';
import { Monitor, readMonitor } from '../../../src/server/sandbox/monitor.ts';

const use = (parts: Partial<ResourceSample> = {}): ResourceSample => ({
  at: 1,
  memory: 10,
  memoryPeak: 20,
  memoryHighest: 15,
  oomKills: 0,
  cpuUs: 5,
  throttledUs: 0,
  pids: 2,
  pidsHighest: 3,
  pidsRefused: 0,
  areas: [{ path: '/tmp', size: 100, used: 1, inodes: 10, inodesUsed: 1 }],
  ...parts,
});
const silent = async () => null;

describe('a monitor', () => {
  it('keeps each sample, the peaks of all, and the sums that only rise', async () => {
    const host: MemoryReading = { at: 1, hostTotal: 100, hostFree: 40, gpus: null };
    const gpu = { name: 'card', driver: '1', total: 9, free: 4 };
    const readings = [host, { ...host, hostFree: 30, gpus: [gpu, { ...gpu, free: 2 }] }, host];
    const monitor = new Monitor(async () => readings.shift() ?? null);
    for (const [index, memory] of [20, 90, 40].entries()) {
      monitor.add(
        use({ memoryPeak: memory, cpuUs: index * 100, oomKills: index, pidsHighest: 7 - index }),
        index === 0 ? null : 3,
      );
      // The host is asked beside each sample; its answer rides with the next one.
      await Promise.resolve();
      await Promise.resolve();
    }
    monitor.add(use());
    const { records, whole } = readMonitor(monitor.bytes());
    expect([records.length, whole]).toEqual([4, true]);
    expect(records[0]).toMatchObject({ kind: 'sample', host: null });
    expect(monitor.peaks).toEqual({
      samples: 4,
      memory: 90,
      pids: 7,
      cpuUs: 200,
      oomKills: 2,
      oomEvents: 3,
      pidsRefused: 0,
      hostFree: 30,
      gpuFree: 2,
    });
  });

  it('takes the memory of GPUs from the tool of their driver, and null where there is none', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'escrow-gpu-'));
    try {
      const tool = path.join(folder, 'nvidia-smi');
      await writeFile(tool, '#!/bin/sh\necho "Card, 550.1, 8192, 1024"\n', { mode: 0o755 });
      for (const [where, free] of [
        [`${folder}:/bin`, 1024 * 1024 * 1024],
        ['/nonexistent', null],
      ] as const) {
        const probe = createMemoryProbe({ now: () => 1, env: { PATH: where } });
        const reading = await probe.read();
        const monitor = new Monitor(async () => reading);
        monitor.add(use());
        await Promise.resolve();
        await Promise.resolve();
        monitor.add(use());
        expect([monitor.peaks.gpuFree, (monitor.peaks.hostFree ?? 0) > 0]).toEqual([free, true]);
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('says null of what was never told', () => {
    const monitor = new Monitor(silent);
    monitor.add(use({ memory: null, memoryPeak: null, memoryHighest: null, oomKills: null, pidsHighest: null }));
    expect(monitor.peaks).toMatchObject({ samples: 1, memory: null, oomKills: null, pids: null, gpuFree: null });
  });

  it('says at its bound that it is full, and goes on with the peaks only', () => {
    const monitor = new Monitor(silent, 2_000);
    for (let index = 0; index < 50; index += 1) monitor.add(use({ memoryPeak: index }));
    const bytes = monitor.bytes();
    expect(bytes.length).toBeLessThanOrEqual(2_000);
    const { records, whole } = readMonitor(bytes);
    expect([records.at(-1), whole]).toEqual([{ kind: 'full' }, true]);
    expect(records.length).toBeLessThan(10);
    expect(monitor.peaks).toMatchObject({ samples: 50, memory: 49 });
  });

  it('that was cut or changed anywhere is read up to there and never beyond', () => {
    const monitor = new Monitor(silent);
    for (let index = 0; index < 5; index += 1) monitor.add(use({ at: index }));
    const bytes = monitor.bytes();
    const all = readMonitor(bytes).records;
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.nat(254), fc.boolean(), (at, flip, cut) => {
        const damaged = cut ? bytes.subarray(0, at) : Buffer.from(bytes);
        if (!cut) damaged[at] = (damaged[at] ?? 0) ^ (flip + 1);
        const read = readMonitor(damaged);
        expect(read.records).toEqual(all.slice(0, read.records.length));
        // A cut between two records can't be told from an end.
        if (!cut) expect(read.whole).toBe(false);
      }),
      { numRuns: 300 },
    );
  });
});
