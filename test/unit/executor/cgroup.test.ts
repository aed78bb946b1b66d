// The two hierarchies tell the same facts in different files: read from recorded trees, as kernels show them.
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cgroupReader } from '../../../src/executor/cgroup.ts';
import { recordedTrees, type RecordedTree } from '../../fixtures/cgroup-trees.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'escrow-cgroup-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

async function laid(tree: RecordedTree, without: readonly string[] = []): Promise<ReturnType<typeof cgroupReader>> {
  for (const [name, text] of Object.entries(tree)) {
    if (without.includes(name)) continue;
    await mkdir(path.dirname(path.join(root, name)), { recursive: true });
    await writeFile(path.join(root, name), text);
  }
  return cgroupReader(root);
}

describe('a control group', () => {
  it('of version 2 is read from the unified hierarchy', async () => {
    const reader = await laid(recordedTrees.v2);
    expect(reader?.version).toBe(2);
    expect(reader?.read()).toEqual({
      memory: 61_685_760,
      memoryPeak: 2_147_483_648,
      oomKills: 3,
      cpuUs: 4_151_907,
      throttledUs: 120_301,
      pids: 5,
      pidsRefused: 17,
    });
    expect(reader?.limits()).toEqual({
      memory: '2147483648',
      memoryAndSwap: '0',
      pids: '128',
      cpu: '200000 100000',
    });
  });

  it('of version 1 is read from a folder a controller, nanoseconds made microseconds', async () => {
    const reader = await laid(recordedTrees.v1);
    expect(reader?.version).toBe(1);
    expect(reader?.read()).toEqual({
      memory: 54_878_208,
      memoryPeak: 2_147_483_648,
      oomKills: 2,
      cpuUs: 3_401_221,
      throttledUs: 88_120,
      pids: 4,
      pidsRefused: 9,
    });
    expect(reader?.limits()).toEqual({
      memory: '2147483648',
      memoryAndSwap: '2147483648',
      pids: '128',
      cpu: '200000 100000',
    });
  });

  it('of a kernel that lacks some files says null for them, never 0', async () => {
    // memory.peak came with 5.19, and controllers may not be delegated.
    const reader = await laid(recordedTrees.v2, ['memory.peak', 'pids.current', 'pids.events', 'cpu.stat']);
    expect(reader?.read()).toMatchObject({
      memory: 61_685_760,
      memoryPeak: null,
      cpuUs: null,
      throttledUs: null,
      pids: null,
      pidsRefused: null,
    });
  });

  it('with what is no number says null', async () => {
    const reader = await laid({ ...recordedTrees.v2, 'memory.current': 'max\n', 'pids.events': 'max lots\n' });
    expect(reader?.read()).toMatchObject({ memory: null, pidsRefused: null });
  });

  it('that is not mounted has no reader', () => {
    expect(cgroupReader(root)).toBeNull();
  });
});
