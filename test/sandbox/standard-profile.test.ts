// Profile `standard`: its numbers by real attempts, and the limits read back as for `bounded`.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { collect } from '../fixtures/collected.ts';
import { bytesOf, file, pathOf, python, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
let sandbox: Sandbox | undefined;

beforeAll(async () => {
  bench = await sandboxBench();
});
afterEach(async () => {
  sandbox?.detach();
  if (sandbox === undefined) return;
  await bench.service.kill(sandbox.engineId);
  await bench.service.remove(sandbox.engineId);
  sandbox = undefined;
});
afterAll(() => bench.dispose());

const fill = (id: string, name: string) =>
  python(
    id,
    `import errno, os
block = os.urandom(1 << 20)
written = 0
fd = os.open("${name}", os.O_WRONLY | os.O_CREAT)
try:
    while written < 2 << 30: written += os.write(fd, block)
except OSError as e: print(errno.errorcode[e.errno], written >> 20)`,
    { timeoutS: 60 },
  );

describe('profile standard', () => {
  it('is in force, in the kernel’s own words, and is not bounded', async () => {
    sandbox = await bench.provision({ profile: 'standard' });
    expect(sandbox.limits.filter(({ inForce }) => !inForce)).toEqual([]);
    const wanted = new Map(sandbox.limits.map(({ name, wanted: text }) => [name, text]));
    expect(wanted.get('memory')).toBe(String(6 * 1024 ** 3));
    expect(wanted.get('pids')).toBe('256');
    expect(wanted.get('tmpfs /workspace')).toMatch(/^536870912 bytes, 65536 inodes, 755 of 0, .* exec$/);
    expect(wanted.get('tmpfs /tmp')).toMatch(/^268435456 bytes, 32768 inodes, 1777 of 0, .* exec$/);
    expect(wanted.get('tmpfs /home/worker')).toMatch(/^268435456 bytes, .* noexec$/);
    expect(wanted.get('tmpfs /exchange')).toMatch(/^16777216 bytes/);
    expect(wanted.get('tmpfs /dev/shm')).toMatch(/^67108864 bytes/);
    expect(bench.service.profileDigest('standard')).not.toBe(bench.service.profileDigest('bounded'));
  });

  it('has the room that it says, in real bytes and processes, and no more; scratch takes what tools write', async () => {
    const forks = (id: string, wanted: number) =>
      python(
        id,
        `import os, time
made = 0
try:
    while made < ${wanted}:
        if os.fork() == 0: time.sleep(5); os._exit(0)
        made += 1
    print("all", made)
except OSError as e: print("refused", made)`,
      );
    sandbox = await bench.provision({
      profile: 'standard',
      scratch: [pathOf('target')],
      files: [file('src/a.txt', 'a')],
      commands: [
        fill('scratch', '/workspace/target/fill'),
        fill('tmp', '/tmp/fill'),
        fill('home', '/home/worker/fill'),
        fill('shm', '/dev/shm/fill'),
        forks('some', 200),
        forks('many', 400),
        python(
          'exec',
          'import os; open("/tmp/p", "w").write("#!/bin/sh\\necho ran\\n"); os.chmod("/tmp/p", 0o755); os.execv("/tmp/p", ["p"])',
        ),
        python('not-scratch', 'open("/workspace/src/b", "w")'),
      ],
    });
    const said = async (id: string) => textOf((await sandbox?.run(id))?.output ?? new Uint8Array()).trim();
    const [code, mebibytes] = (await said('scratch')).split(' ');
    expect(code).toMatch(/ENOSPC|EFBIG/);
    expect(Number(mebibytes)).toBeGreaterThan(500);
    expect(Number(mebibytes)).toBeLessThanOrEqual(512);
    expect(await said('tmp')).toBe('ENOSPC 256');
    expect(await said('home')).toBe('ENOSPC 256');
    expect(await said('shm')).toBe('ENOSPC 64');
    expect(await said('some')).toBe('all 200');
    expect(await said('many')).toMatch(/^refused 2\d\d$/);
    expect(await said('exec')).toBe('ran');
    expect(await said('not-scratch')).toContain('Permission');
    await sandbox.quiesce();
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', violations: [], auditLog: expect.anything() });
  });
});

describe('what may be kept of a session', () => {
  it('bounds what changed files may have together, said at the write and not at the end', async () => {
    const [a, b] = [pathOf('src/a.txt'), pathOf('src/b.txt')];
    const old = 'old and long enough to be more than may change';
    sandbox = await bench.provision({
      profile: 'standard',
      files: [file('src/a.txt', old), file('src/b.txt', 'b')],
      writable: [a, b],
      mayChange: 10,
    });
    const write = (path: typeof a, text: string, before: string) => sandbox?.write(path, bytesOf(text), sha256(before));
    await expect(write(a, '12345678901', old)).rejects.toMatchObject({
      code: 'too-large',
      message: expect.stringContaining('10 more can be kept'),
    });
    await write(a, '1234567890', old);
    await expect(write(b, 'x', 'b')).rejects.toMatchObject({ code: 'too-large' });
    await write(a, '123', '1234567890');
    await write(b, '1234567', 'b');
    // As it was placed, it is nothing that has to be kept again.
    await write(a, old, '123');
    await write(b, '1234567890', '1234567');
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true, violations: [] });
  });
});
