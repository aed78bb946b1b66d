// A real Kernel and a container that carries its home's labels and that nothing is recorded of, as after a backup was put
// back: what was written in it is read out and kept, then it is stopped and removed.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { knownHome } from '../fixtures/known-home.ts';
import { bytesOf, command, file, pathOf, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
let kernel: TestKernel;
beforeAll(async () => {
  const { home, homeId } = await knownHome();
  bench = await sandboxBench({ homeId });
  kernel = await startTestKernel({ home });
});
afterAll(async () => {
  await kernel.dispose();
  await bench.dispose();
});

const path = pathOf('src/a.py');
const events = async (container: string) => {
  const all = await kernel.kernel.call('evidence/subscribe', { lastSeenSeq: 0 });
  return all.events
    .filter(({ data }) => (data as { name?: unknown } | null)?.name === container)
    .map(({ type, data }) => ({ type, data: data as Record<string, unknown> }));
};
const strays = async () => (await kernel.kernel.call('kernel/status', {})).strays.map(({ engineId }) => engineId);
const read = async (hash: string): Promise<string> => {
  const { base64 } = await kernel.kernel.call('artefact/read', { sha256: hash, offset: 0 });
  return textOf(Buffer.from(base64, 'base64'));
};

describe('a container that no record knows', () => {
  it('is read out, then stopped and removed; what is kept of it is listed', async () => {
    const sandbox = await bench.provision({
      session: 'ses_0123456789abcdef0123',
      files: [file('src/a.py', 'old\n'), file('src/b.py', 'untouched\n')],
      writable: [path, pathOf('src/b.py')],
      scratch: [pathOf('.cache')],
      commands: [command('litter', ['sh', '-c', 'mkdir -p .cache/locked && chmod 0 .cache/locked'])],
    });
    await sandbox.write(path, bytesOf('new\n'), sha256('old\n'));
    await sandbox.run('litter');
    // Its Kernel is gone.
    sandbox.detach();
    expect(await strays()).toEqual([sandbox.engineId]);
    await kernel.kernel.call('kernel/probe', {});
    await eventually('that is on record', async () => (await events(sandbox.name)).length === 2);
    expect(await bench.engine.inspect(sandbox.engineId)).toBeUndefined();
    const [salvaged, swept] = await events(sandbox.name);
    expect(salvaged).toMatchObject({
      type: 'container.salvaged',
      data: {
        engineId: sandbox.engineId,
        session: 'ses_0123456789abcdef0123',
        files: [{ path: 'src/a.py', mode: 0o644, sha256: sha256('new\n'), size: 4 }],
      },
    });
    expect(swept).toMatchObject({ type: 'container.swept', data: { stop: 'stopped', absence: 'absent' } });
    expect(await read(sha256('new\n'))).toBe('new\n');
    expect(await read((salvaged!.data['auditLog'] as { sha256: string }).sha256)).toContain('"op":"write"');
    expect(await strays()).toEqual([]);
    expect((await kernel.kernel.call('kernel/status', {})).salvaged).toEqual([
      { name: sandbox.name, at: expect.any(Number), files: 1, fault: null },
    ]);
  });

  it('that can’t be read out is left as it is at first, and listed (control)', async () => {
    const name = `escrow-attempt-unknown-${bench.homeId.slice(-8)}`;
    const id = await bench.engine.create({
      name,
      Image: bench.image.digest,
      Cmd: ['sleep', '600'],
      Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId, 'escrow.purpose': 'attempt' },
      HostConfig: { NetworkMode: 'none' },
    });
    await bench.engine.start(id);
    await kernel.kernel.call('kernel/probe', {});
    await eventually('it was looked at', async () => (await kernel.log()).includes('could not be read out'));
    expect((await bench.engine.inspect(id))?.running).toBe(true);
    expect(await events(name)).toEqual([]);
    expect(await strays()).toContain(id);
  });
});
