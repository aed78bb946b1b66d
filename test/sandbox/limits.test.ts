// Each limit of the profile by a real attempt to break it. After every attack the supervisor answers and the collection is
// complete; every attack has a control that shows it would have worked within, or without, the limit.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import type { CommandResult, CommandSpec, Sandbox } from '../../src/server/sandbox/port.ts';
import { collect } from '../fixtures/collected.ts';
import { file, pathOf, python, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';
import { fullRun } from '../fixtures/left-out.ts';

let bench: SandboxBench;
let sandbox: Sandbox;
let common: Sandbox | undefined;

const mebibyte = 1024 * 1024;

/** Fills a folder with real, incompressible, non-zero bytes until the kernel says no, and tells how many fit. */
const fill = (id: string, folder: string): CommandSpec =>
  python(
    id,
    `import os, errno
block = os.urandom(65536).replace(b"\\0", b"\\1")
written = 0
fd = os.open("${folder}/fill", os.O_WRONLY | os.O_CREAT)
try:
    while True: written += os.write(fd, block)
except OSError as e: print(errno.errorcode[e.errno], written)`,
  );
/** Makes empty files until the kernel says no, or there are 40,000 (an area takes 20,480 at most), and tells how many. */
const inodes = (id: string, folder: string): CommandSpec =>
  python(
    id,
    `import os, errno
n = 0
try:
    while n < 40000:
        os.close(os.open("${folder}/i%d" % n, os.O_WRONLY | os.O_CREAT)); n += 1
    print("unlimited", n)
except OSError as e: print(errno.errorcode[e.errno], n)`,
  );

const areas = [
  ['tmp', '/tmp', 32, 8192],
  ['home', '/home/worker', 32, 8192],
  ['shm', '/dev/shm', 8, 1024],
  ['scratch', '/workspace/scratch', 64, 20_480],
] as const;

/** Fills the process table with processes that replace themselves all the time, so that no list of pids is ever true. */
const forkBomb = `import os
made = 0
while True:
    try:
        if os.fork() == 0:
            while True:
                try:
                    if os.fork() > 0: os._exit(0)
                except OSError: pass
        made += 1
    except OSError as e:
        print("refused", e.errno, made, flush=True)
        break
while True:
    try:
        if os.fork() == 0: os._exit(0)
    except OSError: pass`;

const forks = (count: number) => `import os, time
made = 0
try:
    for _ in range(${count}):
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
    print("made", made)
except OSError as e: print("refused", e.errno, made)`;

const commands: readonly CommandSpec[] = [
  ...areas.flatMap(([id, folder]) => [fill(`fill-${id}`, folder), inodes(`inodes-${id}`, folder)]),
  // Long enough to be refused before, on a machine that is busy.
  python('fork-bomb', forkBomb, { timeoutS: 8 }),
  // Its deadline is far away: what ends it is the cancellation, however slow the machine is.
  python('fork-bomb-for-ever', forkBomb, { timeoutS: 600 }),
  python('forks-50', forks(50)),
  python('forks-200', forks(200)),
  python(
    'threads',
    `import threading, time
made = 0
try:
    for _ in range(500):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); made += 1
    print("made", made)
except RuntimeError: print("refused", made > 50 and made < 128)
import os; os._exit(0)`,
  ),
  python(
    'zombies',
    `import os
made = 0
try:
    for _ in range(10000):
        if os.fork() == 0: os._exit(0)
        made += 1
except OSError as e: print("refused", e.errno)`,
  ),
  python('allocate-256', 'b = bytearray(256 * 1024 * 1024); b[::4096] = b"x" * (len(b) // 4096); print("held")'),
  // Deadlines are far away: what ends these is the memory, however slow the machine is.
  python('memory-hog', 'held = []\nwhile True: held.append(b"x" * (16 * 1024 * 1024))', { timeoutS: 600 }),
  python(
    'many-hogs',
    `import os
for _ in range(60):
    if os.fork() == 0: break
held = []
while True: held.append(b"x" * (4 * 1024 * 1024))`,
    { timeoutS: 600 },
  ),
  python(
    'memfd-hoard',
    `import os
fds = []
while True:
    fd = os.memfd_create("hoard"); fds.append(fd)
    for _ in range(16): os.write(fd, b"x" * 1048576)`,
    { timeoutS: 600 },
  ),
  python(
    'open-files',
    `import os
n = 0
try:
    while True: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e: print("refused", e.errno, n)`,
  ),
  python(
    'file-size',
    `import os, signal, errno
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open("/workspace/scratch/sparse", os.O_WRONLY | os.O_CREAT)
for size in (60, 65):
    try: os.ftruncate(fd, size * 1024 * 1024); print(size, "ok")
    except OSError as e: print(size, errno.errorcode[e.errno])`,
  ),
  python(
    'raise-limits',
    `import resource
for name in ("NOFILE", "FSIZE", "CORE", "NPROC", "MEMLOCK", "NICE", "RTPRIO", "MSGQUEUE"):
    which = getattr(resource, "RLIMIT_" + name, None)
    if which is None: continue
    soft, hard = resource.getrlimit(which)
    try: resource.setrlimit(which, (hard + 1, hard + 1)); print(name, "raised")
    except (ValueError, OSError): pass
import os
try: os.nice(-1); print("nice raised")
except OSError: pass
print("done")`,
  ),
  python(
    'core',
    `import os, signal
os.chdir("/tmp")
if os.fork() == 0: os.abort()
os.wait()
print(os.listdir("/tmp"))`,
  ),
  python('spin', 'while True: pass', { timeoutS: 1 }),
  python('alive', 'print("alive")'),
];

beforeAll(async () => {
  bench = await sandboxBench();
});

const shown = (result: CommandResult) => textOf(result.output).trim();

const provisioned = (): Promise<Sandbox> =>
  bench.provision({
    files: [file('src/a.py', 'kept\n')],
    writable: [pathOf('src/a.py')],
    scratch: [pathOf('scratch')],
    commands,
  });

/** For attacks whose traces stay: filled folders, memory that ran out. */
async function own(): Promise<void> {
  sandbox = await provisioned();
}

/** For attacks of which nothing is left when their command has ended. The full run gives each of them a sandbox too. */
async function shared(): Promise<void> {
  if (fullRun) await own();
  else {
    common ??= await provisioned();
    sandbox = common;
  }
}

/** What must hold after every attack, once nothing more is tried. */
async function settle(attacked: Sandbox): Promise<void> {
  const collection = await collect(attacked);
  expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [] });
  expect(collection.files.map(({ bytes }) => textOf(bytes))).toEqual(['kept\n']);
  attacked.detach();
  expect(await bench.service.kill(attacked.engineId)).toMatchObject({ kind: 'stopped' });
  expect(await bench.service.remove(attacked.engineId)).toEqual({ kind: 'absent' });
}

afterEach(async () => {
  expect(shown(await sandbox.run('alive'))).toBe('alive');
  const kept = (await sandbox.manifest()).map(({ path, sha256: hash }) => [path, hash]);
  expect(kept).toEqual([['src/a.py', sha256('kept\n')]]);
  if (sandbox !== common) await settle(sandbox);
});
afterAll(async () => {
  if (common !== undefined) await settle(common);
  await bench.dispose();
});

describe('storage', () => {
  it('[8+] [9] each area takes its size in real bytes and its number of files, and no more', async () => {
    await own();
    for (const [id, , size] of areas) {
      const [code, written] = shown(await sandbox.run(`fill-${id}`)).split(' ');
      // Control in the same breath: almost the whole size could be written.
      expect([id, code, Number(written) > (size - 1) * mebibyte, Number(written) <= size * mebibyte]).toEqual([
        id,
        'ENOSPC',
        true,
        true,
      ]);
    }
    // Scratch is not cleared between commands, so its files are counted in a sandbox of their own below.
    for (const [id, , , files] of areas.slice(0, 3)) {
      const [code, made] = shown(await sandbox.run(`inodes-${id}`)).split(' ');
      expect([id, code, Number(made) > files - 64, Number(made) <= files]).toEqual([id, 'ENOSPC', true, true]);
    }
  });
  it('[9] a workspace without inodes is still collected', async () => {
    await own();
    const [code, made] = shown(await sandbox.run('inodes-scratch')).split(' ');
    expect([code, Number(made) > 20_000]).toEqual(['ENOSPC', true]);
  });
  it('[9=] without an inode limit, files would fill the memory (control)', async () => {
    await shared();
    const code = inodes('x', '/unlimited').argv;
    const { output } = await bench.unprotected(code, { Tmpfs: { '/unlimited': 'size=8m,nr_inodes=0,mode=1777' } });
    expect(output.trim()).toBe('unlimited 40000');
  });
  it('[10+] a file can be no larger than the limit, sparse or not', async () => {
    await shared();
    expect(shown(await sandbox.run('file-size'))).toBe('60 ok\n65 EFBIG');
  });
  it('[14] no core is dumped', async () => {
    await shared();
    expect(shown(await sandbox.run('core'))).toBe('[]');
  });
});

describe('processes', () => {
  it('[1+] fifty children are fine, two hundred are not', async () => {
    await shared();
    expect(shown(await sandbox.run('forks-50'))).toBe('made 50');
    expect(shown(await sandbox.run('forks-200'))).toMatch(/^refused 11 \d+$/);
  });
  it('[1] a respawning fork bomb is ended at its deadline', async () => {
    await shared();
    const result = await sandbox.run('fork-bomb');
    expect([result.end.kind, shown(result).split(' ')[0]]).toEqual(['timeout', 'refused']);
  });
  it('[2] a respawning fork bomb is ended when it is cancelled', async () => {
    await shared();
    const abort = new AbortController();
    const running = sandbox.run('fork-bomb-for-ever', abort.signal);
    // The supervisor answers while the bomb goes on.
    for (let index = 0; index < 300; index += 1) await sandbox.read(pathOf('src/a.py'), 'agent');
    abort.abort();
    expect((await running).end).toEqual({ kind: 'cancelled' });
  });
  it('[4] threads count as well', async () => {
    await shared();
    expect(shown(await sandbox.run('threads'))).toBe('refused True');
  });
  it('[3] ten thousand zombies are refused and reaped', async () => {
    await shared();
    expect(shown(await sandbox.run('zombies'))).toBe('refused 11');
    expect(shown(await sandbox.run('forks-50'))).toBe('made 50');
  });
  it('limits can only be lowered', async () => {
    await shared();
    expect(shown(await sandbox.run('raise-limits'))).toBe('done');
  });
  it('[5] descriptors end at their number, the supervisor keeps its own', async () => {
    await shared();
    expect(shown(await sandbox.run('open-files'))).toMatch(/^refused 24 10[12]\d$/);
  });
  it('[13] a spinning program ends at its deadline', async () => {
    await shared();
    expect((await sandbox.run('spin')).end.kind).toBe('timeout');
  });
});

describe('memory', () => {
  it('[6=] what fits is held (control)', async () => {
    // Its exact peak is the kernel's where the container has never used as much.
    await own();
    const result = await sandbox.run('allocate-256');
    expect([result.end.kind, shown(result)]).toEqual(['exit', 'held']);
    expect(result.peakMemory).toBeGreaterThan(256 * mebibyte);
  });
  it.each<readonly [string, string]>([
    ['memory-hog', '[6]'],
    ...(fullRun ? [['many-hogs', '[6]'] as const] : []),
    ['memfd-hoard', '[11]'],
  ])('%s %s is ended for lack of memory, the supervisor is not', async (id) => {
    await own();
    expect((await sandbox.run(id)).end).toEqual({ kind: 'oom' });
  });
});
