// What no limit of a container counts: a command that has the kernel keep much of it is ended. Each control is the same
// program in a plain container, where it holds more than is allowed here.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { collect } from '../fixtures/collected.ts';
import { file, pathOf, python, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

/** 1,200 of them, more than one process has descriptors for: half of them are on their way through a socket. */
const many = `held = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)]
for _ in range(6):
    some = [one() for _ in range(100)]; socket.send_fds(held[0][0], [b"x"], [s.fileno() for s in some]); del some
held += [one() for _ in range(600)]`;

const hoards = {
  tcp: `import socket
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(300)
while size < 160 << 20:
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); held.append((a, b))
    a.setblocking(False)
    try:
        while True: size += a.send(bytes(65536))
    except BlockingIOError: pass`,
  udp: `import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(400):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0)); held.append(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    for _ in range(10): size += sender.sendto(bytes(60000), s.getsockname())`,
  reset: `import array, fcntl, socket, struct, termios
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(300)
while size < 160 << 20:
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); held.append(b)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24); a.setblocking(False)
    try:
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
    waits = array.array("i", [0]); fcntl.ioctl(b, termios.FIONREAD, waits); size += waits[0]
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); a.close()`,
  disconnected: `import ctypes, socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sender.bind(("127.0.0.1", 0))
for _ in range(400):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(sender.getsockname()); held.append(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    for _ in range(10): size += sender.sendto(bytes(60000), s.getsockname())
    ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16)`,
  netlink: `import socket, struct
ask = struct.pack("=IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0)
def one():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0))
    for _ in range(10): s.send(ask)
    return s
${many}`,
  sockets: `import socket
def one(): s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); return s
${many}`,
  locks: `import fcntl, os
for n in range(100):
    fd = os.open("/tmp/%d" % n, os.O_RDWR | os.O_CREAT); held.append(fd)
    for at in range(0, 600, 2): fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at); size += 1`,
};
type Hoard = keyof typeof hoards;
const names = Object.keys(hoards) as readonly Hoard[];

const hold = (name: Hoard): string => `held, size = [], 0\n${hoards[name]}\nprint("held", flush=True)`;

/** MPTCP, SCTP (by its number and by its type), UDP-Lite and ICMP; then what is spoken everywhere. */
const protocols = `import errno, socket
said = []
for kind, protocol in ((1, 262), (1, 132), (5, 0), (2, 136), (2, 1), (1, 6), (2, 17), (1, 0), (2, 0)):
    try: socket.socket(socket.AF_INET, kind, protocol).close(); said.append("None")
    except OSError as e: said.append(errno.errorcode[e.errno])
print(*said)`;

let bench: SandboxBench;
let sandbox: Sandbox;
beforeAll(async () => {
  bench = await sandboxBench();
  sandbox = await bench.provision({
    files: [file('src/a.py', 'kept\n')],
    writable: [pathOf('src/a.py')],
    commands: [
      // Its deadline is far away: what ends it is the look at what it holds, however slow the machine is.
      ...names.map((name) => python(name, `${hold(name)}\nimport time; time.sleep(600)`, { timeoutS: 600 })),
      python('protocols', protocols),
      python(
        'within',
        `import socket, fcntl, time
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(200)
held = []
for _ in range(300):
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); held.append((a, b)); a.send(bytes(10000))
with open("/tmp/locked", "w") as locked:
    for at in range(0, 2000, 2): fcntl.lockf(locked, fcntl.LOCK_EX, 1, at)
    time.sleep(1)
print("held")`,
      ),
    ],
  });
});
afterAll(() => bench.dispose());

describe('what no limit of a container counts', () => {
  it.each(names)('[11] %s without end are the end of the command, and nothing of them is left', async (name) => {
    const { end } = await sandbox.run(name);
    expect(end).toEqual({ kind: 'hoard', of: name === 'locks' ? 'locks' : 'sockets' });
  });

  it.each(names)('[11=] %s as many are held where nobody looks (control)', async (name) => {
    expect((await bench.unprotected(['python3', '-c', hold(name)])).output).toBe('held\n');
  });

  it('[51+] nor can a protocol be spoken whose buffers are told nowhere', async () => {
    expect(textOf((await sandbox.run('protocols')).output).trim()).toBe(
      'EPERM EPERM EPERM EPERM EPERM None None None None',
    );
    const control = await bench.unprotected(['python3', '-c', protocols], { SecurityOpt: ['seccomp=unconfined'] });
    // Whichever of them the kernel has: it is our filter that refuses.
    expect(control.output.trim()).not.toContain('EPERM');
  });

  it('[11=] is not said of a command that holds some, also after all of those', async () => {
    const { end, output } = await sandbox.run('within');
    expect([end, textOf(output)]).toEqual([{ kind: 'exit', code: 0 }, 'held\n']);
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true, violations: [] });
  });
});
