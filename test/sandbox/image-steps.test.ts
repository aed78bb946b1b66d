// Steps that a contract runs as root while its image is made, and what is looked at before an image is used again.
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import type { ImagePlan, ImageRecord } from '../../src/protocol/images.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import { ImageDesk } from '../../src/server/image/image-desk.ts';
import { removeImages, runOpaqueSteps } from '../../src/server/sandbox/opaque-steps.ts';
import { openStore } from '../../src/server/store/open-store.ts';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { imageRepository, type ImageRepository } from '../fixtures/image-repository.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { fullRun, leftOut } from '../fixtures/left-out.ts';
import { knownHome } from '../fixtures/known-home.ts';
import { executorPath, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';

/** Flattening the default base twice takes a minute on a busy machine. */
const engine = engineHere();
const yes = { reviewer: { name: 'test', channel: 'script' as const }, standing: false };

let kernel: TestKernel;
let homeId: string;
/** The newest connection: a test ends the Kernel of the first one. */
let current: KernelConnection;
let bench: SandboxBench;
const repos: ImageRepository[] = [];

beforeAll(async () => {
  bench = await sandboxBench();
  const known = await knownHome();
  homeId = known.homeId;
  kernel = await startTestKernel({ home: known.home });
  current = kernel.kernel;
});
afterAll(async () => {
  await current.call('image/prune', { preview: false, all: true });
  await kernel.dispose();
  await bench.dispose();
  for (const repo of repos) await repo.dispose();
});

type Step = { readonly argv: string[]; readonly network?: boolean };

async function planned(steps: readonly Step[]) {
  const repo = await imageRepository(
    null,
    { 'a.txt': '1\n', 'secret/key.txt': 'secret\n' },
    {
      title: 'Steps',
      instruction: 'Nothing.',
      writable: ['a.txt'],
      acceptance: [
        { id: 'fails', argv: ['false'], baseline: 'fail' },
        { id: 'tool', argv: ['tool'], baseline: 'pass' },
      ],
      image: { steps: [...steps] },
    },
  );
  repos.push(repo);
  const { digest } = await current.call('contract/freeze', { path: repo.contract });
  const plan: ImagePlan = await current.call('image/plan', { digest });
  return { digest, plan };
}

const preparing = () => engine.list([`escrow.owner=${homeId}`]);
/** What steps left on their way. */
const stepImages = () => engine.images.list(['escrow.image=steps', `escrow.owner=${homeId}`]);

/** Everything that a failed try could leave, apart from the flat default base, which is there before. */
async function traces(): Promise<readonly string[]> {
  const flat = (await engine.images.list([`escrow.home=${homeId}`])).filter(({ labels }) => 'escrow.steps' in labels);
  const images = [...flat, ...(await stepImages())];
  const containers = await preparing();
  return [...images.map(({ id }) => id), ...containers.map(({ name }) => name)];
}

describe('a step', () => {
  it('is shown in full, never has a standing yes, and is another plan with another word', async () => {
    const long = `print(${JSON.stringify('x'.repeat(3000))})`;
    const { digest, plan } = await planned([{ argv: ['python3', '-c', long] }]);
    expect(plan.steps.find(({ kind }) => kind === 'opaque')).toMatchObject({
      where: 'container',
      network: false,
      cached: false,
      argv: ['python3', '-c', long],
    });
    expect(plan.mayStand).toBe(false);
    expect(plan.unknown).toContain('step_effects');
    const standing = current.call('image/prepare', {
      digest,
      plan: plan.plan,
      approval: { ...yes, standing: true },
    });
    await expect(standing).rejects.toMatchObject({ code: 'ImageNotApproved' });
    const other = await planned([{ argv: ['python3', '-c', `${long} `] }]);
    expect(other.plan.plan).not.toBe(plan.plan);
    const networked = await planned([{ argv: ['python3', '-c', long], network: true }]);
    expect(networked.plan.plan).not.toBe(plan.plan);
    expect(await traces()).toEqual([]);
  });

  it('that fails is told with its output, and nothing of it stays', async () => {
    const { digest, plan } = await planned([
      { argv: ['python3', '-c', 'open("/first", "w").close()'] },
      {
        argv: [
          'python3',
          '-c',
          'import os, sys; print(os.path.exists("/first"), os.getuid(), os.listdir("/workspace")); sys.exit(3)',
        ],
      },
    ]);
    await expect(current.call('image/prepare', { digest, plan: plan.plan, approval: yes })).rejects.toMatchObject({
      code: 'PreparationFailed',
      message: expect.stringContaining('exit code 3'),
      // It saw what the one before left, was root, and had no file of the repository.
      details: { output: 'True 0 []\n' },
    });
    expect(await traces()).toEqual([]);
  });

  it('without network has none, and no mounts of the host', async () => {
    const code = `
import sys
links = [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l]
mounts = [l.split()[1] for l in open("/proc/mounts") if l.split()[2] in ("ext4", "xfs", "btrfs", "tmpfs")]
print(sorted(l for l in links if l != "lo" and not l.startswith(("tunl", "sit", "gre", "erspan", "ip"))))
print([m for m in mounts if not m.startswith(("/etc/", "/dev", "/proc", "/sys", "/usr/sbin/docker-init", "/sbin/docker-init", "/run/podman-init", "/run/.containerenv"))])
sys.exit(1)`;
    const { digest, plan } = await planned([{ argv: ['python3', '-c', code] }]);
    await expect(current.call('image/prepare', { digest, plan: plan.plan, approval: yes })).rejects.toMatchObject({
      details: { output: '[]\n[]\n' },
    });
  });

  it('that is cancelled is ended, and nothing of it stays', async () => {
    const { digest, plan } = await planned([{ argv: ['python3', '-c', 'import time; time.sleep(600)'] }]);
    const cancel = new AbortController();
    const work = current.call(
      'image/prepare',
      { digest, plan: plan.plan, approval: yes },
      { signal: cancel.signal, onProgress: ({ code }) => code === 'opaque' && cancel.abort() },
    );
    await expect(work).rejects.toMatchObject({ code: 'Cancelled' });
    expect(await traces()).toEqual([]);
  });

  it('whose Kernel dies is ended by the next one', async () => {
    const { digest, plan } = await planned([{ argv: ['python3', '-c', 'import time; time.sleep(601)'] }]);
    const begun = Promise.withResolvers<void>();
    const work = current.call(
      'image/prepare',
      { digest, plan: plan.plan, approval: yes },
      { onProgress: ({ code }) => code === 'opaque' && begun.resolve() },
    );
    const lost = expect(work).rejects.toMatchObject({ code: 'NoKernel' });
    await Promise.race([begun.promise, lost]);
    await eventually('the step runs', async () => (await preparing()).some(({ state }) => state === 'running'));
    await kernel.kill();
    await lost;
    expect(await readdir(path.join(kernel.home, 'preparing'))).toHaveLength(1);
    const next = await kernel.connect();
    await eventually('nothing of it is left', async () => (await preparing()).length === 0);
    await eventually('no file of it is left', async () => !existsSync(path.join(kernel.home, 'preparing')));
    // The record says that somebody said yes; nothing says that it was prepared.
    expect((await next.call('image/plan', { digest })).state).toBe('needed');
    current = next;
  });

  it.runIf(fullRun)(
    `leaves files, but no rights, no foreign code in every program, and no change of ours${leftOut.fullRun}`,
    async () => {
      const evil = await planned([{ argv: ['python3', '-c', 'open("/etc/ld.so.preload", "w").write("/evil.so")'] }]);
      await expect(
        current.call('image/prepare', { digest: evil.digest, plan: evil.plan.plan, approval: yes }),
      ).rejects.toMatchObject({ code: 'ImageUnavailable' });
      expect(await traces()).toEqual([]);

      const code = `
import os, shutil
open("/usr/local/bin/tool", "w").write("#!/bin/sh\\nls -l /usr/local/bin/copy /opt/escrow/executor.cjs; test ! -e /workspace/planted\\n")
os.chmod("/usr/local/bin/tool", 0o755)
shutil.copy("/bin/sh", "/usr/local/bin/copy")
os.chmod("/usr/local/bin/copy", 0o6755)
open("/opt/escrow/executor.cjs", "w").write("evil")
open("/workspace/planted", "w").write("evil")`;
      const good = await planned([{ argv: ['python3', '-c', code] }]);
      const done = await current.call('image/prepare', {
        digest: good.digest,
        plan: good.plan.plan,
        approval: yes,
      });
      expect(done.record?.steps.map(({ kind }) => kind)).toEqual(['opaque', 'flatten', 'executor']);
      const baseline = await current.call('contract/baseline', { digest: good.digest });
      const tool = baseline.checks.find(({ id }) => id === 'tool');
      expect(tool?.end).toEqual({ kind: 'exit', code: 0 });
      expect(tool?.tail).toMatch(/-rwxr-xr-x.*\/usr\/local\/bin\/copy/);
      expect(tool?.tail).not.toMatch(/ 4 .*executor\.cjs/);
      // Only the result is left, not the steps on the way.
      expect(await stepImages()).toEqual([]);
      await current.call('image/prune', { preview: false, all: true });
      expect(await traces()).toEqual([]);
    },
  );
});

describe('what steps write to the engine’s disk', () => {
  const megabyte = 1_000_000;
  const writes = (megabytes: number, after = ''): readonly string[] => [
    'python3',
    '-c',
    `for n in range(${megabytes}): open("/written-%d" % n, "wb").write(bytes(${megabyte}))\n${after}`,
  ];
  /** Steps over the prepared image, which may leave 40 MB; what they left is removed. */
  async function steps(...argvs: readonly (readonly string[])[]): Promise<number> {
    const made = await runOpaqueSteps({
      engine,
      image: bench.image.digest,
      steps: argvs.map((argv) => ({ argv: [...argv], network: false })),
      preparer: homeId,
      folder: kernel.home,
      maxBytes: 40 * megabyte,
      signal: AbortSignal.timeout(240_000),
      onStep: () => undefined,
    });
    await removeImages(engine, made);
    return made.length;
  }
  const overDisk = { code: 'PreparationFailed', details: { reason: 'disk', allowed: 40 * megabyte } };

  it('may be as much as is set aside for them, together (control)', async () => {
    expect(await steps(writes(20), writes(15))).toBe(2);
    expect(await traces()).toEqual([]);
  });
  it('and no more: one that goes on writing is ended, and nothing of it stays', async () => {
    const endless = ['python3', '-c', 'f = open("/endless", "wb")\nwhile True: f.write(bytes(1000000)); f.flush()'];
    await expect(steps(endless)).rejects.toMatchObject(overDisk);
    expect(await traces()).toEqual([]);
  });
  it('can’t be reserved without being written, however a program asks for it', async () => {
    const reserve = ['sh', '-c', 'touch /b; fallocate -l 200M /a; fallocate -n -l 8G /b; du -k /a /b; exit 3'];
    const failed = await steps(reserve).catch((error: unknown) => error as { details: { output: string } });
    const { output } = (failed as { details: { output: string } }).details;
    expect(output.match(/n(?:ot |)supported/g)).toHaveLength(2);
    expect(output).toMatch(/^0\s+\/a\n0\s+\/b$/m);
    // What programs do then: they write, up to the limit of a file, which is over the bound.
    const written = [
      'python3',
      '-c',
      'import os; os.posix_fallocate(os.open("/c", os.O_CREAT | os.O_RDWR), 0, 200000000)',
    ];
    await expect(steps(written)).rejects.toMatchObject(overDisk);
    expect(await traces()).toEqual([]);
  });
  it('also where it was over before anybody looked, or together with an earlier one', async () => {
    await expect(steps(writes(60))).rejects.toMatchObject(overDisk);
    await expect(steps(writes(25), writes(25))).rejects.toMatchObject(overDisk);
    expect(await traces()).toEqual([]);
  });
});

describe('an image that was prepared before', () => {
  it('is used only while it is what its record says', async () => {
    const home = await mkdtemp(path.join(os.tmpdir(), 'escrow-test-'));
    const store = openStore({ home, now: Date.now });
    try {
      const desk = new ImageDesk({
        engine,
        store,
        executorPath,
        cache: home,
        temporary: home,
        log: () => {},
        now: Date.now,
      });
      // Set-up made it: there is no record to compare with.
      expect(await desk.checked(bench.image)).toMatchObject({ record: null });
      const found = await engine.images.inspect(bench.image.digest);
      const record: ImageRecord = {
        image: bench.image.digest,
        reference: bench.image.reference,
        plan: sha256('plan'),
        base: { reference: 'base', digest: 'sha256:0' },
        node: 'v0',
        executor: bench.image.executorDigest,
        dependencies: null,
        approval: { by: 'test', channel: 'script', standing: false, at: 1 },
        steps: [],
        sizeBytes: found?.Size ?? 0,
        layers: found?.RootFS?.Layers ?? [],
        ms: 1,
      };
      let version = 0;
      const keep = (kept: ImageRecord): void => {
        const row = {
          kind: 'image',
          key: kept.image,
          root: '',
          createdAt: 1,
          updatedAt: 1,
          json: { ...kept },
        } as const;
        store.append(`image:${kept.image}`, version++, [{ type: 'image.prepared', data: { ...kept } }], () => [row]);
      };
      keep(record);
      expect((await desk.checked(bench.image)).record).toMatch(/^[0-9a-f]{64}$/);
      for (const other of [
        { ...record, sizeBytes: record.sizeBytes + 1 },
        { ...record, layers: [...record.layers].toReversed() },
        { ...record, layers: record.layers.slice(1) },
        { ...record, executor: sha256('another') },
      ]) {
        keep(other);
        await expect(desk.checked(bench.image)).rejects.toMatchObject({ code: 'ImageChanged' });
      }
    } finally {
      store.close();
      await rm(home, { recursive: true, force: true });
    }
  });
});
