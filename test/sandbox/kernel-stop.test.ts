// A real Kernel whose container engine lies, is gone, or keeps what was told to go: the attempt waits in
// `cancellation_pending`, says for what, and is settled by what is seen later.
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ContractDigest, SessionId } from '../../src/protocol/primitives.ts';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { engineBetween, type EngineBetween } from '../fixtures/bad-peers/engine-between.ts';
import { saysKilledAndIsNot } from '../fixtures/bad-peers/engine-that-lies.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import {
  heldAttempt,
  prepareContract,
  sessionAt,
  settled,
  startSession,
  turns,
  writeScript,
} from '../fixtures/journey.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';
import { canMount, smallDisk, type SmallDisk, noMount } from '../fixtures/small-disk.ts';

type Repo = Awaited<ReturnType<typeof exampleRepo>>;

let repo: Repo;
const real = engineHere();
beforeAll(async () => {
  await ensureSandboxImage();
  repo = await exampleRepo();
});
afterAll(() => repo.dispose());

/** A session whose attempt looks at a file and then waits for a turn that never comes. */
async function held(kernel: TestKernel, digest: ContractDigest) {
  const { token, ...attempt } = await heldAttempt(kernel.kernel, digest, kernel.home, [[turns.view], turns.edit]);
  if (token === null) throw new Error('no control');
  return { ...attempt, token };
}

const pending = (kernel: TestKernel, id: SessionId) =>
  sessionAt(kernel.kernel, id, 'waiting for an observation', (v) => v.attempts[0]?.phase === 'cancellation_pending');

describe('[52] a Kernel', () => {
  let engine: EngineBetween;
  let kernel: TestKernel;
  let digest: ContractDigest;
  beforeAll(async () => {
    engine = await engineBetween();
    kernel = await startTestKernel({ environment: { ESCROW_ENGINE_HOST: `unix://${engine.address}` } });
    digest = await prepareContract(kernel.kernel, repo.contract);
  });
  afterAll(async () => {
    engine.honest();
    await kernel.dispose();
    await engine.close();
  });

  it('waits where the engine says "killed" of what runs, and is settled when it is seen stopped', async () => {
    const { id, token, container } = await held(kernel, digest);
    engine.behave(saysKilledAndIsNot);
    await kernel.kernel.call('session/cancel', { session: id, token });
    const view = await pending(kernel, id);
    expect(view.attempts[0]?.pending).toMatchObject({
      blockedIn: 'stopping',
      waitingFor: expect.stringMatching(/^stop: still running/),
    });
    expect(view.attempts[0]?.settlement?.confirmed).not.toBe(true);
    // It looks again now and then, and does not wait while it does.
    await eventually('the status says so, too', async () => {
      const { pending: waiting } = await kernel.kernel.call('kernel/status', {});
      return waiting.some(
        (one) =>
          one.session === id &&
          one.attempt === view.attempts[0]?.id &&
          one.waitingFor === view.attempts[0]?.pending?.waitingFor,
      );
    });
    expect((await real.inspect(container))?.running).toBe(true);
    engine.honest();
    await kernel.kernel.call('kernel/probe', {});
    const after = await sessionAt(kernel.kernel, id, 'settled', settled);
    expect(after.attempts[0]).toMatchObject({ settlement: { confirmed: true }, outcome: { kind: 'cancelled' } });
    expect(await real.inspect(container)).toBeUndefined();
  });

  it('waits where the engine is gone in mid-attempt, and is settled when it is back', async () => {
    const { id, container } = await held(kernel, digest);
    await engine.goAway();
    const view = await pending(kernel, id);
    expect(view.attempts[0]?.pending?.waitingFor).toMatch(/^container_engine: /);
    await engine.comeBack();
    await kernel.kernel.call('kernel/probe', {});
    const after = await sessionAt(kernel.kernel, id, 'settled', settled);
    expect(after.attempts[0]).toMatchObject({ settlement: { confirmed: true }, outcome: { kind: 'infrastructure' } });
    expect(await real.inspect(container)).toBeUndefined();
  });
});

describe('[53+] an allowance that ends in mid-attempt', () => {
  it('is the recorded cause of its end, and the container is stopped and gone', async () => {
    const kernel = await startTestKernel({ environment: { ESCROW_ARTEFACT_ALLOWANCE: '70000' } });
    try {
      const digest = await prepareContract(kernel.kernel, repo.contract);
      // Each request carries all earlier turns, so what is kept of them grows with the square of their number.
      const words = (n: number): string => Array.from({ length: 400 }, (_, i) => `word${n}x${i * (n + 3)}`).join(' ');
      const script = await writeScript(kernel.home, 'wordy', [
        ...Array.from({ length: 10 }, (_, n) => ({ ...turns.view, content: words(n) })),
        turns.finish,
      ]);
      const { session } = await startSession(kernel.kernel, digest, script, { attempts: 1 });
      const after = await sessionAt(kernel.kernel, session.id, 'settled', settled);
      const [attempt] = after.attempts;
      expect(attempt).toMatchObject({
        outcome: { kind: 'resource', reason: 'storage' },
        settlement: { confirmed: true },
        container: { state: 'absent' },
      });
      expect(await real.inspect(attempt?.container?.engineId ?? 'none')).toBeUndefined();
      // Control: the same script fits the usual allowance (it is spent by a later turn, not by the first).
      expect(attempt?.requests).toBeGreaterThan(1);
    } finally {
      await kernel.dispose();
    }
  });
});

describe.skipIf(!canMount)(`[53+] a disk that is full in mid-attempt${noMount}`, () => {
  let disk: SmallDisk;
  beforeAll(async () => {
    disk = await smallDisk(48);
  });
  afterAll(() => disk.dispose());

  it('does not keep the container alive: it is stopped, and the record says why', async () => {
    const home = path.join(disk.folder, 'home');
    await mkdir(home, { mode: 0o700 });
    const kernel = await startTestKernel({ home });
    try {
      const digest = await prepareContract(kernel.kernel, repo.contract);
      const { id, token, container } = await held(kernel, digest);
      await disk.fill();
      await kernel.kernel.call('session/cancel', { session: id, token }).catch(() => undefined);
      // Nothing can be recorded; the stop is attempted all the same, and seen by nobody but the engine.
      await eventually('it is stopped', async () => (await real.inspect(container))?.running !== true);
      await disk.free();
      await kernel.kernel.call('kernel/probe', {});
      const after = await sessionAt(kernel.kernel, id, 'settled', settled);
      expect(after.attempts[0]?.settlement?.confirmed).toBe(true);
      expect(['cancelled', 'resource']).toContain(after.attempts[0]?.outcome?.kind);
      expect(await real.inspect(container)).toBeUndefined();
    } finally {
      await kernel.dispose();
    }
  });
});
