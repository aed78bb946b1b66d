// What takes room without being a file of a command: the supervisor's own area, and what the kernel keeps for pipes.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { collect, collectByExec } from '../fixtures/collected.ts';
import {
  bytesOf,
  file,
  pathOf,
  python,
  rootProgram,
  sandboxBench,
  textOf,
  type SandboxBench,
} from '../fixtures/sandbox.ts';

const mebibyte = 1024 * 1024;
let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const path = pathOf('src/a.py');
const files = { files: [file('src/a.py', 'old\n')], writable: [path] };

describe('the area of the supervisor', () => {
  const fill = `
const block = require('crypto').randomBytes(65536).map((byte) => byte | 1);
const file = fs.openSync('/exchange/fill', 'w');
let written = 0;
try { for (;;) written += fs.writeSync(file, block); } catch (error) { console.log(error.code, written); }`;

  it('[8+] takes its size in real bytes and no more; what then can’t be recorded is no claim, and the bytes are kept', async () => {
    const spec = bench.spec(files);
    const sandbox = await bench.service.provision(spec, async () => {});
    await sandbox.write(path, bytesOf('new\n'), sha256('old\n'));
    const [code, written] = (await rootProgram(bench.engine, sandbox.engineId, fill)).trim().split(' ');
    expect([code, Number(written) > 15 * mebibyte, Number(written) <= 16 * mebibyte]).toEqual(['ENOSPC', true, true]);
    // The last page of the log has room for a part of this.
    await expect(sandbox.deny('x'.repeat(4096), 'longer than a page')).rejects.toMatchObject({ code: 'channel' });
    // Not even that the work is over can be recorded: the supervisor hands out nothing, the reader without it does.
    expect(await collect(sandbox)).toMatchObject({ state: 'none', audit: { agree: false } });
    const collection = await collectByExec(bench.service, spec, sandbox.engineId, sandbox.witness);
    expect(collection).toMatchObject({
      state: 'partial',
      reason: expect.stringContaining('audit-damaged'),
      audit: { agree: false },
    });
    expect(collection.files.map(({ bytes }) => textOf(bytes))).toEqual(['new\n']);
    sandbox.detach();
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped' });
  });

  it('[9+] takes its number of files and no more; with room again the record goes on', async () => {
    const sandbox = await bench.provision(files);
    const program = `
let made = 0;
try { for (;;) { fs.closeSync(fs.openSync('/exchange/i' + made, 'w')); made += 1; } } catch (error) { console.log(error.code, made); }
for (let n = 0; n < made; n += 1) fs.unlinkSync('/exchange/i' + n);`;
    const [code, made] = (await rootProgram(bench.engine, sandbox.engineId, program)).trim().split(' ');
    expect([code, Number(made) > 1000, Number(made) <= 1024]).toEqual(['ENOSPC', true, true]);
    await sandbox.write(path, bytesOf('new\n'), sha256('old\n'));
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true, audit: { agree: true } });
    sandbox.detach();
  });
});

describe('pipes', () => {
  /** Thirty processes with as many pipes as they may open, each as large as it may be and full. */
  const hoard = `import fcntl, os, time
def hold():
    held = 0
    try:
        while True:
            r, w = os.pipe()
            try: fcntl.fcntl(w, 1031, 1 << 20)
            except OSError: pass
            os.set_blocking(w, False)
            try:
                while True: held += os.write(w, b"x" * 65536)
            except BlockingIOError: pass
    except OSError: pass
    return held
r, w = os.pipe()
for _ in range(30):
    if os.fork() == 0:
        os.write(w, b"%012d" % hold())
        time.sleep(60)
        os._exit(0)
held = 0
for _ in range(30): held += int(os.read(r, 12))
print(held)`;

  it('are counted as the memory of their sandbox, end at their number, and leave the supervisor what it needs', async () => {
    const sandbox = await bench.provision({
      ...files,
      commands: [python('hoard', hoard), python('alive', 'print(1)')],
    });
    const before = (await sandbox.run('alive')).peakMemory ?? 0;
    const { end, output, peakMemory } = await sandbox.run('hoard');
    const held = Number(textOf(output));
    expect(end).toEqual({ kind: 'exit', code: 0 });
    // Control: they held something worth counting.
    expect(held).toBeGreaterThan(32 * mebibyte);
    expect((peakMemory ?? 0) - before).toBeGreaterThan(held * 0.9);
    // They are gone with the processes that held them.
    expect((await sandbox.run('alive')).peakMemory).toBeLessThan(before + held / 2);
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true });
    sandbox.detach();
  });
});

/** Podman 4.3 has no flag and no event for it on control groups v1: only the count that this machine reads can say it. */
const docker = process.env['ESCROW_TEST_ENGINE'] !== 'podman';

describe('memory that runs out although no command runs', () => {
  /** Processes of root, each far smaller than the supervisor: when nothing is left, it is the one that is ended. */
  const crowd = `import os, time
for _ in range(108):
    if os.fork() == 0:
        held = bytearray(20 << 20)
        held[::4096] = b"x" * (len(held) // 4096)
        time.sleep(60)
time.sleep(60)`;

  it('[6] ends the supervisor, and those who lived to tell say what it was', async () => {
    const sandbox = await bench.provision({ ...files, commands: [python('alive', 'print(1)')] });
    await sandbox.run('alive');
    const { output } = await bench.engine.exec(sandbox.engineId, ['python3', '-c', crowd]);
    output.resume();
    expect(await sandbox.ended).toEqual({ kind: 'stream-ended' });
    const stop = await bench.service.kill(sandbox.engineId);
    expect(stop).toMatchObject({ kind: 'stopped', exitCode: 137, oomKilled: docker, oom: { flag: docker } });
    if (stop.kind !== 'stopped') throw new Error('not stopped');
    const { events, host, inside, ended, eventsWhole } = stop.oom;
    if (docker) {
      expect(events).toBeGreaterThan(0);
      expect({ eventsWhole, ended }).toEqual({ eventsWhole: true, ended: true });
    } else {
      // There it is said where this machine came to the count before the engine removed it, and not otherwise.
      expect({ events, ended }).toEqual({ events: null, ended: (host ?? 0) > (inside ?? 0) });
    }
    expect(await collect(sandbox)).toMatchObject({ state: 'none', files: [] });
    // What it had used until then is kept all the same.
    expect(bench.service.monitored(sandbox.engineId)?.peaks.samples).toBeGreaterThan(0);
    output.destroy();
  });

  it('[6] is told as well where a command made itself as good as the supervisor, which the kernel lets it do', async () => {
    // Processes far smaller than the supervisor that hold what no process is charged with.
    const hoard = python(
      'hoard',
      `import os
open("/proc/self/oom_score_adj", "w").write("0")
while True: os.posix_fallocate(os.memfd_create("hoard"), 0, 32 << 20)`,
      { timeoutS: 600 },
    );
    const sandbox = await bench.provision({ ...files, commands: [hoard] });
    await expect(sandbox.run('hoard')).rejects.toMatchObject({ code: 'channel' });
    const stop = await bench.service.kill(sandbox.engineId);
    expect(stop).toMatchObject({ kind: 'stopped', exitCode: 137, oomKilled: docker });
    if (docker) expect(stop).toMatchObject({ oom: { eventsWhole: true, ended: true } });
    expect(await collect(sandbox)).toMatchObject({ state: 'none', files: [] });
  });

  it('[6=] is not said of one that was only killed (control), nor of one that outlived the shortage of a command', async () => {
    const hog = python('hog', 'held = []\nwhile True: held.append(b"x" * (1 << 24))');
    const sandbox = await bench.provision({ ...files, commands: [hog] });
    expect((await sandbox.run('hog')).end).toEqual({ kind: 'oom' });
    const { monitor } = await collect(sandbox);
    sandbox.detach();
    const stop = await bench.service.kill(sandbox.engineId);
    // The supervisor and this machine read the same count of the kernel’s; the engine counts for itself.
    expect(stop).toMatchObject({
      kind: 'stopped',
      exitCode: 137,
      oom: { inside: 1, host: 1, flag: docker, eventsWhole: docker, ended: false },
    });
    if (stop.kind !== 'stopped') throw new Error('not stopped');
    if (docker) expect(stop.oom.events).toBeGreaterThan(0);
    expect(monitor?.peaks).toMatchObject({ oomKills: 1, oomEvents: stop.oom.events });

    const other = await bench.provision(files);
    other.detach();
    expect(await bench.service.kill(other.engineId)).toMatchObject({
      kind: 'stopped',
      exitCode: 137,
      oomKilled: false,
      oom: { flag: false, events: docker ? 0 : null, ended: false },
    });
  });

  it('[6=] nor of one whose supervisor somebody had the engine kill after such a shortage', async () => {
    const hog = python('hog', 'held = []\nwhile True: held.append(b"x" * (1 << 24))');
    const sandbox = await bench.provision({ ...files, commands: [hog] });
    await sandbox.run('hog');
    await bench.engine.kill(sandbox.engineId);
    expect((await sandbox.ended).kind).toBe('stream-ended');
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped', oom: { ended: false } });
  });
});
