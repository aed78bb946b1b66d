// Attacks that succeed where the protection is off: each is run in the sandbox and, as its control, in a plain
// container of the same files. Numbers are those of the adversarial list (scripts/lib/adversarial-cases.ts).
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { insidePaths } from '../../src/protocol/executor.ts';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { collect } from '../fixtures/collected.ts';
import { eventually } from '../fixtures/kernel.ts';
import { file, pathOf, python, rootProgram, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

const kernelCalls = `import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(name, nr, *args):
    r = libc.syscall(nr, *args)
    print(name, errno.errorcode.get(ctypes.get_errno(), "?") if r < 0 else "allowed")
call("shmget", 29, 0, 64 << 20, 0o1600)
call("msgget", 68, 0, 0o1600)
call("mq_open", 240, b"queue", 0o102, 0o600, 0)
call("ptrace", 101, 0, 0, 0, 0)
call("process_vm_readv", 310, 1, 0, 0, 0, 0, 0)`;

const many = `import os, threading, time
kids = 0
try:
    for _ in range(200):
        if os.fork() == 0: time.sleep(5); os._exit(0)
        kids += 1
    print("children", kids)
except OSError as e: print("children refused")
ran = 0
try:
    for _ in range(200): threading.Thread(target=time.sleep, args=(3,), daemon=True).start(); ran += 1
    print("threads", ran)
except RuntimeError: print("threads refused")
os.system("true")
os.kill(-1, 9) if os.getuid() != 0 and os.getpid() == 1 else os._exit(0)`;

const zombies = `import os
made = 0
try:
    for _ in range(1000):
        if os.fork() == 0: os._exit(0)
        made += 1
except OSError: pass
print("all" if made == 1000 else "refused")`;

const descriptors = `import os
n = 0
try:
    while n < 3000: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e: pass
print("unbounded" if n == 3000 else "refused")`;

const core = `import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
try: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)); print("can dump")
except (ValueError, OSError): print("refused")`;

const setId = `import os
print("ignored" if os.statvfs("/tmp").f_flag & 2 else "honoured")`;

const environment = `import os
print(sorted(k for k in os.environ if k.startswith(("NODE_", "LD_", "GIT_", "PYTHON")) and k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED")), os.environ.get("PATH"))`;

/** Says what it saw, leaves a mark that somebody can wait for, and stays. */
const stay = (id: string): string => `open("/workspace/scratch/${id}", "w").close()
time.sleep(600)`;

const deaf = `import os, signal, time
r, w = os.pipe()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, lambda *_: os.write(w, b"2"))
    for name in ("SIGTERM", "SIGHUP", "SIGINT"): signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.write(w, b"1")
    while True: time.sleep(1)
os.close(w)
os.read(r, 1)
for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1"): os.kill(child, getattr(signal, name))
# It answers the last one, or it is gone and has answered nothing.
print("survives" if os.read(r, 1) == b"2" else "ended", flush=True)
${stay('deaf')}`;

const thawed = `import os, signal, time
out = os.open("/tmp/count", os.O_RDWR | os.O_CREAT)
child = os.fork()
if child == 0:
    n = 0
    def tick(*_):
        global n
        n += 1; os.pwrite(out, b"%08d" % n, 0); signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.signal(signal.SIGALRM, tick); signal.signal(signal.SIGCONT, tick); tick()
    while True: time.sleep(1)
def count(): return int(os.pread(out, 8, 0) or b"0")
while count() == 0: time.sleep(0.01)
os.kill(child, signal.SIGSTOP); os.waitpid(child, os.WUNTRACED)
before = count(); os.kill(child, signal.SIGCONT)
while count() == before: time.sleep(0.01)
print("writes on", flush=True)
${stay('thawed')}`;

const input = `import os, select, sys
r, w = os.pipe()
print("a pipe waits" if select.select([r], [], [], 0.2)[0] == [] else "?")
print("stdin", repr(sys.stdin.read()))`;

const commands = [
  python('kernel-calls', kernelCalls),
  python('many', many),
  python('zombies', zombies),
  python('descriptors', descriptors),
  python('core', core),
  python('set-id', setId),
  python('environment', environment),
  python('deaf', deaf, { timeoutS: 600 }),
  python('thawed', thawed, { timeoutS: 600 }),
  python('input', input),
  python(
    'processes',
    'import os\nprint(len([p for p in os.listdir("/proc") if p.isdigit() and os.stat("/proc/" + p).st_uid == 10001]))',
  ),
  python(
    'memfd-some',
    'import os\nfd = os.memfd_create("some")\nfor _ in range(64): os.write(fd, b"x" * 1048576)\nprint("held")',
  ),
  python(
    'short-spin',
    'import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint("ended")',
  ),
  python('sleep', 'import time; time.sleep(60)', { timeoutS: 1 }),
  python(
    'allocated',
    `import os, errno
fd = os.open("/tmp/sparse", os.O_WRONLY | os.O_CREAT)
os.ftruncate(fd, 30 << 20); print("sparse", os.fstat(fd).st_blocks)
try: os.posix_fallocate(fd, 0, 40 << 20); print("allocated")
except OSError as e: print(errno.errorcode[e.errno])
os.posix_fallocate(fd, 0, 20 << 20); print("control", os.fstat(fd).st_blocks * 512 >= 20 << 20)`,
  ),
  python(
    'sockets-left',
    'import socket\ns = socket.socket(socket.AF_UNIX); s.bind("/workspace/scratch/s"); print("bound")',
  ),
];

let bench: SandboxBench;
let sandbox: Sandbox;
beforeAll(async () => {
  bench = await sandboxBench();
  sandbox = await bench.provision({
    files: [file('src/a.py', 'kept\n')],
    writable: [pathOf('src/a.py')],
    scratch: [pathOf('scratch')],
    commands,
  });
});
afterAll(() => bench.dispose());

const said = async (id: string): Promise<string> => textOf((await sandbox.run(id)).output).trim();
/** Runs a command until it has left its mark; then it is cancelled. */
async function stayed(id: string): Promise<readonly [output: string, end: string]> {
  const cancel = new AbortController();
  const running = sandbox.run(id, cancel.signal);
  const over = running.then(
    () => true,
    () => true,
  );
  const look = `console.log(fs.existsSync('/workspace/scratch/${id}'))`;
  const marked = async () => (await rootProgram(bench.engine, sandbox.engineId, look)) === 'true\n';
  await eventually(`${id} has seen what it looks for`, () => Promise.race([over, marked()]));
  cancel.abort();
  const { output, end } = await running;
  return [textOf(output).trim(), end.kind];
}
const open = { SecurityOpt: ['seccomp=unconfined'] };
const unprotected = async (code: string, hostConfig: Record<string, unknown> = {}): Promise<string> =>
  (await bench.unprotected(['python3', '-c', code], hostConfig)).output.trim();

describe('in the sandbox', () => {
  it('[7] [12] [20] shared memory, message queues and tracing are refused', async () => {
    const lines = (await said('kernel-calls')).split('\n');
    expect(lines.map((line) => line.split(' ')[1])).toEqual(['EPERM', 'EPERM', 'EPERM', 'EPERM', 'EPERM']);
  });
  it('[7=] [12=] [20=] the same calls are allowed without the filter (control)', async () => {
    const text = await unprotected(kernelCalls, open);
    for (const name of ['shmget', 'msgget', 'mq_open', 'ptrace']) expect(text).toContain(`${name} allowed`);
  });
  it('[1] [4] two hundred children and as many threads are refused', async () => {
    expect(await said('many')).toContain('children refused');
  });
  it('[1=] [2=] [4=] the same children and threads are made without a process limit (control)', async () => {
    const text = await unprotected(many);
    expect(text).toContain('children 200');
    expect(text).toContain('threads 200');
  });
  it('[3] a thousand zombies are refused', async () => {
    expect(await said('zombies')).toBe('refused');
  });
  it('[3=] the same zombies are made without a process limit (control)', async () => {
    expect(await unprotected(zombies)).toBe('all');
  });
  it('[5] three thousand descriptors are refused', async () => {
    expect(await said('descriptors')).toBe('refused');
  });
  it('[5=] the same descriptors are opened under a higher limit (control)', async () => {
    const Ulimits = [{ Name: 'nofile', Soft: 8192, Hard: 8192 }];
    expect(await unprotected(descriptors, { Ulimits })).toBe('unbounded');
  });
  it('[10+] a sparse file claims nothing, an allocated one no more than there is', async () => {
    expect((await said('allocated')).split('\n')).toEqual(['sparse 0', 'ENOSPC', 'control True']);
  });
  it('[11=] anonymous files within the memory limit are held (control)', async () => {
    expect(await said('memfd-some')).toBe('held');
  });
  it('[13] sleeping past the wall clock ends at the deadline', async () => {
    expect((await sandbox.run('sleep')).end).toEqual({ kind: 'timeout', afterMs: 1000 });
  });
  it('[13=] a program that spins within its time ends by itself (control)', async () => {
    expect(await said('short-spin')).toBe('ended');
  });
  it('[14] no core dump can be allowed', async () => {
    expect(await said('core')).toBe('refused');
  });
  it('[14=] it can be where the limit is off (control)', async () => {
    expect(await unprotected(core, { Ulimits: [{ Name: 'core', Soft: 0, Hard: 1 << 30 }] })).toBe('can dump');
  });
  it('[16+] what ignores TERM, HUP and INT is ended all the same', async () => {
    expect(await stayed('deaf')).toEqual(['survives', 'cancelled']);
    expect(await said('processes')).toBe('1');
  });
  it('[17+] what writes on after a stop and a continue is ended all the same', async () => {
    expect(await stayed('thawed')).toEqual(['writes on', 'cancelled']);
    expect(await said('processes')).toBe('1');
  });
  it('[21=] the supervisor, whose child it is, holds more than three (control)', async () => {
    const code = `console.log(fs.readdirSync('/proc').filter((p) => /^\\d+$/.test(p)).map((p) => { try { return fs.readFileSync('/proc/' + p + '/cmdline', 'utf8').includes('executor.cjs') ? fs.readdirSync('/proc/' + p + '/fd').length : 0 } catch { return 0 } }).reduce((a, b) => Math.max(a, b)))`;
    expect(Number(await rootProgram(bench.engine, sandbox.engineId, code))).toBeGreaterThan(5);
  });
  it('[23+] there is no input to wait for, where a pipe would', async () => {
    expect((await said('input')).split('\n')).toEqual(['a pipe waits', "stdin ''"]);
  });
  it('[24] a set-id bit means nothing', async () => {
    expect(await said('set-id')).toBe('ignored');
  });
  it('[24=] it means something in a plain container (control)', async () => {
    expect(await unprotected(setId)).toBe('honoured');
  });
  it('[25] variables that loaders and tools obey do not come in', async () => {
    expect(await said('environment')).toMatch(/^\[\] /);
    expect(await said('environment')).not.toContain(insidePaths.workspace);
  });
  it('[25=] they do in a plain container that is given them (control)', async () => {
    const env = ['NODE_OPTIONS=--require=/evil.js', 'LD_LIBRARY_PATH=/evil', 'GIT_DIR=/evil', 'PYTHONSTARTUP=/evil.py'];
    const { output } = await bench.unprotected(['python3', '-c', environment], {}, { env });
    expect(output).toContain("['GIT_DIR', 'LD_LIBRARY_PATH', 'NODE_OPTIONS', 'PYTHONSTARTUP']");
  });
  it('[6] [8] [9] [11] after all of this the bytes are collected whole', async () => {
    await sandbox.run('sockets-left');
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true, violations: [] });
  });
});
