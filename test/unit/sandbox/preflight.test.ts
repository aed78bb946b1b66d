// What is missing in a container engine, each finding with its mend.
import { describe, expect, it } from 'vitest';
import type { EngineInfo, EngineVersion } from '../../../src/server/sandbox/engine-connection.ts';
import { findingsOf, healthOf } from '../../../src/server/sandbox/preflight.ts';

const docker: EngineVersion = {
  flavour: 'docker',
  name: 'Docker',
  version: '29.0',
  api: '1.52',
  architecture: 'amd64',
};
const well: EngineInfo = {
  cpus: 2,
  memoryBytes: 8 * 1024 ** 3,
  cgroupVersion: '2',
  securityOptions: ['name=seccomp,profile=default', 'name=cgroupns'],
  initBinary: 'docker-init',
  storageRoot: '/var/lib/docker',
  swapLimit: true,
  memoryLimit: true,
  cpuLimit: true,
  pidsLimit: true,
  rootless: false,
};
const bad = (info: Partial<EngineInfo>, version: Partial<EngineVersion> = {}, files: readonly string[] = []) =>
  findingsOf({ ...docker, ...version }, { ...well, ...info }, (path) => files.includes(path)).filter(({ ok }) => !ok);

describe('findings about an engine', () => {
  it('are none where nothing is missing (control)', () => {
    expect(bad({})).toEqual([]);
    expect(bad({ rootless: true })).toEqual([]);
  });
  it.each([
    ['seccomp', { securityOptions: [] }, /seccomp/],
    ['cgroup_version', { cgroupVersion: '' }, /control groups/],
    ['memory_limit', { memoryLimit: false }, /cgroup_enable=memory/],
    ['swap_limit', { swapLimit: false }, /swapaccount=1/],
    ['cpu_limit', { cpuLimit: false }, /controller/],
    ['pids_limit', { pidsLimit: false, rootless: true }, /Delegate=yes/],
    ['init', { initBinary: '' }, /docker-init/],
    ['memory', { memoryBytes: 1024 ** 3 }, /3 GiB/],
  ])('name %s, with the mend', (code, info, mend) => {
    expect(bad(info)).toEqual([expect.objectContaining({ code, next: expect.stringMatching(mend) })]);
  });
  it('believe no limit of an engine without root on control groups v1, whatever it says', () => {
    const found = bad({ rootless: true, cgroupVersion: '1' });
    expect(found.map(({ code }) => code)).toEqual([
      'rootless',
      'memory_limit',
      'swap_limit',
      'cpu_limit',
      'pids_limit',
    ]);
    for (const { next } of found) expect(next).toMatch(/unified/);
  });
  it('look for Podman’s init where Podman does', () => {
    const podman = { flavour: 'podman', name: 'Podman' } as const;
    expect(bad({ initBinary: '' }, podman)).toEqual([
      expect.objectContaining({ code: 'init', next: expect.stringContaining('catatonit') }),
    ]);
    expect(bad({ initBinary: '' }, podman, ['/usr/libexec/podman/catatonit'])).toEqual([]);
  });
});

describe('the state of an engine', () => {
  const state = (info: Partial<EngineInfo>) =>
    healthOf(
      docker,
      findingsOf(docker, { ...well, ...info }, () => false),
      () => 0,
    ).health;

  it('is well where nothing is missing (control)', () => {
    expect(state({})).toMatchObject({ state: 'ok', code: null, detail: 'Docker 29.0' });
  });
  it.each([
    ['seccomp', { securityOptions: [] }],
    ['memory_limit', { memoryLimit: false }],
    ['cpu_limit', { cpuLimit: false }],
    ['pids_limit', { pidsLimit: false }],
    ['init', { initBinary: '' }],
    ['rootless', { rootless: true, cgroupVersion: '1' }],
    // Told before what comes earlier in the list and would stop nothing.
    ['pids_limit', { swapLimit: false, pidsLimit: false }],
  ])('is unavailable where every attempt would be refused: %s', (code, info) => {
    expect(state(info)).toMatchObject({ state: 'unavailable', code, next: expect.stringMatching(/./) });
  });
  it.each([
    ['swap_limit', { swapLimit: false }],
    ['memory', { memoryBytes: 1024 ** 3 }],
  ])('is degraded where some can run: %s', (code, info) => {
    expect(state(info)).toMatchObject({ state: 'degraded', code });
  });
});
