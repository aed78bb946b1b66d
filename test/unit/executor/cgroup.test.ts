// The two hierarchies tell the same facts in different files: read from what real sandboxes said after they had run out of
// memory, of processes and of processor time, and compared with what the product saw of them.
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cgroupReader } from '../../../src/executor/cgroup.ts';
import { cgroupRecording } from '../../fixtures/cgroup-trees/recordings.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'escrow-cgroup-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

type Files = Readonly<Record<string, string>>;

async function laid(files: Files, without: readonly string[] = []): Promise<ReturnType<typeof cgroupReader>> {
  for (const [name, text] of Object.entries(files)) {
    if (without.includes(name)) continue;
    await mkdir(path.dirname(path.join(root, name)), { recursive: true });
    await writeFile(path.join(root, name), text);
  }
  return cgroupReader(root);
}

describe('a recorded control group', () => {
  it.each([
    [
      'docker-v2',
      2,
      {
        memory: 105_541_632,
        memoryPeak: 2_147_483_648,
        oomKills: 1,
        cpuUs: 446_777_309,
        throttledUs: 7_932_470,
        pids: 13,
        pidsRefused: 1,
      },
      '0',
    ],
    [
      'docker-v1',
      1,
      {
        memory: 39_501_824,
        memoryPeak: 2_147_483_648,
        oomKills: 1,
        // Nanoseconds there.
        cpuUs: 2_337_072,
        throttledUs: 0,
        pids: 13,
        pidsRefused: 1,
      },
      '2147483648',
    ],
  ] as const)('of %s is read whole', async (name, version, reading, memoryAndSwap) => {
    const reader = await laid(cgroupRecording(name).files);
    expect(reader?.version).toBe(version);
    expect(reader?.read()).toEqual(reading);
    expect(reader?.limits()).toEqual({ memory: '2147483648', memoryAndSwap, pids: '128', cpu: '200000 100000' });
  });

  it.each(['docker-v1', 'docker-v2'] as const)('of %s is what the product said of it on that machine', async (name) => {
    const { files, ends, limits, peaks } = cgroupRecording(name);
    const reading = (await laid(files))?.read();
    expect(ends).toEqual({
      memory: { kind: 'oom' },
      processes: { kind: 'pids' },
      processor: { kind: 'exit', code: 0 },
    });
    expect(limits.map((limit) => [limit.name, limit.inForce])).toEqual([
      ['memory', true],
      ['swap', true],
      ['pids', true],
      ['cpus', true],
    ]);
    expect(peaks).toMatchObject({
      memory: reading?.memoryPeak,
      oomKills: reading?.oomKills,
      pidsRefused: reading?.pidsRefused,
    });
  });

  it('of a kernel that lacks some files says null for them, never 0', async () => {
    // memory.peak came with 5.19, and controllers may not be delegated.
    const { files } = cgroupRecording('docker-v2');
    const reader = await laid(files, ['memory.peak', 'pids.current', 'pids.events', 'cpu.stat']);
    expect(reader?.read()).toEqual({
      memory: 105_541_632,
      memoryPeak: null,
      oomKills: 1,
      cpuUs: null,
      throttledUs: null,
      pids: null,
      pidsRefused: null,
    });
  });

  it('with what is no number says null', async () => {
    const { files } = cgroupRecording('docker-v2');
    const reader = await laid({ ...files, 'memory.current': 'max\n', 'pids.events': 'max lots\n' });
    expect(reader?.read()).toMatchObject({ memory: null, pidsRefused: null });
  });

  it('that is not mounted has no reader', () => {
    expect(cgroupReader(root)).toBeNull();
  });
});
