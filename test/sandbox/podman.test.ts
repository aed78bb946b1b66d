// The core of the sandbox on Podman's compatible API: made, limited as read back, used, quiesced, collected, gone. The
// whole suite runs there with ESCROW_TEST_ENGINE=podman (npm run test:full does).
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { fileIdentity, prepareImage } from '../../src/server/sandbox/image-preparation.ts';
import { launcherProgram } from '../../src/server/sandbox/inside-programs.ts';
import { imageLayout } from '../../src/server/sandbox/labels.ts';
import { removeImages } from '../../src/server/sandbox/opaque-steps.ts';
import type { Sandbox, SandboxSpec } from '../../src/server/sandbox/port.ts';
import { collect, collectByExec } from '../fixtures/collected.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { heldAttempt, prepareContract, sessionAt, settled, turns } from '../fixtures/journey.ts';
import { startTestKernel } from '../fixtures/kernel.ts';
import { podmanInstalled, podmanService, type PodmanService } from '../fixtures/podman.ts';
import {
  bytesOf,
  command,
  executorPath,
  file,
  pathOf,
  python,
  sandboxBench,
  textOf,
  type SandboxBench,
} from '../fixtures/sandbox.ts';
import { unless } from '../fixtures/left-out.ts';

const path = pathOf('src/a.py');
/** What an earlier Kernel had recorded of its audit: nothing. */
const nothing = { entries: 0, head: null };
const installed = await podmanInstalled();

describe.skipIf(!installed)(`on Podman${unless(installed, 'Podman is not installed')}`, () => {
  let podman: PodmanService;
  let bench: SandboxBench;
  let sandbox: Sandbox;
  beforeAll(async () => {
    podman = await podmanService();
    // This test file's own process: everything in it speaks to Podman.
    process.env['DOCKER_HOST'] = podman.address;
    bench = await sandboxBench();
    sandbox = await bench.provision({
      files: [file('src/a.py', 'old\n')],
      writable: [path],
      scratch: [pathOf('scratch')],
      commands: [
        command('true', ['true']),
        python('fill', 'with open("/tmp/f", "wb") as f:\n  while True: f.write(b"x" * 65536)'),
        python('inodes', 'for i in range(20000): open("/home/worker/%d" % i, "w").close()'),
        python('forks', 'import os, time\nfor i in range(200):\n  if os.fork() == 0: time.sleep(20); os._exit(0)'),
        python('var-tmp', 'open("/var/tmp/x", "w")'),
        python('sleep', 'import time; time.sleep(60)', { timeoutS: 1 }),
      ],
    });
  });
  afterAll(async () => {
    await bench?.dispose();
    await podman?.close();
  });

  const named = async ({ name }: SandboxSpec) => {
    const found = (await bench.service.list()).find((container) => container.name === name);
    if (found === undefined) throw new Error(`no container ${name}`);
    return found;
  };
  /** A sandbox with one edit, recorded, whose Kernel is gone; with a command under way where one is named. */
  const abandoned = async (run?: string) => {
    const spec = bench.spec({
      files: [file('src/a.py', 'old\n')],
      writable: [path],
      commands: [
        python('fork-and-stay', 'import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(120)', { timeoutS: 120 }),
      ],
    });
    const first = await bench.service.provision(spec, async () => {});
    const { sha256: before } = await first.read(path, 'agent');
    await first.write(path, bytesOf('new\n'), before);
    const recorded = first.witness;
    if (run !== undefined) {
      first.run(run).catch(() => {});
      await first.read(path, 'agent');
    }
    first.detach();
    return { spec, recorded, other: await sandboxBench({ homeId: bench.homeId }) };
  };

  it('is named as what it is, and its preflight has no objection', async () => {
    const health = await bench.service.preflight();
    expect(health).toMatchObject({ name: 'Podman', health: { state: 'ok' } });
    expect(health.findings.filter(({ ok }) => !ok)).toEqual([]);
  });

  it('has every limit in force, read back from inside and outside', () => {
    expect(sandbox.limits.length).toBeGreaterThan(30);
    expect(sandbox.limits.filter(({ inForce }) => !inForce)).toEqual([]);
  });

  it('reads, edits and runs through the channel', async () => {
    const { sha256: before } = await sandbox.read(path, 'agent');
    await sandbox.write(path, bytesOf('new\n'), before);
    await expect(sandbox.write(path, bytesOf('late'), sha256('old\n'))).rejects.toMatchObject({ code: 'conflict' });
    expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
  });

  it.each([
    ['fill', { kind: 'no-space', area: '/tmp' }],
    ['inodes', { kind: 'no-space', area: '/home/worker' }],
    ['forks', { kind: 'pids' }],
    ['var-tmp', { kind: 'exit', code: 1 }],
    ['sleep', { kind: 'timeout', afterMs: 1000 }],
  ])('bounds a command: %s', async (id, end) => {
    expect((await sandbox.run(id)).end).toEqual(end);
  });

  it('closes a container’s input when its first client goes: a second one is refused by name, not by a time-out', async () => {
    const { spec, other } = await abandoned();
    await expect(other.service.reattach(spec, (await named(spec)).engineId, 2, nothing)).rejects.toMatchObject({
      code: 'channel',
      message: expect.stringContaining('closes a container’s input'),
    });
  });

  it('gives the bytes of a dead Kernel to the next one, quiet and with the audit compared', async () => {
    const { spec, other, recorded } = await abandoned();
    const { engineId } = await named(spec);
    const collection = await collectByExec(other.service, spec, engineId, recorded);
    expect(collection).toMatchObject({
      state: 'complete',
      via: 'exec',
      equalsAudit: true,
      violations: [],
      audit: { agree: true },
    });
    expect(textOf(collection.files[0]?.bytes ?? new Uint8Array())).toBe('new\n');
    expect(await other.service.kill(engineId)).toMatchObject({ kind: 'stopped' });
    expect(await other.service.remove(engineId)).toEqual({ kind: 'absent' });
  });

  it('has a command of a dead Kernel ended, and says that nobody saw how', async () => {
    const { spec, other, recorded } = await abandoned('fork-and-stay');
    const { engineId } = await named(spec);
    const collection = await collectByExec(other.service, spec, engineId, recorded);
    expect(collection).toMatchObject({
      state: 'partial',
      reason: expect.stringMatching(/^audit-beyond-record: [12]$/),
      equalsAudit: true,
      violations: [],
    });
    expect(textOf(collection.auditLog ?? new Uint8Array())).toContain('"end":{"kind":"cancelled"}');
  });

  it('[32] settles an attempt whose Kernel was killed: bytes, confirmed stop, nothing left', async () => {
    const repo = await exampleRepo();
    const kernel = await startTestKernel({ environment: { ESCROW_ENGINE_HOST: podman.address } });
    try {
      const digest = await prepareContract(kernel.kernel, repo.contract);
      const turnsHeld = [[turns.view, turns.edit], turns.test] as const;
      const { id, container } = await heldAttempt(kernel.kernel, digest, kernel.home, turnsHeld);
      await kernel.kill();
      expect((await bench.engine.inspect(container))?.running).toBe(true);
      const after = await sessionAt(await kernel.connect(), id, 'settled', settled);
      expect(after.attempts[0]).toMatchObject({ settlement: { confirmed: true }, collection: { state: 'complete' } });
      expect(after.candidates).toHaveLength(1);
      expect(await bench.engine.inspect(container)).toBeUndefined();
    } finally {
      await kernel.dispose();
      await repo.dispose();
    }
  });

  it('leaves no volume of a container that it would not make', async () => {
    const spec = bench.spec({ image: { ...bench.image, digest: `sha256:${'0'.repeat(64)}` } });
    await expect(bench.service.provision(spec, async () => {})).rejects.toMatchObject({ code: 'engine' });
    expect(await bench.engine.volumes([`escrow.container=${spec.name}`])).toEqual([]);
    // Control: those of one that is there are.
    expect(await bench.engine.volumes([`escrow.container=${sandbox.name}`])).toHaveLength(5);
  });

  it('lists images also while somebody makes and removes some', async () => {
    const { images } = bench.engine;
    const state = { over: false };
    const others = [1, 2].map(async (k) => {
      for (let n = 0; !state.over; n += 1) {
        const archive = pack();
        archive.entry({ name: 'a' }, `${bench.homeId} ${k} ${n}`);
        archive.finalize();
        await images.remove(await images.import(Readable.from(archive), { 'escrow.home': bench.homeId }));
      }
    });
    try {
      // The image of these tests is among them each time.
      for (let n = 0; n < 60; n += 1) {
        expect((await images.list([])).some(({ id }) => id === bench.image.digest)).toBe(true);
      }
    } finally {
      state.over = true;
      await Promise.all(others);
    }
  });

  it('makes no image over what a Kernel that died had sent of one', async () => {
    const { images } = bench.engine;
    const folder = await mkdtemp(join(tmpdir(), 'escrow-podman-half-'));
    const nodePath = join(folder, 'node');
    await writeFile(nodePath, launcherProgram(), { mode: 0o755 });
    const nodeVersion = 'v0.0.0';
    const archiveOf = (name: string): Readable => {
      const archive = pack();
      archive.entry({ name, mode: 0o644 }, bench.homeId);
      archive.finalize();
      return Readable.from(archive);
    };
    const base = await images.import(archiveOf('etc/base'), {});
    // It ended between two files: to Podman that is an archive.
    const half = await images.import(archiveOf('etc/first'), {
      'escrow.product': 'escrow',
      'escrow.layout': imageLayout,
      'escrow.image': 'flat',
      'escrow.base': base,
      'escrow.node': await fileIdentity(nodePath, nodeVersion),
      'escrow.home': bench.homeId,
    });
    try {
      const made: string[] = [];
      const { digest } = await prepareImage(bench.engine, {
        base,
        nodePath,
        nodeVersion,
        executorPath,
        homeId: bench.homeId,
        log: (_message, part) => made.push(part),
      });
      expect(made).toEqual(['flatten', 'executor']);
      expect(await images.inspect(half)).toBeUndefined();
      await images.remove(digest);
    } finally {
      await removeImages(bench.engine, [base, ...(await images.list([`escrow.base=${base}`])).map(({ id }) => id)]);
      await rm(folder, { recursive: true });
    }
  });

  it('is collected, stopped and gone, its volumes too', async () => {
    const collection = await collect(sandbox);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    expect(textOf(collection.files[0]?.bytes ?? new Uint8Array())).toBe('new\n');
    sandbox.detach();
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped', exitCode: 137 });
    expect(await bench.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
    expect(await bench.engine.volumes([`escrow.container=${sandbox.name}`])).toEqual([]);
  });
});
