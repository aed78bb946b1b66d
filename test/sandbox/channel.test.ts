// The channel when its peers die, lie, shout or are somebody else, with the real engine.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { channelBounds, executorProtocol } from '../../src/protocol/executor.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import type { Sandbox, SandboxSpec } from '../../src/server/sandbox/port.ts';
import { collect, collectByExec } from '../fixtures/collected.ts';
import { eventually } from '../fixtures/kernel.ts';
import {
  bytesOf,
  command,
  file,
  pathOf,
  python,
  rootProgram,
  sandboxBench,
  textOf,
  type SandboxBench,
  type SpecParts,
} from '../fixtures/sandbox.ts';
import { supervisorClient, type SupervisorClient } from '../fixtures/supervisor-client.ts';

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const path = pathOf('src/a.py');
const parts: SpecParts = {
  files: [file('src/a.py', 'old\n'), file('test/a_test.py', 'protected\n')],
  writable: [path],
  commands: [
    command('true', ['true']),
    python('sleep', 'import time; time.sleep(60)'),
    python(
      'respawn',
      'import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n  if os.fork() == 0: os.setsid()\n  time.sleep(0.02)\n  if os.fork() == 0: os._exit(0)',
    ),
    python('sleep-1', 'import time; time.sleep(60)', { timeoutS: 1 }),
  ],
};

async function sandboxWithSpec(): Promise<{ sandbox: Sandbox; spec: SandboxSpec }> {
  const spec = bench.spec(parts);
  const sandbox = await bench.service.provision(spec, async () => {});
  return { sandbox, spec };
}

async function withClient(engineId: string, use: (client: SupervisorClient) => Promise<void>): Promise<void> {
  const client = await supervisorClient(bench.engine, engineId);
  try {
    await use(client);
  } finally {
    client.leave();
  }
}

const asRoot = (engineId: string, code: string): Promise<string> => rootProgram(bench.engine, engineId, code);

/** What an earlier Kernel had recorded of its audit: nothing. */
const nothing = { entries: 0, head: null };

const edited = async (sandbox: Sandbox, text: string, from: string) => sandbox.write(path, bytesOf(text), sha256(from));

describe('many bytes asked for at once', () => {
  const large = { ...parts, files: [file('src/a.py', 'x'.repeat(2 * 1024 * 1024))], readable: [path] };

  it('wait open in the supervisor up to its bound; what is beyond is refused, and nothing else suffers', async () => {
    const sandbox = await bench.service.provision(bench.spec(large), async () => {});
    const asked = await Promise.allSettled(Array.from({ length: 100 }, () => sandbox.read(path, 'agent')));
    const refused = asked.filter((one) => one.status === 'rejected').map(({ reason }) => (reason as Error).message);
    expect(refused).toContain('too many files wait to be taken');
    expect(asked.filter((one) => one.status === 'fulfilled').length).toBeGreaterThan(0);
    // A command that ran is answered with its result, however much waits.
    const [ran] = await Promise.all([
      sandbox.run('true'),
      Promise.allSettled(Array.from({ length: 100 }, () => sandbox.read(path, 'agent'))),
    ]);
    expect(ran.end).toEqual({ kind: 'exit', code: 0 });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', audit: { agree: true } });
    sandbox.detach();
  });

  it('by people are looked at one after the other: none is refused', async () => {
    const sandbox = await bench.service.provision(bench.spec(large), async () => {});
    const looks = await Promise.all(Array.from({ length: 8 }, () => sandbox.read(path, 'person')));
    expect(new Set(looks.map((look) => look.sha256)).size).toBe(1);
    sandbox.detach();
  });
});

describe('attaching again', () => {
  it('[28=] [31=] [32=] [34=] in the same Kernel goes on with the same audit', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    sandbox.detach();
    const again = await bench.service.reattach(spec, sandbox.engineId, 2, nothing);
    await edited(again!, 'newer\n', 'new\n');
    const collection = await collect(again!);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, audit: { agree: true } });
    expect(textOf(collection.files[0]!.bytes)).toBe('newer\n');
    again!.detach();
  });

  it('by a later Kernel goes on where the earlier one’s record ends', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    const recorded = sandbox.witness;
    sandbox.detach();
    const later = await sandboxBench({ homeId: bench.homeId });
    const again = await later.service.reattach(spec, sandbox.engineId, 2, recorded);
    const collection = await collect(again!);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    expect(textOf(collection.files[0]!.bytes)).toBe('new\n');
    again!.detach();
  });

  it('by a later Kernel brings the bytes, and says what no record vouches for', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    const recorded = sandbox.witness;
    await edited(sandbox, 'new\n', 'old\n');
    sandbox.detach();
    const later = await sandboxBench({ homeId: bench.homeId });
    const again = await later.service.reattach(spec, sandbox.engineId, 2, recorded);
    const collection = await collect(again!);
    expect(collection).toMatchObject({
      state: 'partial',
      reason: 'audit-beyond-record: 1',
      equalsAudit: true,
      audit: { agree: false },
    });
    expect(textOf(collection.files[0]!.bytes)).toBe('new\n');
    again!.detach();
  });

  it('by a later Kernel whose record is of another log is no agreement', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    const { entries } = sandbox.witness;
    sandbox.detach();
    const later = await sandboxBench({ homeId: bench.homeId });
    const recorded = { entries, head: sha256('another log') };
    const again = await later.service.reattach(spec, sandbox.engineId, 2, recorded);
    expect(await collect(again!)).toMatchObject({ state: 'partial', reason: 'audit-disagrees' });
    again!.detach();
  });

  it('is refused under a lower epoch; the sitting Kernel notices nothing', async () => {
    const spec = bench.spec({ ...parts, epoch: 5 });
    const sandbox = await bench.service.provision(spec, async () => {});
    await withClient(sandbox.engineId, async (client) => {
      client.say({ e: 4, k: 'e'.repeat(32), t: 'hello' });
      expect(await client.until(({ t }) => t === 'refused')).toMatchObject({ reason: 'stale-epoch' });
    });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', audit: { agree: true } });
    sandbox.detach();
  });

  it('[32] under a higher epoch takes over, and the earlier client is told so', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    const running = sandbox.run('sleep');
    running.catch(() => {});
    const later = await sandboxBench({ homeId: bench.homeId });
    const again = await later.service.reattach(spec, sandbox.engineId, 2, nothing);
    expect(await sandbox.ended).toMatchObject({ kind: 'protocol', reason: 'another Kernel has taken over' });
    await expect(running).rejects.toMatchObject({ code: 'channel' });
    // The command of the Kernel that is gone was ended, and the record says so.
    const collection = await collect(again!);
    expect(textOf(collection.auditLog!)).toContain('"end":{"kind":"cancelled"}');
    again!.detach();
  });

  it('gives null for a container that does not run any more', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    sandbox.detach();
    await bench.service.kill(sandbox.engineId);
    expect(await bench.service.reattach(spec, sandbox.engineId, 2, nothing)).toBeNull();
  });
});

describe('frames', () => {
  describe('[28] [34] of dead clients', () => {
    // One sandbox outlives them all, each followed by a Kernel of the next epoch.
    let live: Sandbox;
    let spec: SandboxSpec;
    let epoch = 1;
    let text = 'old\n';
    beforeAll(async () => {
      ({ sandbox: live, spec } = await sandboxWithSpec());
    });
    it.each([
      ['half a frame', '{"v":2,"t":"run","id":7,"n":"'],
      ['half a multibyte character', Buffer.from('{"x":"ü').subarray(0, -1).toString('latin1')],
      ['an endless line', 'x'.repeat(400_000)],
      ['garbage and NUL', '\0\0\u0001[[[[{{{\n\n}}}'],
      ['deep nesting', '['.repeat(100_000)],
      ['prototype names', '{"__proto__":{"v":1},"constructor":1}\n'],
      ['five thousand tiny lines', '{}\n'.repeat(5000)],
    ])('(%s) do not poison the next one', async (_, left) => {
      live.detach();
      await withClient(live.engineId, async (client) => {
        client.raw(left);
      });
      epoch += 1;
      const again = await bench.service.reattach(spec, live.engineId, epoch, nothing);
      const next = `epoch ${epoch}\n`;
      await edited(again!, next, text);
      expect((await again!.run('true')).end).toEqual({ kind: 'exit', code: 0 });
      live = again!;
      text = next;
    });
    it('leave a collection that is complete', async () => {
      const collection = await collect(live);
      expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, audit: { agree: true } });
      expect(textOf(collection.files[0]!.bytes)).toBe(text);
      live.detach();
    });
  });

  it('[28] of which one was left half by somebody else, after our hello, break none of ours', async () => {
    const { sandbox } = await sandboxWithSpec();
    await withClient(sandbox.engineId, async (client) => {
      client.raw('{}\n{"v":2,"half":"');
      await client.until(({ t }) => t === 'refused');
      expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
    });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', audit: { agree: true } });
    sandbox.detach();
  });

  it('[28] of a Kernel that died in the middle of a file’s bytes do not poison the next one', async () => {
    const spec = bench.spec(parts);
    const sandbox = await bench.service.provision(spec, async () => {});
    const recorded = sandbox.witness;
    sandbox.detach();
    const key = 'e'.repeat(32);
    const bytes = 'x'.repeat(channelBounds.upChunkBytes);
    await withClient(sandbox.engineId, async (client) => {
      client.say({ e: 2, k: key, t: 'hello' });
      await client.until(({ t, e }) => t === 'welcome' && e === 2);
      const size = bytes.length;
      const write = { t: 'write', id: 1, path, expected: sha256('old\n'), size, sha256: sha256(bytes), p: size };
      client.say({ e: 2, k: key, ...write }, bytes.slice(0, 1000));
    });
    const later = await sandboxBench({ homeId: bench.homeId });
    const again = await later.service.reattach({ ...spec, epoch: 3 }, sandbox.engineId, 3, recorded);
    // Nothing was written, so nothing lies behind the record that acted.
    const collection = await collect(again!);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    expect(textOf(collection.files[0]!.bytes)).toBe('old\n');
    again!.detach();
  });

  it('[28] [31] of a second client are refused, recorded and without effect', async () => {
    const { sandbox } = await sandboxWithSpec();
    await withClient(sandbox.engineId, async (client) => {
      const write = { t: 'write', id: 1000, path, expected: sha256('old\n'), size: 4, sha256: sha256('evil') };
      client.say({ e: 1, k: 'f'.repeat(32), ...write });
      expect(await client.until(({ t }) => t === 'refused')).toMatchObject({ reason: 'not-attached' });
      client.say({ e: 1, k: 'f'.repeat(32), t: 'hello' });
      // Its bytes are not taken for bytes: they are lines, and no frames.
      client.say({ e: 1, k: 'f'.repeat(32), t: 'data', id: 1000, seq: 0, p: 4 }, 'evil');
      client.say({ e: 1, k: 'f'.repeat(32), t: 'quiesce', id: 1001 });
      await client.until(() => client.frames.filter(({ t }) => t === 'refused').length === 5);
      client.raw(
        `${JSON.stringify({ v: executorProtocol, n: 'a'.repeat(32), e: 9, k: 'f'.repeat(32), t: 'hello' })}\n`,
      );
      await client.until((frame) => frame.t === 'refused' && frame.reason === 'wrong-nonce');
    });
    expect(textOf((await sandbox.read(path, 'agent')).bytes)).toBe('old\n');
    expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
    const collection = await collect(sandbox);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, audit: { agree: true } });
    expect(textOf(collection.auditLog!).match(/"op":"frame"/g)).toHaveLength(6);
    sandbox.detach();
  });

  it('of another version are refused as such', async () => {
    const { sandbox } = await sandboxWithSpec();
    await withClient(sandbox.engineId, async (client) => {
      client.say({ v: executorProtocol - 1, e: 9, k: 'f'.repeat(32), t: 'hello' });
      expect(await client.until(({ t }) => t === 'refused')).toMatchObject({ reason: 'wrong-version' });
    });
    sandbox.detach();
  });
});

describe('bytes', () => {
  /** Whatever they are, they are no frames: newlines, braces, NUL, no UTF-8. */
  const odd = (size: number): Buffer => {
    const bytes = Buffer.alloc(size);
    for (let index = 0; index < size; index += 1)
      bytes[index] = [0x0a, 0x7b, 0x00, 0xff, 0x7d, index & 0xff][index % 6] ?? 0;
    return bytes;
  };
  const { upChunkBytes, chunkBytes } = channelBounds;
  it('come back as they were placed, at every size about the bounds of a frame and beyond 16 MiB', async () => {
    const sizes = [
      0,
      1,
      upChunkBytes - 1,
      upChunkBytes,
      upChunkBytes + 1,
      chunkBytes,
      chunkBytes + 1,
      20 * 1024 * 1024,
    ];
    const files = sizes.map((size) => ({ path: pathOf(`data/${size}.bin`), mode: 0o644, bytes: odd(size) }));
    const sandbox = await bench.provision({ files, writable: files.map((one) => one.path) });
    for (const one of files) expect(Buffer.compare((await sandbox.read(one.path, 'agent')).bytes, one.bytes)).toBe(0);
    const last = files.at(-1)!;
    const other = Buffer.concat([last.bytes, Buffer.from('more')]);
    await sandbox.write(last.path, other, sha256(last.bytes));
    // The answers of several that are asked for at once are those of each.
    const reads = await Promise.all(files.slice(0, -1).map((one) => sandbox.read(one.path, 'agent')));
    expect(reads.map(({ bytes }) => bytes.length)).toEqual(sizes.slice(0, -1));
    const collection = await collect(sandbox);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    expect(collection.files.map(({ path: name }) => name)).toEqual(files.map((one) => one.path));
    expect(Buffer.compare(collection.files.at(-1)!.bytes, other)).toBe(0);
    sandbox.detach();
  });

  it('that find no room leave the old ones, and what comes behind them is understood', async () => {
    const old = odd(30 * 1024 * 1024);
    const sandbox = await bench.provision({ files: [{ path, mode: 0o644, bytes: old }], writable: [path] });
    await expect(sandbox.write(path, odd(50 * 1024 * 1024), sha256(old))).rejects.toMatchObject({ code: 'no-space' });
    expect((await sandbox.read(path, 'agent')).sha256).toBe(sha256(old));
    expect(await collect(sandbox)).toMatchObject({ state: 'complete', equalsAudit: true, violations: [] });
    sandbox.detach();
  });
});

describe('silence', () => {
  it('of the Kernel ends the workers after 15 s and holds the bytes', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    const running = sandbox.run('sleep');
    running.catch(() => {});
    // Its start is on the wire once a later request has been answered.
    await sandbox.read(path, 'agent');
    sandbox.detach();
    await withClient(sandbox.engineId, async (client) => {
      await client.until((frame) => frame.t === 'beat' && frame.phase === 'held');
    });
    const again = await bench.service.reattach(spec, sandbox.engineId, 2, nothing);
    await expect(again!.run('true')).rejects.toMatchObject({ code: 'denied' });
    await expect(edited(again!, 'x', 'new\n')).rejects.toMatchObject({ code: 'denied' });
    const collection = await collect(again!);
    expect(textOf(collection.files[0]!.bytes)).toBe('new\n');
    expect(textOf(collection.auditLog!)).toContain('"end":{"kind":"unknown","reason":"kernel-silent"}');
    again!.detach();
  });

  it('[29+] of a client that is attached and does not read stops no deadline', async () => {
    const sandbox = await bench.provision({
      ...parts,
      scratch: [pathOf('scratch')],
      commands: [python('sleep-1', 'import time; open("scratch/began", "w"); time.sleep(60)', { timeoutS: 1 })],
    });
    const big = Buffer.alloc(8 * 1024 * 1024, 'x');
    await sandbox.write(path, big, sha256('old\n'));
    // Somebody else sees that it began and went, while nobody reads; with the command, whoever looks is ended too.
    const ended = `
      const works = fs.readdirSync('/proc').some((pid) => {
        try { return fs.readFileSync('/proc/' + pid + '/cmdline', 'latin1').includes('sleep' + '(60)'); } catch { return false; }
      });
      console.log(fs.existsSync('/workspace/scratch/began') && !works);`;
    const gone = async () => (await asRoot(sandbox.engineId, ended).catch(() => '')) === 'true\n';
    await withClient(sandbox.engineId, async (client) => {
      client.stream.pause();
      const running = sandbox.run('sleep-1');
      const read = sandbox.read(path, 'agent');
      await eventually('it is ended', gone);
      client.stream.resume();
      expect((await read).bytes.length).toBe(big.length);
      expect((await running).end).toEqual({ kind: 'timeout', afterMs: 1000 });
    });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete' });
    sandbox.detach();
  });

  it('[18=] of a supervisor that root inside has stopped is noticed, and the bytes are read without it', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    await asRoot(
      sandbox.engineId,
      `for (const p of fs.readdirSync('/proc')) if (/^\\d+$/.test(p) && p !== '1' && +p !== process.pid) process.kill(+p, 'SIGSTOP')`,
    );
    expect(await sandbox.ended).toMatchObject({ kind: 'silent' });
    expect(await collect(sandbox)).toMatchObject({ state: 'none', via: 'none' });
    const collection = await collectByExec(bench.service, spec, sandbox.engineId, nothing);
    // The audit agrees as far as it goes; that nobody writes any more was not seen.
    expect(collection).toMatchObject({
      state: 'partial',
      reason: 'not-quiet',
      via: 'exec',
      equalsAudit: true,
      violations: [],
      audit: { agree: true },
    });
    expect(collection.files.map(({ path: name, mode, bytes }) => [name, mode, textOf(bytes)])).toEqual([
      ['src/a.py', 0o644, 'new\n'],
    ]);
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped' });
  });

  it('that is the end of a channel alone: the reader has what runs ended, and sees that it is', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    const running = sandbox.run('respawn');
    running.catch(() => {});
    // Its start is on the wire once a later request has been answered.
    await sandbox.read(path, 'agent');
    sandbox.detach();
    const collection = await collectByExec(bench.service, spec, sandbox.engineId, nothing);
    // Quiet was seen. How the command ended was not: nobody was there to be told.
    expect(collection).toMatchObject({
      state: 'partial',
      reason: expect.stringMatching(/^audit-beyond-record: [12]$/),
      via: 'exec',
      equalsAudit: true,
      violations: [],
    });
    expect(textOf(collection.files[0]!.bytes)).toBe('new\n');
    expect(textOf(collection.auditLog!)).toContain('"end":{"kind":"cancelled"}');
  });

  it('that is the end of a channel alone, with nothing under way, costs nothing', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    await edited(sandbox, 'new\n', 'old\n');
    const recorded = sandbox.witness;
    sandbox.detach();
    const later = await sandboxBench({ homeId: bench.homeId });
    expect(await collectByExec(later.service, spec, sandbox.engineId, recorded)).toMatchObject({
      state: 'complete',
      via: 'exec',
      equalsAudit: true,
      audit: { agree: true },
    });
  });

  it('that is the end of a channel alone: what a command left in its scratch folder hides nothing', async () => {
    // As many as a policy can name, each as long as a path may be: more than one argument of a program can hold.
    const long = Array.from({ length: 255 }, (_, n) => pathOf(`${`${'d'.repeat(250)}/`.repeat(3)}${n}`));
    const spec = bench.spec({
      files: [file('src/a.py', 'old\n')],
      writable: [path, ...long],
      scratch: [pathOf('.cache')],
      commands: [
        python(
          'litter',
          `import os
os.chdir("/workspace/.cache")
for n in range(300): open(str(n), "w").close()
os.mkdir("locked"); os.chmod("locked", 0)
for n in range(40): os.mkdir("d" * 200); os.chdir("d" * 200)`,
        ),
      ],
    });
    const sandbox = await bench.service.provision(spec, async () => {});
    await edited(sandbox, 'new\n', 'old\n');
    expect((await sandbox.run('litter')).end).toEqual({ kind: 'exit', code: 0 });
    const recorded = sandbox.witness;
    sandbox.detach();
    const later = await sandboxBench({ homeId: bench.homeId });
    const collection = await collectByExec(later.service, spec, sandbox.engineId, recorded);
    expect(collection).toMatchObject({ state: 'complete', reason: null, violations: [], equalsAudit: true });
    expect(collection.files.map(({ bytes }) => textOf(bytes))).toEqual(['new\n']);
  });

  it('for ever: a supervisor that died takes the bytes with it, and nothing is claimed', async () => {
    const { sandbox, spec } = await sandboxWithSpec();
    const running = sandbox.run('sleep');
    running.catch(() => {});
    await bench.engine.kill(sandbox.engineId);
    expect(await sandbox.ended).toEqual({ kind: 'stream-ended' });
    await expect(running).rejects.toMatchObject({ code: 'channel' });
    expect(await collect(sandbox)).toMatchObject({ state: 'none', files: [], auditLog: null, equalsAudit: null });
    expect(await collectByExec(bench.service, spec, sandbox.engineId, nothing)).toMatchObject({
      state: 'none',
      via: 'none',
    });
  });
});

describe('an audit', () => {
  const tampering: Record<string, [string, string]> = {
    'is cut': [`fs.truncateSync('/exchange/audit.ndjson', 300)`, 'audit-damaged'],
    'is gone': [`fs.unlinkSync('/exchange/audit.ndjson')`, 'ENOENT'],
    'is empty': [`fs.truncateSync('/exchange/audit.ndjson', 0)`, 'audit-disagrees'],
    'has one changed byte': [
      `const f='/exchange/audit.ndjson'; fs.writeFileSync(f, fs.readFileSync(f,'utf8').replace('"mode":420','"mode":421'))`,
      'audit-damaged',
    ],
  };
  it.each(Object.entries(tampering))(
    'that %s makes the collection incomplete, the bytes are kept',
    async (_, [code, reason]) => {
      const { sandbox } = await sandboxWithSpec();
      await sandbox.read(path, 'agent');
      await edited(sandbox, 'new\n', 'old\n');
      await asRoot(sandbox.engineId, code);
      const collection = await collect(sandbox);
      expect(collection.state).toBe('partial');
      if (reason !== 'ENOENT') expect(collection.reason).toContain(reason);
      expect(collection.audit.agree).toBe(false);
      expect(textOf(collection.files[0]!.bytes)).toBe('new\n');
      sandbox.detach();
    },
  );

  it('does not agree with bytes that somebody else wrote', async () => {
    const { sandbox } = await sandboxWithSpec();
    await asRoot(
      sandbox.engineId,
      `fs.writeFileSync('/workspace/src/a.py','evil'); fs.writeFileSync('/workspace/test/a_test.py','weak'); fs.writeFileSync('/workspace/new','x'); fs.symlinkSync('/etc/passwd','/workspace/link')`,
    );
    const collection = await collect(sandbox);
    expect(collection.equalsAudit).toBe(false);
    expect(collection.violations.toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      'appeared: new',
      'changed: test/a_test.py',
      'no plain file: link',
    ]);
    sandbox.detach();
  });
});
