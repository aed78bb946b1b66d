// How commands end, and that nothing of them is left, with the real engine.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandResult, Sandbox } from '../../src/server/sandbox/port.ts';
import { command, file, pathOf, python, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
let sandbox: Sandbox;

const commands = [
  command('true', ['true']),
  command('seven', ['sh', '-c', 'exit 7']),
  command('self-kill', ['sh', '-c', 'kill -SEGV $$']),
  command('missing', ['no-such-program']),
  command('not-executable', ['./data.txt']),
  command('bad-interpreter', ['./bad.sh']),
  command('no-format', ['./empty.bin']),
  python('sleep', 'import time; print("started", flush=True); time.sleep(60)', { timeoutS: 1 }),
  python('sleep-long', 'import time; print("started", flush=True); time.sleep(60)'),
  python(
    'deaf',
    `import signal, time
for name in ("SIGTERM", "SIGHUP", "SIGINT"): signal.signal(getattr(signal, name), signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)`,
    { timeoutS: 1 },
  ),
  python('endless-line', 'import os\nwhile True: os.write(1, b"x" * 65536)', { captureKiB: 64 }),
  python('endless-lines', 'import os\nwhile True: os.write(2, b"line\\n" * 1000)', { captureKiB: 64 }),
  python('exactly', 'import os; os.write(1, b"e" * 65536)', { captureKiB: 64 }),
  python('one-more', 'import os; os.write(1, b"e" * 65537)', { captureKiB: 64 }),
  python('one-byte-writes', 'import os\nfor i in range(20000): os.write(1 + i % 2, b"ab"[i % 2:i % 2 + 1])'),
  python('not-text', 'import os; os.write(1, bytes(range(256)) + "ü".encode()[:1])'),
  command('holder', ['sh', '-c', 'sleep 60 & echo leader done']),
  python(
    'daemon',
    `import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("/tmp/daemon-lives", "w").close()
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("/tmp/daemon-lives"): time.sleep(0.01)
print("daemon started")`,
  ),
  python(
    'processes',
    'import os\nprint([p for p in os.listdir("/proc") if p.isdigit() and os.stat("/proc/" + p).st_uid == 10001])',
  ),
  python(
    'wakes-up',
    `import signal, time, os
def again(*_): signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.signal(signal.SIGCONT, again); signal.signal(signal.SIGALRM, again)
again()
if os.fork() == 0:
    while True: time.sleep(0.01)
print("armed", flush=True)
while True: os.kill(0, signal.SIGCONT); time.sleep(0.01)`,
    { timeoutS: 1 },
  ),
  python('fills-tmp', 'with open("/tmp/f", "wb") as f:\n  while True: f.write(b"x" * 65536)'),
  python(
    'fills-and-copes',
    'try:\n  with open("/tmp/f", "wb") as f:\n    while True: f.write(b"x" * 65536)\nexcept OSError: print("coped")',
  ),
  python('no-files-left', 'for i in range(20000): open("/dev/shm/%d" % i, "w").close()'),
  python('too-many', 'import os, time\nfor i in range(200):\n  if os.fork() == 0: time.sleep(20); os._exit(0)'),
  python('holds-300', 'b = bytearray(300 * 1024 * 1024); b[::4096] = b"x" * (len(b) // 4096)'),
  python('stdin', 'import sys; print(repr(sys.stdin.read()))'),
  python('close-all', 'import os\nfor fd in (0, 1, 2): os.close(fd)\nos._exit(3)'),
  python(
    'leave',
    `import os
for where in ("/tmp", "/home/worker", "/dev/shm", "/workspace/cache"):
    os.chdir(where)
    # A thousand levels, far beyond what a path can name.
    for _ in range(1000):
        os.mkdir("d" * 50); os.chdir("d" * 50)
    open("\\udcff\\n", "w").write("x")
    os.chdir(where)
    open("\\udcff\\n", "w").write("x")
    os.chmod("d" * 50, 0)
    os.symlink("/etc", "link")
print("left")`,
  ),
  python(
    'takes-names',
    `import os
for number in [p for p in os.listdir("/proc") if p.isdigit()]:
    for n in range(1, 4): open("/tmp/.escrow-%s-%d" % (number, n), "w").close()
os.makedirs("/tmp/!first/within")`,
  ),
  command('look', ['sh', '-c', 'ls -A /tmp /home/worker /dev/shm; ls -Ab /workspace/cache | wc -l']),
];

beforeAll(async () => {
  bench = await sandboxBench();
  sandbox = await bench.provision({
    files: [
      file('data.txt', 'data\n'),
      file('bad.sh', '#!/no/such/interpreter\n', 0o755),
      file('empty.bin', '\0\0', 0o755),
    ],
    scratch: [pathOf('cache')],
    commands,
  });
});
afterAll(() => bench.dispose());

const run = (id: string, signal?: AbortSignal): Promise<CommandResult> => sandbox.run(id, signal);
const shown = (result: CommandResult) => textOf(result.output);

describe('the end of a command', () => {
  it.each([
    ['true', { kind: 'exit', code: 0 }],
    ['seven', { kind: 'exit', code: 7 }],
    ['self-kill', { kind: 'signal', signal: 'SIGSEGV' }],
    ['missing', { kind: 'spawn-failed', errno: 'ENOENT' }],
    ['not-executable', { kind: 'spawn-failed', errno: 'EACCES' }],
    ['bad-interpreter', { kind: 'spawn-failed', errno: 'ENOENT' }],
    ['no-format', { kind: 'spawn-failed', errno: 'ENOEXEC' }],
    ['sleep', { kind: 'timeout', afterMs: 1000 }],
    ['deaf', { kind: 'timeout', afterMs: 1000 }],
    ['wakes-up', { kind: 'timeout', afterMs: 1000 }],
    ['close-all', { kind: 'exit', code: 3 }],
    ['fills-tmp', { kind: 'no-space', area: '/tmp' }],
    ['no-files-left', { kind: 'no-space', area: '/dev/shm' }],
    ['fills-and-copes', { kind: 'exit', code: 0 }],
    ['too-many', { kind: 'pids' }],
    // What an earlier command met is not this one's.
    ['seven', { kind: 'exit', code: 7 }],
    ['true', { kind: 'exit', code: 0 }],
  ])('%s is told as what it was', async (id, end) => {
    expect((await run(id)).end).toEqual(end);
  });

  it('is cancelled when it is asked for, and says what it had said', async () => {
    const abort = new AbortController();
    const running = run('sleep-long', abort.signal);
    // Its start is on record before the cancellation is sent behind it.
    abort.abort();
    expect((await running).end).toEqual({ kind: 'cancelled' });
    expect((await run('true')).end).toEqual({ kind: 'exit', code: 0 });
  });
  it('is cancelled before it starts when it was cancelled before', async () => {
    expect((await run('true', AbortSignal.abort())).end).toEqual({ kind: 'cancelled' });
  });
});

describe('what is used', () => {
  it('is told of each command, not of the container so far', async () => {
    // In a container that has never used as much, the kernel has its exact peak; else it is looked at now and then.
    const fresh = await bench.provision({ commands });
    const held = await fresh.run('holds-300');
    const after = await fresh.run('true');
    expect(held.peakMemory).toBeGreaterThan(300 * 1024 * 1024);
    expect(after.peakMemory).toBeGreaterThan(0);
    expect(after.peakMemory).toBeLessThan(250 * 1024 * 1024);
  });
});

describe('output', () => {
  it.each(['endless-line', 'endless-lines'])('[26] %s is cut at its limit and ended', async (id) => {
    const result = await run(id);
    expect(result.end).toEqual({ kind: 'overflow', limitBytes: 65_536 });
    expect([result.output.length, result.outputCut]).toEqual([65_536, true]);
  });
  it('[26+] that just fits is whole, one byte more is an overflow', async () => {
    const fits = await run('exactly');
    expect([fits.end.kind, fits.output.length, fits.outputCut]).toEqual(['exit', 65_536, false]);
    expect((await run('one-more')).end.kind).toBe('overflow');
  });
  it('[27+] of twenty thousand one-byte writes is whole', async () => {
    const result = await run('one-byte-writes');
    const text = shown(result);
    expect([result.end.kind, text.replaceAll('b', '').length, text.replaceAll('a', '').length]).toEqual([
      'exit',
      10_000,
      10_000,
    ]);
  });
  it('[30+] that is no text is kept byte by byte', async () => {
    const { output } = await run('not-text');
    expect([...output]).toEqual([...Array.from({ length: 256 }, (_, index) => index), 0xc3]);
  });
});

describe('what a command leaves behind', () => {
  it('[22+] does not delay its end: a background child that holds stdout is ended', async () => {
    const result = await run('holder');
    expect([result.end, shown(result)]).toEqual([{ kind: 'exit', code: 0 }, 'leader done\n']);
    // Of the 60 s that it would sleep.
    expect(result.durationMs).toBeLessThan(25_000);
  });
  it('[15+] is no process: a double-forked daemon is gone afterwards', async () => {
    expect(shown(await run('daemon'))).toBe('daemon started\n');
    // Only the one that looks.
    expect((JSON.parse(shown(await run('processes')).replaceAll("'", '"')) as string[]).length).toBe(1);
  });
  it('[42+] is no file outside scratch, however it is named, nested or locked', async () => {
    expect(shown(await run('leave'))).toBe('left\n');
    expect(shown(await run('look'))).toBe('/dev/shm:\n\n/home/worker:\n\n/tmp:\n3\n');
  });
  it('[42] is no name that would have to be free for that', async () => {
    expect((await run('takes-names')).end).toEqual({ kind: 'exit', code: 0 });
    expect(shown(await run('look'))).toMatch(/\/tmp:\n\d+\n$/);
  });
  it('[23] has no input to wait for', async () => {
    expect(shown(await run('stdin'))).toBe("''\n");
  });
});
