// Many short attempts in a row through a real Kernel, some cancelled, some with the Kernel killed: nothing of them is
// left on the machine. 200 with ESCROW_TEST_FULL=1, else a dozen.
import { readdir } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import { ContainerEngine } from '../../src/server/sandbox/engine.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { prepareContract, sessionAt, settled, startSession, turns, writeScript } from '../fixtures/journey.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

const attempts = process.env['ESCROW_TEST_FULL'] === '1' ? 200 : 12;
const engine = new ContainerEngine({ kind: 'socket', path: '/var/run/docker.sock' });

let repo: Awaited<ReturnType<typeof exampleRepo>>;
let kernel: TestKernel;
let digest: ContractDigest;
beforeAll(async () => {
  await ensureSandboxImage();
  repo = await exampleRepo();
  kernel = await startTestKernel();
  digest = await prepareContract(kernel.kernel, repo.contract);
}, 120_000);
afterAll(async () => {
  await kernel.dispose();
  await repo.dispose();
});

/** Live memory of a Node process in MiB, after a full collection: what a process has not given back yet is no leak. */
async function liveMemory(pid: number): Promise<number> {
  process.kill(pid, 'SIGUSR1');
  let address = '';
  await eventually('the inspector listens', async () => {
    const found = await fetch('http://127.0.0.1:9229/json/list')
      .then((answer) => answer.json())
      .catch(() => []);
    address = (found as { webSocketDebuggerUrl: string }[])[0]?.webSocketDebuggerUrl ?? '';
    return address !== '';
  });
  const socket = new WebSocket(address);
  await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
  const ask = async (id: number, method: string, params: object = {}): Promise<unknown> => {
    const answered = new Promise<unknown>((resolve) => {
      socket.addEventListener('message', ({ data }) => {
        const answer = JSON.parse(String(data)) as { id?: number; result?: unknown };
        if (answer.id === id) resolve(answer.result);
      });
    });
    socket.send(JSON.stringify({ id, method, params }));
    return answered;
  };
  try {
    const evaluate = {
      expression: 'process.pid * 1e6 + process.memoryUsage().heapUsed / 1048576',
      returnByValue: true,
    };
    await ask(1, 'HeapProfiler.collectGarbage');
    const { result } = (await ask(2, 'Runtime.evaluate', evaluate)) as { result: { value: number } };
    // Another process may have that port: then this says nothing.
    if (Math.floor(result.value / 1e6) !== pid) throw new Error('the inspector of another process answered');
    return result.value % 1e6;
  } finally {
    socket.close();
  }
}

async function footprint(pid: number): Promise<{ readonly descriptors: number; readonly memory: number }> {
  const memory = await liveMemory(pid);
  return { descriptors: (await readdir(`/proc/${pid}/fd`)).length, memory };
}
const temporaries = async (): Promise<readonly string[]> =>
  readdir(path.join(kernel.home, 'artefacts', 'tmp')).catch(() => []);

describe('a Kernel', () => {
  it(
    `leaves nothing of ${attempts} short attempts, a third of them cancelled`,
    async () => {
      const quick = await writeScript(kernel.home, 'quick', [turns.view, turns.finish]);
      const hold = await writeScript(kernel.home, 'hold', [
        turns.view,
        { ...turns.edit, holdUntilFile: path.join(kernel.home, 'never') },
      ]);
      const owners = new Set<string>();
      let early: Awaited<ReturnType<typeof footprint>> | undefined;
      for (let n = 0; n < attempts; n += 1) {
        const cancelled = n % 3 === 2;
        const { session, token } = await startSession(kernel.kernel, digest, cancelled ? hold : quick, { attempts: 1 });
        if (cancelled && token !== null) {
          await sessionAt(kernel.kernel, session.id, 'at work', (v) => v.attempts.some((a) => a.firstToolAt !== null));
          await kernel.kernel.call('session/cancel', { session: session.id, token });
        }
        const view = await sessionAt(kernel.kernel, session.id, 'settled', settled);
        expect(view.attempts[0]?.settlement?.confirmed).toBe(true);
        for (const { id } of view.attempts) owners.add(id);
        // After what is loaded once has been loaded.
        if (n === Math.min(10, Math.floor(attempts / 2))) early = await footprint(kernel.pid);
      }
      const late = await footprint(kernel.pid);
      process.stderr.write(
        `soak: ${attempts} attempts; descriptors ${early?.descriptors} → ${late.descriptors}, memory ${early?.memory.toFixed(0)} → ${late.memory.toFixed(0)} MiB, load ${os.loadavg()[0]?.toFixed(1)}\n`,
      );
      const left = (await engine.list(['escrow.product=escrow'])).filter(({ labels }) =>
        owners.has(labels['escrow.owner'] ?? ''),
      );
      expect(left).toEqual([]);
      expect(await temporaries()).toEqual([]);
      expect(early).toBeDefined();
      expect(late.descriptors).toBeLessThanOrEqual((early?.descriptors ?? 0) + 3);
      // Flat but for what is kept of each session on purpose.
      expect(late.memory - (early?.memory ?? 0)).toBeLessThan(10 + attempts * 0.1);
    },
    attempts * 15_000,
  );

  it('leaves nothing of an attempt in which it was killed', async () => {
    const hold = await writeScript(kernel.home, 'hold-killed', [
      turns.view,
      { ...turns.edit, holdUntilFile: path.join(kernel.home, 'never') },
    ]);
    const { session } = await startSession(kernel.kernel, digest, hold, { attempts: 1 });
    const view = await sessionAt(kernel.kernel, session.id, 'at work', (v) =>
      v.attempts.some((a) => a.firstToolAt !== null),
    );
    const container = view.attempts[0]?.container?.engineId ?? '';
    await kernel.kill();
    expect((await engine.inspect(container))?.running).toBe(true);
    const next = await kernel.connect();
    const after = await sessionAt(next, session.id, 'settled', settled, 90_000);
    expect(after.attempts[0]).toMatchObject({ settlement: { confirmed: true } });
    expect(await engine.inspect(container)).toBeUndefined();
    expect(await temporaries()).toEqual([]);
  });
});
