// The container engine stops, is killed and comes back, in the middle of a real attempt: on an engine of our own.
import { rm } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ContractDigest, SessionId } from '../../src/protocol/primitives.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { exampleRepo, type ExampleRepo } from '../fixtures/example-repo.ts';
import { heldAttempt, prepareContract, sessionAt, settled, turns } from '../fixtures/journey.ts';
import { endKernel, eventually, makeHome, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ownBundles, type OwnBundles } from '../fixtures/own-bundles.ts';
import { privateEngine, type PrivateEngine } from '../fixtures/private-engine.ts';
import { sandboxBench } from '../fixtures/sandbox.ts';

let engine: PrivateEngine;
let bundles: OwnBundles;
let repo: ExampleRepo;
let home: string;
let digest: ContractDigest;
let kernel: TestKernel;

const start = async (): Promise<void> => {
  kernel = await startTestKernel({ home, entry: bundles.entry, environment: { ESCROW_ENGINE_HOST: engine.host } });
};

beforeAll(async () => {
  bundles = await ownBundles();
  const bench = await sandboxBench();
  await bench.dispose();
  engine = await privateEngine([bench.image.reference, bench.image.digest]);
  repo = await exampleRepo();
  home = await makeHome();
  await start();
  digest = await prepareContract(kernel.kernel, repo.contract);
});

afterAll(async () => {
  await endKernel(home);
  await engine.dispose();
  await rm(home, { recursive: true, force: true });
  await repo.dispose();
  await bundles.dispose();
});

const atWork = () => heldAttempt(kernel.kernel, digest, home, [[turns.view, turns.edit], turns.finish], false);
const pending = (view: SessionView): boolean => view.attempts[0]?.phase === 'cancellation_pending';
const at = (id: SessionId, what: string, there: (view: SessionView) => boolean, ms?: number): Promise<SessionView> =>
  sessionAt(kernel.kernel, id, what, there, ms);
/** Lets the Kernel look now instead of after its own wait. */
async function lookUntil(id: SessionId, there: (view: SessionView) => boolean): Promise<SessionView> {
  let view: SessionView | undefined;
  await eventually('it was looked at', async () => {
    await kernel.kernel.call('kernel/probe', {});
    view = await kernel.kernel.call('session/get', { session: id });
    return there(view);
  });
  return view!;
}

it('dead for a while: pending is said, never settled without a sight; a restarted Kernel too; then confirmed', async () => {
  const held = await atWork();
  await engine.kill();
  const waiting = await at(held.id, 'pending', pending);
  expect(waiting.attempts[0]?.pending?.waitingFor).toMatch(/^container_engine/);
  expect(waiting.state).toBe('settling');
  const status = await kernel.kernel.call('kernel/status', {});
  expect(status.pending).toMatchObject([{ session: held.id }]);
  expect(status.containers).toBeNull();
  // Looking again does not settle it, and neither does another Kernel, be the first killed or asked to end.
  await kernel.kernel.call('kernel/probe', {});
  await kernel.kill();
  await kernel.kernel.closed;
  await start();
  await at(held.id, 'pending after a death', pending);
  const asked = performance.now();
  await kernel.kernel.call('kernel/stop', { settle: true });
  await kernel.kernel.closed;
  expect(performance.now() - asked).toBeLessThan(60_000);
  await start();
  const again = await at(held.id, 'pending after a restart', pending);
  expect(again.attempts[0]?.settlement?.settledAt).toBeNull();
  await engine.start();
  const view = await lookUntil(held.id, settled);
  const attempt = view.attempts[0]!;
  expect(attempt.settlement).toMatchObject({ confirmed: true, supervised: null });
  expect(attempt.requests).toBe(3);
  // An engine that comes back either ends its containers (their memory is gone) or still has them.
  expect([
    ['lost', 'none'],
    ['infrastructure', 'complete'],
    ['infrastructure', 'partial'],
  ]).toContainEqual([attempt.outcome?.kind, attempt.collection?.state]);
  expect(await engine.docker('ps', '-aq')).toBe('');
});

it('stopped in order: it ends the containers itself; that is one observation, and what was in them is lost', async () => {
  const held = await atWork();
  await engine.stop();
  await engine.start();
  const view = await lookUntil(held.id, settled);
  expect(view.attempts[0]).toMatchObject({
    outcome: { kind: 'lost' },
    collection: { state: 'none' },
    settlement: { confirmed: true },
    requests: 3,
  });
  expect(await engine.docker('ps', '-aq')).toBe('');
});

// Takes a minute and more of real silence.
if (process.env['ESCROW_TEST_FULL'] === '1') {
  it('stalled, accepting and never answering: silence is noticed, nothing is claimed, and it ends once it answers', async () => {
    const held = await atWork();
    engine.stall();
    try {
      const waiting = await at(held.id, 'pending', pending, 150_000);
      expect(waiting.attempts[0]?.settlement).toMatchObject({ settledAt: null, confirmed: false });
      expect(waiting.attempts[0]?.requests).toBe(3);
      // The Kernel answers its clients meanwhile.
      const asked = performance.now();
      await kernel.kernel.call('session/list', {});
      expect(performance.now() - asked).toBeLessThan(5_000);
    } finally {
      engine.goOn();
    }
    const view = await lookUntil(held.id, settled);
    expect(view.attempts[0]?.settlement?.confirmed).toBe(true);
    expect(await engine.docker('ps', '-aq')).toBe('');
  });
}

it('gone for good: a person ends the wait, recorded with what was seen; a container that comes back is swept', async () => {
  const held = await atWork();
  await engine.kill();
  const waiting = await at(held.id, 'pending', pending);
  const attempt = waiting.attempts[0]!;
  const call = { session: held.id, attempt: attempt.id, reviewer: { name: 'ada', channel: 'tty' as const } };
  await expect(
    kernel.kernel.call('session/reconcile', { ...call, since: attempt.pending!.since - 1, why: 'x' }),
  ).rejects.toMatchObject({ code: 'WrongState' });
  await kernel.kernel.call('session/reconcile', {
    ...call,
    since: attempt.pending!.since,
    why: 'the machine was reinstalled',
  });
  const view = await at(held.id, 'settled', settled);
  expect(view.attempts[0]?.settlement).toMatchObject({
    confirmed: false,
    supervised: { by: 'ada', channel: 'tty', why: 'the machine was reinstalled', saw: 'no_answer' },
  });
  expect(view.attempts[0]?.settlement?.unknown).toEqual(expect.arrayContaining(['stop', 'release']));
  // The earlier state stays in the history.
  const { events } = await kernel.kernel.call('session/events', { session: held.id, limit: 1000 });
  const types = events.map((e) => e.type);
  expect(types.indexOf('attempt.pending')).toBeLessThan(types.indexOf('attempt.reconciled'));
  expect(types.at(-1)).toBe('attempt.settled');
  await engine.start();
  expect(await engine.docker('ps', '-aq')).not.toBe('');
  await eventually('the leftover is swept', async () => {
    await kernel.kernel.call('kernel/probe', {});
    return (await engine.docker('ps', '-aq')) === '';
  });
  const after = await kernel.kernel.call('session/get', { session: held.id });
  expect(after.attempts[0]?.settlement?.confirmed).toBe(false);
});
