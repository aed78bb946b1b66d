// The core of the sandbox on Podman's compatible API: made, limited as read back, used, quiesced, collected, gone. The
// whole suite runs there with ESCROW_TEST_ENGINE=podman (npm run test:full does).
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { podmanInstalled, podmanService, type PodmanService } from '../fixtures/podman.ts';
import {
  bytesOf,
  command,
  file,
  pathOf,
  python,
  sandboxBench,
  textOf,
  type SandboxBench,
} from '../fixtures/sandbox.ts';

const path = pathOf('src/a.py');
const installed = await podmanInstalled();

describe.skipIf(!installed)('on Podman', () => {
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
  }, 180_000);
  afterAll(async () => {
    await bench?.dispose();
    await podman?.close();
  });

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

  it('is collected, stopped and gone, its volumes too', async () => {
    const collection = await sandbox.collect();
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    expect(textOf(collection.files[0]?.bytes ?? new Uint8Array())).toBe('new\n');
    sandbox.detach();
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped', exitCode: 137 });
    expect(await bench.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
    expect(await bench.engine.volumes([`escrow.home=${bench.homeId}`])).toEqual([]);
  });
});
