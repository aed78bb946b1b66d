// The Kernel is killed at each named point of a real attempt and restarted; at the end it is restarted once more, and
// nothing of all that has come to rest may have changed.
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EscrowError } from '../../src/protocol/errors.ts';
import type { ContractDigest, SessionId } from '../../src/protocol/primitives.ts';
import type { EvidenceEvent, SessionView } from '../../src/protocol/views.ts';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import { mostInterrupted } from '../../src/server/session/recovery-table.ts';
import { exampleRepo, type ExampleRepo } from '../fixtures/example-repo.ts';
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
import { endKernel, eventually, makeHome, settleHome, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ownBundles, type OwnBundles } from '../fixtures/own-bundles.ts';

/** Points before the agent's work is over: the attempt is settled by the next Kernel. */
const during = [
  'before-provision',
  'container-intended',
  'container-created',
  'container-started',
  'channel-attached',
  'files-placed',
  'before-work',
  'request-counted',
  'turn-artefacts',
  'turn-recorded',
  'activity-recorded',
  'work-ended',
] as const;
/** Points inside settlement: the next Kernel carries it on. */
const settling = [
  'before-quiesce',
  'before-collect',
  'collected',
  'files-durable',
  'before-stop',
  'killed',
  'before-release',
  'removed',
  'before-finish',
] as const;
/** Points of the verification that follows a held candidate. */
const verifying = [
  'after-finish',
  'verification-intended',
  'verification-created',
  'verification-placed',
  'verification-stopped',
] as const;

let bundles: OwnBundles;
let repo: ExampleRepo;
let home: string;
let digest: ContractDigest;
let script: string;
const open: TestKernel[] = [];

const start = async (crashAt?: string): Promise<TestKernel> => {
  const kernel = await startTestKernel({
    home,
    entry: bundles.entry,
    ...(crashAt === undefined ? {} : { environment: { ESCROW_CRASH_AT: crashAt } }),
  });
  open.push(kernel);
  return kernel;
};
const events = async (kernel: KernelConnection, session: SessionId): Promise<readonly EvidenceEvent[]> =>
  (await kernel.call('session/events', { session, limit: 1000 })).events;
const count = (all: readonly EvidenceEvent[], type: string): number => all.filter((e) => e.type === type).length;

beforeAll(async () => {
  bundles = await ownBundles();
  repo = await exampleRepo();
  home = await makeHome();
  script = await writeScript(repo.root, 'script', [turns.view, turns.edit, turns.finish]);
  const { kernel } = await start();
  digest = await prepareContract(kernel, repo.contract);
  await endKernel(home);
});

afterAll(async () => {
  await settleHome(home, bundles.entry);
  await rm(home, { recursive: true, force: true });
  await repo.dispose();
  await bundles.dispose();
});

/** Starts a session in a Kernel that dies at `point`; undefined where it died before it could answer. */
async function dieIn(doomed: TestKernel): Promise<SessionId | undefined> {
  const started = await startSession(doomed.kernel, digest, script, { attempts: 1, control: false }).catch(
    (error: unknown) => {
      // The client does not know whether it acted.
      if (EscrowError.is(error, 'NoKernel')) return undefined;
      throw error;
    },
  );
  await doomed.kernel.closed;
  await eventually('the Kernel is dead', () => !alive(doomed.pid));
  return started?.session.id;
}

const newestOf = async (kernel: KernelConnection): Promise<SessionId> => {
  const newest = (await kernel.call('session/list', {})).sessions.toSorted((a, b) => b.createdAt - a.createdAt)[0];
  if (newest === undefined) throw new Error('the session is not there');
  return newest.id;
};

async function dieAt(point: string): Promise<SessionId> {
  const session = await dieIn(await start(point));
  if (session !== undefined) return session;
  const { kernel } = await start();
  const newest = await newestOf(kernel);
  await endKernel(home);
  return newest;
}
function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

interface Rested {
  readonly session: SessionId;
  readonly view: SessionView;
  readonly events: readonly EvidenceEvent[];
}
/** What was recorded of each session once it was at rest: later Kernels must leave that as it is. */
const atRest: Rested[] = [];

async function look(
  kernel: KernelConnection,
  session: SessionId,
  until: (view: SessionView) => boolean,
): Promise<Rested> {
  const view = await sessionAt(kernel, session, 'at rest after a restart', until);
  await eventually('no container is left', async () => (await kernel.call('kernel/status', {})).containers === 0);
  const seen = { session, view, events: await events(kernel, session) };
  atRest.push(seen);
  return seen;
}

async function restarted(session: SessionId, until: (view: SessionView) => boolean): Promise<Rested> {
  const { kernel } = await start();
  const seen = await look(kernel, session, until);
  await endKernel(home);
  return seen;
}

describe('the Kernel killed during an attempt', () => {
  const seen = new Map<string, Rested>();

  // The Kernel that dies at a point is the one that settles what died at the point before: its settlement passes none
  // of these points.
  beforeAll(async () => {
    let before: { point: string; session: SessionId | undefined } | undefined;
    for (const point of [...during, undefined]) {
      const doomed = await start(point);
      if (before !== undefined)
        seen.set(before.point, await look(doomed.kernel, before.session ?? (await newestOf(doomed.kernel)), settled));
      if (point !== undefined) before = { point, session: await dieIn(doomed) };
    }
    await endKernel(home);
  });

  for (const point of during) {
    it(`${point}: settled as interrupted, nothing replayed, no container left`, () => {
      const first = seen.get(point)!;
      const attempt = first.view.attempts.at(-1);
      expect(attempt?.outcome?.kind).toBe('interrupted');
      expect(attempt?.settlement).toMatchObject({ trigger: 'kernel_restart', confirmed: true });
      expect(first.view.candidates.every((c) => !c.eligible)).toBe(true);
      expect(count(first.events, 'attempt.reserved')).toBe(1);
      // Every request that was counted stays counted; none was sent after the restart.
      const settlingSeq = first.events.find((e) => e.type === 'attempt.settling')?.seq ?? 0;
      expect(first.events.filter((e) => e.type === 'attempt.request' && e.seq > settlingSeq)).toEqual([]);
      if (point === 'request-counted' || point === 'turn-artefacts')
        expect(attempt?.settlement?.unknown).toContain('generation');
      if (point === 'files-placed' || point === 'activity-recorded')
        expect(attempt?.collection?.state).toBe('complete');
    });
  }
});

describe('the Kernel killed during settlement', () => {
  for (const point of settling) {
    it(`${point}: the next Kernel carries it on to the same candidate`, async () => {
      const first = await restarted(await dieAt(point), verified);
      const attempt = first.view.attempts.at(-1);
      expect(attempt?.outcome?.kind).toBe('candidate');
      expect(attempt?.settlement).toMatchObject({ trigger: 'finish', confirmed: true });
      expect(first.view.candidates).toHaveLength(1);
      expect(first.view.candidates[0]?.verdict).toBe('passed');
      expect(count(first.events, 'attempt.settled')).toBe(1);
    });
  }
});

const results = (view: SessionView): readonly unknown[] =>
  view.candidates.flatMap((c) => c.verifications.map((v) => [v.state, v.result, v.reasons]));
const interrupted = ['done', 'incomplete', ['interrupted']];
const passed = ['done', 'passed', []];

describe('the Kernel killed while it verifies', () => {
  for (const point of verifying) {
    it(`${point}: what was interrupted is incomplete; a new verification starts by itself`, async () => {
      const first = await restarted(await dieAt(point), (v) => v.candidates[0]?.verdict === 'passed');
      expect(results(first.view)).toEqual(point === 'after-finish' ? [passed] : [interrupted, passed]);
      expect(count(first.events, 'attempt.settled')).toBe(1);
    });
  }

  it('a verification that ends its Kernel each time is given up, until a person asks', async () => {
    const point = 'verification-created';
    const session = await dieAt(point);
    let view: SessionView | undefined;
    // Each Kernel dies of it, some before they can be spoken to, until one leaves it alone.
    for (let n = 0; n <= mostInterrupted && view === undefined; n += 1) {
      view = await start(point).then(
        async ({ kernel }) => Promise.race([kernel.closed.then(() => undefined), givenUp(kernel, session)]),
        unlessGone,
      );
    }
    expect(results(view!)).toEqual(Array.from({ length: mostInterrupted }, () => interrupted));
    await endKernel(home);

    const healthy = await start();
    const { digest: candidate } = view!.candidates[0]!;
    expect((await healthy.kernel.call('candidate/verify', { session, candidate })).result).toBe('passed');
    await endKernel(home);
  });

  it('a Kernel that is stopped on purpose leaves it to the next one', async () => {
    const { kernel } = await start();
    const slow = await slowContract(kernel);
    const held = await heldAttempt(kernel, digest, repo.root, [[turns.view], turns.edit, turns.finish], false);
    // It waits behind the attempt and before its verification, and takes longer than anybody waits.
    const behind = kernel.call('contract/baseline', { digest: slow }).catch(() => undefined);
    await eventually('it waits', async () => (await kernel.call('kernel/status', {})).queue.length === 1);
    await held.goOn();
    await sessionAt(kernel, held.id, 'the verification waits', (v) =>
      v.candidates.some((c) => c.verifications.some((r) => r.state === 'queued')),
    );
    await endKernel(home);
    await behind;
    const next = await restarted(held.id, (v) => v.candidates[0]?.verdict === 'passed');
    expect(results(next.view)).toEqual([['done', 'incomplete', ['interrupted', 'Cancelled']], passed]);
  });
});

it('no later Kernel adds anything to what has come to rest', async () => {
  const { kernel } = await start();
  await eventually('nothing is under way', async () => {
    const { active, queue, containers } = await kernel.call('kernel/status', {});
    return active.length === 0 && queue.length === 0 && containers === 0;
  });
  expect(atRest).not.toEqual([]);
  for (const { session, view, events: before } of atRest) {
    expect(await events(kernel, session)).toEqual(before);
    const after = await kernel.call('session/get', { session });
    // The budget is the contract's, over all sessions.
    expect(after).toEqual({ ...view, seq: after.seq, budget: after.budget });
  }
  await endKernel(home);
});

const unlessGone = (error: unknown): undefined => {
  if (!EscrowError.is(error, 'NoKernel')) throw error;
};

/** Undefined when the Kernel dies meanwhile. */
const givenUp = async (kernel: KernelConnection, session: SessionId): Promise<SessionView | undefined> =>
  sessionAt(kernel, session, 'the last one is recorded', (v) => verified(v) && v.state === 'waiting').catch(
    (error: unknown) => unlessGone(error instanceof Error && EscrowError.is(error.cause) ? error.cause : error),
  );

/** A contract whose only check takes minutes. */
async function slowContract(kernel: KernelConnection): Promise<ContractDigest> {
  const file = path.join(repo.root, 'slow.contract.jsonc');
  const sleep = {
    id: 'slow',
    argv: ['python3', '-c', 'import time; time.sleep(300)'],
    baseline: 'fail',
    timeoutS: 300,
  };
  const contract = { title: 'slow', instruction: 'x', writable: ['src/usage.py'], acceptance: [sleep] };
  await writeFile(file, JSON.stringify(contract));
  return (await kernel.call('contract/freeze', { path: file })).digest;
}
