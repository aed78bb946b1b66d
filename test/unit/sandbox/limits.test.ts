// What was wanted against what is in force, told from inside and outside: which differences count, by name, and what one
// side that says nothing means. That engines really leave limits out is shown in test/sandbox/refusal.
import { describe, expect, it } from 'vitest';
import type { InsideReport, ProcessReport } from '../../../src/protocol/executor-answers.ts';
import type { InspectedContainer } from '../../../src/server/sandbox/engine.ts';
import { limitWords } from '../../../src/extension/trees/limit-words.ts';
import { readBack } from '../../../src/server/sandbox/limits.ts';
import { bounded, capabilityMask, createOptions } from '../../../src/server/sandbox/profile.ts';

type Outside = Pick<InspectedContainer, 'hostConfig' | 'mounts' | 'networks'>;

const none = '0'.repeat(16);
const ulimits = Object.fromEntries(
  bounded.ulimits.map(({ shown, value }) => [shown, { soft: String(value), hard: String(value) }]),
);
const supervisor: ProcessReport = {
  uid: '0\t0\t0\t0',
  gid: '0\t0\t0\t0',
  groups: '',
  noNewPrivileges: true,
  seccomp: '2',
  capabilities: { effective: capabilityMask, permitted: capabilityMask, bounding: capabilityMask, ambient: none },
  ulimits,
  oomScoreAdj: 0,
  nice: 0,
};
const worker: ProcessReport = {
  ...supervisor,
  uid: '10001\t10001\t10001\t10001',
  gid: '10001\t10001\t10001\t10001',
  capabilities: { effective: none, permitted: none, bounding: capabilityMask, ambient: none },
  oomScoreAdj: 1000,
  nice: 19,
};
const well: InsideReport = {
  cgroup: {
    version: 1,
    memory: String(bounded.memoryBytes),
    memoryAndSwap: String(bounded.memoryBytes),
    pids: String(bounded.pids),
    cpu: '200000 100000',
    hostSwap: '0',
  },
  mounts: [
    { target: '/', type: 'overlay', options: ['ro'], size: null, inodes: null, mode: null, owner: null },
    ...bounded.tmpfs.map((limit) => ({
      target: limit.path,
      type: 'tmpfs',
      options: ['rw', 'nosuid', 'nodev', ...(limit.exec ? [] : ['noexec'])],
      size: limit.bytes,
      inodes: limit.inodes,
      mode: limit.mode,
      owner: limit.owner,
    })),
  ],
  interfaces: ['lo'],
  devices: ['null', 'zero'],
  environment: ['PATH', 'HOME'],
  supervisor,
  worker,
  syscalls: { getpid: 7, clone3: -38, mount: -1, 'socket:1:dgram': 3, 'socket:38:dgram': -1, 'netlink:9': -1 },
};
const outside: Outside = {
  hostConfig: createOptions(bounded, { name: 'c', image: 'i', labels: {}, nonce: 'n', engineCpus: 2 }).HostConfig ?? {},
  mounts: 0,
  networks: ['none'],
};

const missing = (inside: Partial<InsideReport> = {}, told: Partial<Outside['hostConfig']> = {}): string[] =>
  readBack(bounded, 2, { ...well, ...inside }, { ...outside, hostConfig: { ...outside.hostConfig, ...told } })
    .filter(({ inForce }) => !inForce)
    .map(({ name }) => name);

describe('limits that are read back', () => {
  it('are in force where both sides say so (control)', () => {
    expect(missing()).toEqual([]);
  });

  it('have words in the window, each', () => {
    const names = readBack(bounded, 2, well, outside).map(({ name }) => name);
    expect(names.length).toBeGreaterThan(30);
    const t = (message: string, ...args: readonly unknown[]) => message.replace('{0}', String(args[0]));
    expect(names.filter((name) => limitWords(name, t) === name && !/^(?:ulimit |IPC )/.test(name))).toEqual([]);
  });

  const rights = (mask: string) => ({ ...worker.capabilities, effective: mask });
  it.each<[string, Partial<InsideReport>]>([
    ['capabilities of commands', { worker: { ...worker, capabilities: rights(capabilityMask) } }],
    ['identity of commands', { worker: { ...worker, uid: '0\t0\t0\t0' } }],
    ['identity of commands', { worker: { ...worker, uid: '10001\t10001\t0\t10001' } }],
    ['identity of commands', { worker: { ...worker, groups: '0' } }],
    ['identity of commands', { worker: { ...worker, nice: 0 } }],
    ['identity of commands', { worker: { ...worker, oomScoreAdj: 0 } }],
    ['supervisor survives first', { supervisor: { ...supervisor, oomScoreAdj: 1 } }],
    ['no new privileges', { worker: { ...worker, noNewPrivileges: false } }],
    ['seccomp', { worker: { ...worker, seccomp: '0' } }],
    ['system calls', { syscalls: { ...well.syscalls, mount: -14 } }],
    ['system calls', { syscalls: { ...well.syscalls, 'socket:38:dgram': 3 } }],
    // A filter that refuses everything is no filter of ours either.
    ['system calls', { syscalls: { ...well.syscalls, 'socket:1:dgram': -1 } }],
    ['ulimit nofile', { worker: { ...worker, ulimits: { ...ulimits, 'open files': { soft: '1024', hard: '4096' } } } }],
    ['memory', { cgroup: { ...well.cgroup, memory: 'max' } }],
    ['swap', { cgroup: { ...well.cgroup, memoryAndSwap: 'max' } }],
    ['cpus', { cgroup: { ...well.cgroup, cpu: '-1 100000' } }],
    ['network', { interfaces: ['lo', 'eth0'] }],
    ['devices', { devices: ['null', 'nvidia0'] }],
    [
      'root file system',
      { mounts: well.mounts.map((one) => (one.target === '/' ? { ...one, options: ['rw'] } : one)) },
    ],
  ])('%s: the kernel’s word from inside counts against the engine’s', (name, inside) => {
    expect(missing(inside)).toEqual([name]);
  });

  it.each<[string, Partial<Outside['hostConfig']>]>([
    ['privileged', { Privileged: true }],
    ['process namespace', { PidMode: 'host' }],
    ['process namespace', { PidMode: 'container:x' }],
    ['IPC namespace', { IpcMode: 'host' }],
    ['init', { Init: false }],
    ['oom-killer', { OomKillDisable: true }],
    ['restart', { RestartPolicy: { Name: 'always' } }],
    ['memory', { Memory: 0, MemorySwap: 0 }],
  ])('%s: so does the engine’s word against the kernel’s', (name, told) => {
    expect(missing({}, told)).toContain(name);
  });

  it('a mount over one of ours is the one that counts', () => {
    const over = { target: '/tmp', type: 'ext4', options: ['rw'], size: null, inodes: null, mode: null, owner: null };
    expect(missing({ mounts: [...well.mounts, over] })).toEqual(['tmpfs /tmp']);
  });

  it('a writable mount that we did not ask for is one, whoever may write to it', () => {
    const more = (type: string, target: string, mode: string | null, owner: number | null) =>
      missing({ mounts: [...well.mounts, { target, type, options: ['rw'], size: 1, inodes: 1, mode, owner }] });
    expect(more('ext4', '/data', null, null)).toEqual(['other writable mounts']);
    expect(more('tmpfs', '/var/tmp', '1777', 0)).toEqual(['other writable mounts']);
    expect(more('tmpfs', '/run', '755', 0)).toEqual([]);
  });

  it('what can’t be read on one side is told by the other; what neither tells is not in force', () => {
    const unread = { ...well.cgroup, memory: null, pids: null, cpu: null };
    expect(missing({ cgroup: unread, interfaces: null, devices: null })).toEqual([]);
    expect(missing({ worker: null })).toEqual(
      expect.arrayContaining(['capabilities of commands', 'identity of commands', 'no new privileges', 'seccomp']),
    );
    const { Memory: _memory, ...silent } = outside.hostConfig;
    const told = readBack(bounded, 2, { ...well, cgroup: unread }, { ...outside, hostConfig: silent });
    expect(told.find(({ name }) => name === 'memory')).toMatchObject({ inside: null, outside: null, inForce: false });
  });

  it('a kernel that does not count swap is fine where there is none, whatever the engine then says', () => {
    const uncounted = { ...well.cgroup, memoryAndSwap: null };
    expect(missing({ cgroup: uncounted }, { MemorySwap: -1 })).toEqual([]);
    expect(missing({ cgroup: { ...uncounted, hostSwap: '1024' } }, { MemorySwap: -1 })).toEqual(['swap']);
    expect(missing({}, { MemorySwap: -1 })).toEqual(['swap']);
  });

  it('a processor without a probe has its filter told by the kernel', () => {
    expect(missing({ syscalls: null })).toEqual([]);
    expect(missing({ syscalls: null, worker: { ...worker, seccomp: '0' } })).toEqual(['seccomp', 'system calls']);
  });
});
