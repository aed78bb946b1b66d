// A limit that is not in force stops an attempt before anything is placed in the sandbox.
import { defaultImage } from '../../src/server/sandbox/image.ts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProvisionFact } from '../../src/server/sandbox/port.ts';
import { createSandboxService } from '../../src/server/sandbox/service.ts';
import { engineThatChanges } from '../fixtures/bad-peers/engine-that-changes-requests.ts';
import { executorPath, file, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';

type HostConfig = Record<string, unknown> & { Tmpfs: Record<string, string>; Ulimits: { Name: string }[] };
type Body = Record<string, unknown> & { HostConfig: HostConfig; Env: string[] };

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

interface Told {
  readonly error: unknown;
  readonly facts: readonly string[];
  /** Every limit that was looked at, and those that are not in force. */
  readonly limits: readonly string[];
  readonly missing: readonly string[];
}

/** What provisioning says when the engine is sent another body than it was meant to get. */
async function through(change: (body: Body) => object): Promise<Told> {
  const engine = await engineThatChanges((body) => ({ ...body, ...change(body as Body) }));
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
    const limits = facts.flatMap((fact) => (fact.kind === 'limits' ? fact.limits : []));
    return {
      error,
      facts: facts.map(({ kind }) => kind),
      limits: limits.map(({ name }) => name),
      missing: limits.filter(({ inForce }) => !inForce).map(({ name }) => name),
    };
  } finally {
    await engine.close();
  }
}

/** Only the host configuration. */
const host =
  (change: (now: HostConfig) => object) =>
  ({ HostConfig: now }: Body) => ({ HostConfig: { ...now, ...change(now) } });
const filtered = (now: HostConfig, drop: (option: string) => boolean) => ({
  SecurityOpt: (now['SecurityOpt'] as string[]).filter((option) => !drop(option)),
});

/** What an engine may leave out or be made to do otherwise, and the limits that are then not in force. */
const changes: readonly (readonly [names: readonly string[], change: (body: Body) => object])[] = [
  [['memory'], host(() => ({ Memory: 0, MemorySwap: 0 }))],
  [['swap'], host((now) => ({ MemorySwap: Number(now['Memory']) * 2 }))],
  [['pids'], host(() => ({ PidsLimit: 0 }))],
  [['cpus'], host(() => ({ NanoCpus: 0 }))],
  [['oom-killer'], host(() => ({ OomKillDisable: true }))],
  [
    ['nofile', 'fsize', 'core', 'msgqueue', 'memlock', 'nproc', 'sigpending', 'nice', 'rtprio'].map(
      (name) => `ulimit ${name}`,
    ),
    host(() => ({ Ulimits: [] })),
  ],
  [['ulimit nofile'], host(({ Ulimits }) => ({ Ulimits: Ulimits.filter(({ Name }) => Name !== 'nofile') }))],
  [
    ['tmpfs /workspace', 'tmpfs /tmp', 'tmpfs /home/worker', 'tmpfs /exchange', 'tmpfs /dev/shm'],
    host(({ Tmpfs }) => ({
      Tmpfs: Object.fromEntries(
        Object.entries(Tmpfs).map(([where, how]) => [where, how.replace(/nr_inodes=\d+/, 'nr_inodes=0')]),
      ),
    })),
  ],
  [['tmpfs /tmp'], host(({ Tmpfs }) => ({ Tmpfs: { ...Tmpfs, '/tmp': 'rw,nosuid,nodev,noexec,size=64m' } }))],
  [
    ['tmpfs /home/worker'],
    host(({ Tmpfs }) => ({
      Tmpfs: { ...Tmpfs, '/home/worker': Tmpfs['/home/worker']?.replace('noexec', 'exec') },
    })),
  ],
  [['root file system'], host(() => ({ ReadonlyRootfs: false }))],
  [
    ['seccomp', 'system calls'],
    host((now) => ({
      SecurityOpt: [...filtered(now, (one) => one.startsWith('seccomp')).SecurityOpt, 'seccomp=unconfined'],
    })),
  ],
  [['seccomp'], host((now) => filtered(now, (one) => one.startsWith('seccomp')))],
  [['no new privileges'], host((now) => filtered(now, (one) => one === 'no-new-privileges'))],
  [['capabilities of the supervisor'], host(() => ({ CapDrop: [] }))],
  [['capabilities of the supervisor'], host((now) => ({ CapAdd: [...(now['CapAdd'] as string[]), 'NET_ADMIN'] }))],
  [['other writable mounts'], host(() => ({ Binds: ['/tmp:/mnt'] }))],
  [['other writable mounts'], host(() => ({ Binds: ['/tmp:/mnt:ro'] }))],
  [
    ['devices'],
    host(() => ({ Devices: [{ PathOnHost: '/dev/zero', PathInContainer: '/dev/disk', CgroupPermissions: 'r' }] })),
  ],
  [['network'], host(() => ({ NetworkMode: 'host' }))],
  [['IPC namespace'], host(() => ({ IpcMode: 'shareable' }))],
  [['engine log'], host(() => ({ LogConfig: { Type: 'json-file', Config: {} } }))],
  [['restart'], host(() => ({ RestartPolicy: { Name: 'on-failure' } }))],
  [['environment'], ({ Env }) => ({ Env: [...Env, 'NODE_EXTRA_CA_CERTS=/x', 'HTTP_PROXY=http://user:secret@proxy'] })],
];

/** What no engine here can be made to do otherwise: shown with its words (test/unit/sandbox/limits). */
const shownElsewhere = ['capabilities of commands', 'identity of commands', 'supervisor survives first', 'privileged'];

describe('an engine that leaves out a limit', () => {
  it('[51=] is used when it leaves out none (control), and no limit is without a test', async () => {
    const { error, facts, limits, missing } = await through(() => ({}));
    expect([error, missing]).toEqual([undefined, []]);
    expect(facts).toEqual(['created', 'started', 'attached', 'limits', 'placed']);
    const tested = new Set([...changes.flatMap(([names]) => names), 'init', 'process namespace', ...shownElsewhere]);
    expect(limits.toSorted()).toEqual([...tested].toSorted());
  });

  // Each has a container of its own, and waits for the engine most of the time.
  it.concurrent.each(changes)('[51] is refused, by name: %s', async (names, change) => {
    const { error, facts, missing } = await through(change);
    expect(missing).toEqual(expect.arrayContaining([...names]));
    expect(error).toMatchObject({ code: 'limit-not-in-force', message: expect.stringContaining(`${names[0]} (`) });
    expect(facts).toEqual(['created', 'started', 'attached', 'limits']);
  });

  /** The supervisor ends every process that it can see, so it starts as the child of a container's own init only. */
  const notStarted = { code: 'channel', message: expect.stringContaining('a process table of its own') };
  it('[51] has no supervisor where it leaves out init', async () => {
    const { error, facts } = await through(host(() => ({ Init: false })));
    expect(error).toMatchObject(notStarted);
    expect(facts).toEqual(['created', 'started']);
  });
  it('[51] has no supervisor where it shares a process table: another container’s here, which loses nobody', async () => {
    const other = await bench.engine.create({
      Image: bench.image.digest,
      Cmd: ['sleep', '600'],
      Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId },
      HostConfig: { NetworkMode: 'none' },
    });
    await bench.engine.start(other);
    const { error, facts } = await through(host(() => ({ PidMode: `container:${other}` })));
    expect(error).toMatchObject(notStarted);
    expect(facts).toEqual(['created', 'started']);
    expect((await bench.engine.inspect(other))?.running).toBe(true);
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
