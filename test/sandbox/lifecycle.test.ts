// One sandbox from its making to its absence, with the real engine.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { channelBounds, replayAudit } from '../../src/protocol/executor.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import { readMonitor } from '../../src/server/sandbox/monitor.ts';
import type { ProvisionFact, Sandbox } from '../../src/server/sandbox/port.ts';
import { collect } from '../fixtures/collected.ts';
import { bytesOf, command, file, pathOf, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const layout = {
  files: [
    file('src/usage.py', 'print("old")\n'),
    file('README.md', '# Read me\r\n'),
    file('bin/run.sh', '#!/bin/sh\necho ran "$@"\n', 0o755),
    file('secret/plan.txt', 'hidden\n', 0o600),
  ],
  readable: [pathOf('README.md')],
  writable: [pathOf('src/usage.py'), pathOf('src/new/module.py')],
  scratch: [pathOf('.cache')],
  commands: [
    command('python', ['python3', 'src/usage.py']),
    command('script', ['./bin/run.sh', 'a b', '*']),
    command('list', ['find', '/workspace', '-printf', '%y %u %m %P\n']),
  ],
};

describe('a sandbox', () => {
  it('is made step by step, each told before the next, and goes without a trace', async () => {
    const facts: ProvisionFact[] = [];
    const spec = bench.spec(layout);
    const sandbox = await bench.service.provision(spec, async (fact) => {
      facts.push(fact);
    });
    expect(facts.map(({ kind }) => kind)).toEqual(['created', 'started', 'attached', 'limits', 'placed']);
    expect(facts.at(-1)).toEqual({ kind: 'placed', files: 4, bytes: 55 });
    expect(sandbox.limits.length).toBeGreaterThan(30);
    expect(sandbox.limits.filter(({ inForce }) => !inForce)).toEqual([]);
    const listed = (await bench.service.list()).find(({ engineId }) => engineId === sandbox.engineId);
    expect(listed).toMatchObject({ ours: true, state: 'running', owner: spec.owner, epoch: 1, purpose: 'attempt' });

    expect(await sandbox.quiesce()).toMatchObject({ empty: true });
    const collection = await collect(sandbox);
    const { records, whole } = readMonitor(collection.monitor?.bytes ?? new Uint8Array());
    expect([records.length >= 1, whole, records[0]?.kind]).toEqual([true, true, 'sample']);
    expect(collection.monitor?.peaks.memory).toBeGreaterThan(8 * 1024 * 1024);
    expect(collection.monitor?.peaks).toMatchObject({ oomKills: 0, pidsRefused: 0 });
    expect(collection).toMatchObject({
      state: 'complete',
      via: 'channel',
      violations: [],
      equalsAudit: true,
    });
    sandbox.detach();
    expect(await sandbox.ended).toEqual({ kind: 'closed-by-us' });
    expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped', exitCode: 137 });
    expect(await bench.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
    expect(await bench.service.kill(sandbox.engineId)).toEqual({ kind: 'absent' });
    expect((await bench.service.list()).some(({ engineId }) => engineId === sandbox.engineId)).toBe(false);
  });

  describe('in use', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await bench.provision(layout);
    });

    it('gives the exact bytes and modes that were placed', async () => {
      expect(textOf((await sandbox.read(pathOf('README.md'), 'agent')).bytes)).toBe('# Read me\r\n');
      const entries = await sandbox.manifest();
      expect(
        entries.map(({ path, mode }) => [path, mode.toString(8)]).toSorted(([a = ''], [b = '']) => (a < b ? -1 : 1)),
      ).toEqual([
        ['README.md', '644'],
        ['bin/run.sh', '755'],
        ['secret/plan.txt', '600'],
        ['src/usage.py', '644'],
      ]);
    });
    it('shows the model only what is declared, a person what is placed, nobody anything else', async () => {
      await expect(sandbox.read(pathOf('secret/plan.txt'), 'agent')).rejects.toMatchObject({ code: 'denied' });
      expect(textOf((await sandbox.read(pathOf('secret/plan.txt'), 'person')).bytes)).toBe('hidden\n');
      await expect(sandbox.read(pathOf('etc/passwd'), 'person')).rejects.toMatchObject({ code: 'denied' });
      await expect(sandbox.read(pathOf('../etc/passwd'), 'person')).rejects.toMatchObject({ code: 'denied' });
    });
    it('changes a file only against the bytes that the change was made from', async () => {
      const path = pathOf('src/usage.py');
      const { sha256: before } = await sandbox.read(path, 'agent');
      const changed = bytesOf('print("new")\n');
      expect(await sandbox.write(path, changed, before)).toEqual({ sha256: sha256(changed) });
      await expect(sandbox.write(path, bytesOf('late'), before)).rejects.toMatchObject({ code: 'conflict' });
      await expect(sandbox.write(path, bytesOf('new?'), null)).rejects.toMatchObject({ code: 'conflict' });
      expect(textOf((await sandbox.read(path, 'agent')).bytes)).toBe('print("new")\n');
    });
    it('makes a declared new file with its folders, and no other file', async () => {
      const path = pathOf('src/new/module.py');
      await expect(sandbox.read(path, 'agent')).rejects.toMatchObject({ code: 'not-found' });
      await expect(sandbox.write(path, bytesOf('x'), sha256('y'))).rejects.toMatchObject({ code: 'conflict' });
      await sandbox.write(path, bytesOf('x = 1\n'), null);
      await expect(sandbox.write(pathOf('src/other.py'), bytesOf('x'), null)).rejects.toMatchObject({ code: 'denied' });
      await expect(sandbox.write(pathOf('README.md'), bytesOf('x'), null)).rejects.toMatchObject({ code: 'denied' });
    });
    it('runs exactly the declared arguments, without a shell between', async () => {
      const result = await sandbox.run('script');
      expect([result.end, textOf(result.output)]).toEqual([{ kind: 'exit', code: 0 }, 'ran a b *\n']);
      expect(textOf((await sandbox.run('python')).output)).toBe('new\n');
      await expect(sandbox.run('rm')).rejects.toMatchObject({ code: 'denied' });
    });
    it('keeps every folder and file of the workspace with root, scratch apart', async () => {
      const lines = textOf((await sandbox.run('list')).output)
        .trim()
        .split('\n');
      const foreign = lines.filter((line) => !line.includes(' root '));
      expect(foreign).toEqual(['d 10001 755 .cache']);
      expect(lines.some((line) => line.includes('.escrow-'))).toBe(false);
    });
    it('records every request and its end, denials too, on both sides', async () => {
      await sandbox.deny('terminal: ls | sh', 'shell syntax');
      await sandbox.quiesce();
      const collection = await collect(sandbox);
      expect(collection).toMatchObject({
        state: 'complete',
        equalsAudit: true,
        violations: [],
        audit: { agree: true },
      });
      expect(collection.files.map(({ path, mode }) => [path, mode])).toEqual([
        ['src/usage.py', 0o644],
        ['src/new/module.py', 0o644],
      ]);
      const log = textOf(collection.auditLog ?? new Uint8Array());
      const ops = log
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { op: string; phase: string; request: object });
      expect(ops.filter(({ op }) => op === 'deny').map(({ request }) => request)).toContainEqual({
        request: 'terminal: ls | sh',
        reason: 'shell syntax',
      });
      expect(
        ops
          .filter(({ op }) => op === 'write')
          .map(({ phase }) => phase)
          .toSorted(),
      ).toEqual(['done', 'done', 'failed', 'failed', 'failed']);
      expect(ops.filter(({ op, phase }) => op === 'run' && phase === 'started')).toHaveLength(3);
      expect(replayAudit(log, '0'.repeat(32)).ok).toBe(false);
    });
    it('does no more work once it is quiesced, and still shows what is there', async () => {
      await expect(sandbox.run('python')).rejects.toMatchObject({ code: 'denied' });
      await expect(sandbox.write(pathOf('src/usage.py'), bytesOf('x'), null)).rejects.toMatchObject({ code: 'denied' });
      expect(textOf((await sandbox.read(pathOf('README.md'), 'agent')).bytes)).toBe('# Read me\r\n');
    });
  });

  it('keeps the bytes of a write when a later one finds no room', async () => {
    const big = pathOf('big.bin');
    const paths = [0, 1, 2, 3, 4].map((index) => pathOf(`fill-${index}.bin`));
    const sandbox = await bench.provision({ files: [file('big.bin', 'old')], writable: [big, ...paths] });
    // Random bytes: real memory. 4 × 15 MiB fit into 64 MiB, the fifth does not.
    const fifteen = Buffer.alloc(15 * 1024 * 1024, 'x1Z');
    for (const path of paths.slice(0, 4)) await sandbox.write(path, fifteen, null);
    await expect(sandbox.write(paths[4]!, fifteen, null)).rejects.toMatchObject({ code: 'no-space' });
    await expect(sandbox.write(big, fifteen, sha256('old'))).rejects.toMatchObject({ code: 'no-space' });
    expect(textOf((await sandbox.read(big, 'agent')).bytes)).toBe('old');
    const collection = await collect(sandbox);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], missing: ['fill-4.bin'] });
    expect(collection.files.reduce((sum, { bytes }) => sum + bytes.length, 0)).toBe(3 + 4 * fifteen.length);
  });

  it('refuses a file beyond its bound before anything is sent', async () => {
    const path = pathOf('big.bin');
    const sandbox = await bench.provision({ writable: [path] });
    const tooBig = new Uint8Array(channelBounds.fileBytes + 1);
    await expect(sandbox.write(path, tooBig, null)).rejects.toMatchObject({ code: 'too-large' });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete' });
  });
});

describe('what is not ours', () => {
  it('is not listed as ours, not killed and not removed', async () => {
    const other = await sandboxBench();
    try {
      const sandbox = await other.provision();
      const seen = (await bench.service.list()).find(({ engineId }) => engineId === sandbox.engineId);
      expect(seen?.ours).toBe(false);
      expect(await bench.service.kill(sandbox.engineId)).toMatchObject({ kind: 'unconfirmed' });
      expect(await bench.service.remove(sandbox.engineId)).toMatchObject({ kind: 'present' });
      await expect(bench.service.reattach(bench.spec(), sandbox.engineId, 2, sandbox.witness)).rejects.toMatchObject({
        code: 'engine',
      });
      expect(await sandbox.quiesce()).toMatchObject({ empty: true });
    } finally {
      await other.dispose();
    }
  });
  it('is not there after a removal by its owner', async () => {
    expect(await bench.service.kill('escrow-attempt-no-such')).toEqual({ kind: 'absent' });
    expect(await bench.service.remove('escrow-attempt-no-such')).toEqual({ kind: 'absent' });
  });
  it('cannot be removed while it runs', async () => {
    const sandbox = await bench.provision();
    expect(await bench.service.remove(sandbox.engineId)).toMatchObject({ kind: 'present' });
    expect(await sandbox.quiesce()).toMatchObject({ empty: true });
  });
});
