// A limit that is not in force stops an attempt before anything is placed in the sandbox.
import { defaultImage } from '../../src/server/sandbox/image.ts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProvisionFact } from '../../src/server/sandbox/port.ts';
import { createSandboxService } from '../../src/server/sandbox/service.ts';
import { engineThatChanges } from '../fixtures/bad-peers/engine-that-changes-requests.ts';
import { executorPath, file, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';

type HostConfig = Record<string, unknown> & { Tmpfs: Record<string, string>; Ulimits: { Name: string }[] };

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
}, 120_000);
afterAll(() => bench.dispose());

/** What provisioning says when the engine changes the host configuration like this. */
async function through(change: (hostConfig: HostConfig) => object): Promise<{ error: unknown; facts: string[] }> {
  const engine = await engineThatChanges((body) => ({
    ...body,
    HostConfig: { ...body.HostConfig, ...change(body.HostConfig as HostConfig) },
  }));
  try {
    const other = await sandboxBench({ engineHost: engine.address, homeId: bench.homeId });
    const facts: ProvisionFact[] = [];
    const spec = other.spec({ files: [file('secret.txt', 'x')] });
    const provisioned = other.service.provision(spec, async (fact) => {
      facts.push(fact);
    });
    const error = await provisioned.then(
      (sandbox) => sandbox.detach(),
      (fault: unknown) => fault,
    );
    return { error, facts: facts.map(({ kind }) => kind) };
  } finally {
    await engine.close();
  }
}

describe('an engine that leaves out a limit', () => {
  it('[51=] is used when it leaves out none (control)', async () => {
    expect(await through(() => ({}))).toEqual({
      error: undefined,
      facts: ['created', 'started', 'attached', 'limits', 'placed'],
    });
  });

  const changes: Record<string, (hostConfig: HostConfig) => object> = {
    memory: () => ({ Memory: 0, MemorySwap: 0 }),
    swap: (now) => ({ MemorySwap: Number(now['Memory']) * 2 }),
    pids: () => ({ PidsLimit: 0 }),
    cpus: () => ({ NanoCpus: 0 }),
    'ulimit nofile': ({ Ulimits }) => ({ Ulimits: Ulimits.filter(({ Name }) => Name !== 'nofile') }),
    'tmpfs /tmp': ({ Tmpfs }) => ({ Tmpfs: { ...Tmpfs, '/tmp': 'rw,nosuid,nodev,noexec,size=64m' } }),
    'tmpfs /workspace': ({ Tmpfs }) => ({
      Tmpfs: { ...Tmpfs, '/workspace': Tmpfs['/workspace']?.replace(/nr_inodes=\d+/, 'nr_inodes=0') },
    }),
    'root file system': () => ({ ReadonlyRootfs: false }),
    seccomp: ({ SecurityOpt }) => ({
      SecurityOpt: (SecurityOpt as string[]).filter((one) => !one.startsWith('seccomp')),
    }),
    'no new privileges': ({ SecurityOpt }) => ({
      SecurityOpt: (SecurityOpt as string[]).filter((one) => one !== 'no-new-privileges'),
    }),
    'capabilities of the supervisor': () => ({ CapDrop: [] }),
    'other writable mounts': () => ({ Binds: ['/tmp:/mnt'] }),
    devices: () => ({ Devices: [{ PathOnHost: '/dev/zero', PathInContainer: '/dev/disk', CgroupPermissions: 'r' }] }),
    'IPC namespace': () => ({ IpcMode: 'shareable' }),
    init: () => ({ Init: false }),
    'engine log': () => ({ LogConfig: { Type: 'json-file', Config: {} } }),
  };
  // Each has a container of its own, and waits for the engine most of the time.
  it.concurrent.each(Object.entries(changes))('[51] is refused, by name: %s', async (name, change) => {
    const { error, facts } = await through(change);
    expect(error).toMatchObject({ code: 'limit-not-in-force', message: expect.stringContaining(`${name} (`) });
    expect(facts).toEqual(['created', 'started', 'attached', 'limits']);
  });
});

describe('an image', () => {
  it('with another executor is refused', async () => {
    const spec = bench.spec();
    const image = { ...spec.image, executorDigest: 'f'.repeat(64) as typeof spec.image.executorDigest };
    await expect(bench.service.provision({ ...spec, image }, async () => {})).rejects.toMatchObject({
      code: 'invalid',
    });
  });
  it('that is not there is an engine fault', async () => {
    const spec = bench.spec();
    const image = { ...spec.image, digest: `sha256:${'0'.repeat(64)}` };
    await expect(bench.service.provision({ ...spec, image }, async () => {})).rejects.toMatchObject({ code: 'engine' });
  });
  it('that was not prepared says which command prepares it', async () => {
    await expect(bench.service.image({ ...defaultImage, base: 'no-such-base:1' })).rejects.toMatchObject({
      code: 'ImageUnavailable',
      next: 'Prepare the image of this contract: escrow image prepare CONTRACT.',
    });
  });
});

describe('an engine that is not there', () => {
  it('is a finding of the preflight and a coded error elsewhere', async () => {
    expect((await bench.service.preflight()).health.state).toBe('ok');
    const gone = createSandboxService({
      homeId: bench.homeId,
      instanceId: 'gone',
      executorPath,
      engineHost: '/nonexistent/engine.sock',
      now: () => 0,
      log: () => {},
    });
    expect(await gone.preflight()).toMatchObject({
      health: { state: 'unavailable', code: 'engine_not_reachable' },
      findings: [{ code: 'engine_not_reachable', ok: false }],
    });
    await expect(gone.image(null)).rejects.toMatchObject({ code: 'EngineUnavailable' });
    await expect(gone.list()).rejects.toMatchObject({ code: 'EngineUnavailable' });
    await expect(gone.provision(bench.spec(), async () => {})).rejects.toMatchObject({ code: 'engine' });
    expect(await gone.kill('x')).toMatchObject({ kind: 'unconfirmed' });
    expect(await gone.remove('x')).toMatchObject({ kind: 'unknown' });
  });
});
