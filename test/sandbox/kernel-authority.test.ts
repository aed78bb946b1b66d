// A real Kernel: who may change what. A refusal comes before any effect, and what a client began goes with it.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomBytes } from 'node:crypto';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import { engineBetween, type EngineBetween } from '../fixtures/bad-peers/engine-between.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import {
  heldAttempt,
  prepareContract,
  sessionAt,
  settled,
  startSession,
  turns,
  verified,
  writeScript,
} from '../fixtures/journey.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

let repo: Awaited<ReturnType<typeof exampleRepo>>;
let engine: EngineBetween;
let kernel: TestKernel;
let digest: ContractDigest;
beforeAll(async () => {
  await ensureSandboxImage();
  repo = await exampleRepo();
  engine = await engineBetween();
  kernel = await startTestKernel({ environment: { ESCROW_ENGINE_HOST: `unix://${engine.address}` } });
  digest = await prepareContract(kernel.kernel, repo.contract);
});
afterAll(async () => {
  engine.honest();
  await kernel.dispose();
  await engine.close();
  await repo.dispose();
});

const quick = () =>
  writeScript(kernel.home, `quick-${randomBytes(4).toString('hex')}`, [turns.view, turns.edit, turns.finish]);

/** A session whose attempt has the one slot and keeps it until `goOn`. */
const slotTaken = () => heldAttempt(kernel.kernel, digest, kernel.home, [[turns.view], turns.view, turns.finish]);

describe('a refusal comes before any effect', () => {
  it('a stale token cancels no verification', async () => {
    const { kernel: client } = kernel;
    const { session, token } = await startSession(client, digest, await quick(), { attempts: 1 });
    const candidate = (await sessionAt(client, session.id, 'verified', verified)).candidates[0];
    if (candidate === undefined || token === null) throw new Error('no candidate');
    const slot = await slotTaken();
    const again = client.call('candidate/verify', { session: session.id, candidate: candidate.digest });
    const waits = () =>
      sessionAt(client, session.id, 'waiting to be verified', (v) =>
        v.candidates.some((c) => c.verifications.some(({ state }) => state === 'queued')),
      );
    await waits();
    const current = await client.call('session/attach', { session: session.id, mode: 'control' });
    await expect(client.call('session/cancel', { session: session.id, token })).rejects.toMatchObject({
      code: 'StaleAuthority',
    });
    await waits();
    await slot.goOn();
    expect((await again).result).toBe('passed');
    // Control: with the token that counts, it is cancelled.
    const other = await slotTaken();
    const third = client.call('candidate/verify', { session: session.id, candidate: candidate.digest });
    await waits();
    await client.call('session/cancel', { session: session.id, token: current.token ?? token });
    expect(await third).toMatchObject({ result: 'incomplete', reasons: ['Cancelled'] });
    await other.goOn();
    await sessionAt(client, other.id, 'settled', settled);
  });

  it('a rejection that asks for a correction which can not be queued is not recorded', async () => {
    const { kernel: client } = kernel;
    const { session, token } = await startSession(client, digest, await quick(), { attempts: 2 });
    const candidate = (await sessionAt(client, session.id, 'verified', verified)).candidates[0];
    if (candidate === undefined || token === null) throw new Error('no candidate');
    const attached = await client.call('session/attach', { session: session.id, mode: 'control' });
    await client.call('session/close', { session: session.id, token: attached.token ?? token });
    const reject = {
      session: session.id,
      candidate: candidate.digest,
      reviewer: { name: 'test', channel: 'script' as const },
      comment: 'again',
    };
    await expect(client.call('candidate/reject', { ...reject, correct: true })).rejects.toMatchObject({
      code: 'WrongState',
    });
    expect((await client.call('session/get', { session: session.id })).candidates[0]?.decision).toBeNull();
    await client.call('candidate/reject', { ...reject, correct: false });
  });
});

it('what a client asked to be started is not, once it has gone', async () => {
  const { kernel: client } = kernel;
  const script = await quick();
  const before = (await client.call('session/list', {})).sessions.length;
  const clientId = `leaving-${randomBytes(4).toString('hex')}`;
  const leaving = await kernel.connect({ kind: 'window', graceMs: 0, clientId });
  // The engine's answer about the image keeps the start waiting until the client is seen gone.
  const asked = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  engine.behave((call) => {
    if (!call.path.startsWith('/images/')) return undefined;
    asked.resolve();
    return { kind: 'wait', until: released.promise };
  });
  const start = startSession(leaving, digest, script, { attempts: 1 });
  start.catch(() => undefined);
  await asked.promise;
  leaving.dispose();
  await eventually('the client is gone', async () =>
    (await kernel.log()).split('\n').some((line) => line.includes('client gone') && line.includes(clientId)),
  );
  engine.honest();
  released.resolve();
  // A start of another client afterwards: had the first been carried out, it would be listed by now.
  const { session } = await startSession(client, digest, script, { attempts: 1 });
  await sessionAt(client, session.id, 'verified', verified);
  expect((await client.call('session/list', {})).sessions).toHaveLength(before + 1);
});
