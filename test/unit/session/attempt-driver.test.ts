// The real driver, decider and store against an engine that falls silent, loses containers and does not confirm.
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import type { RelPath, SessionId } from '../../../src/protocol/primitives.ts';
import { unlimited } from '../../../src/server/scope/scope-guard.ts';
import { AttemptDriver, type AttemptDriverDeps } from '../../../src/server/session/attempt-driver.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import type { AttemptState } from '../../../src/server/session/state.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import { patienceMs } from '../../fixtures/kernel.ts';
import { basis, ids } from '../../fixtures/session.ts';
import { shakySandbox, type Fault, type ShakySandbox } from '../../fixtures/shaky-sandbox.ts';

let home: string;
const stores: Store[] = [];
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-driver-'));
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
  for (const store of stores.splice(0)) store.close();
  rmSync(home, { recursive: true, force: true });
});

const file = { path: 'src/a.py' as RelPath, mode: 0o644, bytes: Buffer.from('new') };

interface Bench {
  readonly store: Store;
  readonly sessions: Sessions;
  readonly told: { unrecorded: number };
  readonly id: SessionId;
  readonly driver: AttemptDriver;
  readonly attempt: () => AttemptState;
}

type Agent = AttemptDriverDeps['runAgent'];
const finishes: Agent = () => Promise.resolve({ kind: 'finished', message: 'done' });

/** A Kernel's worth of driver over the store of a folder; the second one on a folder is the next Kernel. */
function kernel(folder: string, shaky: ShakySandbox, agent: Agent = finishes, id?: SessionId): Bench {
  const store = openStore({ home: folder, now: () => 1000 });
  stores.push(store);
  const sessions = new Sessions(store, () => 0);
  let session = id;
  if (session === undefined) {
    session = sessions.create(basis).id;
    sessions.execute(session, { kind: 'queue', attempt: ids.attempt, feedback: null, token: null });
    sessions.execute(session, { kind: 'reserve', holder: 'k' });
  }
  const own = session;
  const told = { unrecorded: 0 };
  const deps = {
    sessions,
    sandbox: shaky.service,
    artefacts: store.artefacts,
    inferenceFor: () =>
      Promise.resolve({
        begin: () => Promise.resolve(null),
        chat: () => Promise.reject(new Error('no agent of this test asks')),
        idle: () => Promise.resolve('idle'),
        end: () => Promise.resolve(),
        dispose: () => undefined,
      }),
    runAgent: agent,
    contractOf: () => ({}),
    scopeOf: () => unlimited,
    specFor: (_: unknown, attempt: AttemptState) =>
      Promise.resolve({ name: 'escrow-attempt-x', owner: attempt.id, session: own, epoch: store.epoch, files: [file] }),
    candidateOf: (_: unknown, collected: readonly unknown[]) =>
      collected.length === 0 ? null : { digest: ids.candidate, files: [] },
    epoch: store.epoch,
    monotonic: () => 0,
    log: () => undefined,
    at: () => undefined,
    unrecorded: () => {
      told.unrecorded += 1;
    },
  } as unknown as AttemptDriverDeps;
  return {
    store,
    sessions,
    told,
    id: own,
    driver: new AttemptDriver(deps, own, ids.attempt),
    attempt: () => sessions.get(own).attempts[0]!,
  };
}

/** Lets time pass until the drive has come to its end; its own waits are made up, its work is real. */
async function toEnd(drive: Promise<void>): Promise<boolean> {
  const state = { over: false };
  void drive.then(() => {
    state.over = true;
  });
  return passing(30_000, () => state.over);
}

/** Lets so much made-up time pass, over and over and with real time for what is real, until something is so. */
async function passing(stepMs: number, there: () => boolean): Promise<boolean> {
  const deadline = performance.now() + patienceMs;
  while (!there() && performance.now() < deadline) {
    await vi.advanceTimersByTimeAsync(stepMs);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return there();
}

function judge(bench: Bench, shaky: ShakySandbox): void {
  const attempt = bench.attempt();
  expect(attempt.settled, 'it came to its end').not.toBeNull();
  expect(attempt.settled!.confirmed).toBe(true);
  expect(shaky.container()).toBe('absent');
  expect(shaky.made()).toBeLessThanOrEqual(1);
  // Bytes in the record were really read out of a running container, and are on the disk.
  const files = attempt.collection?.files ?? [];
  if (files.length > 0) expect(shaky.readOut()).toBe(true);
  for (const { ref } of files) expect(bench.store.artefacts.has(ref.sha256)).toBe(true);
  expect(bench.store.verifyChains()).toEqual([]);
}

/** Each run opens a store or two on the disk. */
const numRuns = process.env['ESCROW_TEST_FULL'] === '1' ? 200 : 40;
const propertyMs = 600_000;
const fault = fc.constantFrom<Fault>('none', 'none', 'silent', 'unconfirmed', 'vanish');

describe('whatever the engine does', () => {
  it('one Kernel brings the attempt to a confirmed end', { timeout: propertyMs }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fault, { maxLength: 14 }), async (faults) => {
        const folder = mkdtempSync(path.join(home, 'p-'));
        const shaky = shakySandbox();
        shaky.faults = [...faults];
        const bench = kernel(folder, shaky);
        expect(await toEnd(bench.driver.drive())).toBe(true);
        judge(bench, shaky);
      }),
      { numRuns },
    );
  });

  it(
    'and so does the next one, wherever the first was replaced; the replaced one writes and touches nothing more',
    { timeout: propertyMs },
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fault, { maxLength: 8 }),
          fc.nat({ max: 6 }),
          fc.array(fault, { maxLength: 8 }),
          async (first, waits, second) => {
            const folder = mkdtempSync(path.join(home, 'p-'));
            const shaky = shakySandbox();
            shaky.faults = [...first];
            const one = kernel(folder, shaky);
            const driving = one.driver.drive();
            for (let n = 0; n < waits; n += 1) await vi.advanceTimersByTimeAsync(700);
            const two = kernel(folder, shaky, finishes, one.id);
            if (two.attempt().settled === null) {
              shaky.faults = [...second];
              two.driver.settle('kernel_restart');
              expect(await toEnd(two.driver.drive())).toBe(true);
            }
            expect(await toEnd(driving)).toBe(true);
            judge(two, shaky);
            const seq = two.store.head();
            await vi.advanceTimersByTimeAsync(300_000);
            expect(two.store.head()).toBe(seq);
          },
        ),
        { numRuns },
      );
    },
  );
});

describe('a container that ended by itself while the agent worked', () => {
  it('for lack of memory is that, by name, with the word of each witness in the record', async () => {
    const shaky = shakySandbox();
    const bench = kernel(mkdtempSync(path.join(home, 'p-')), shaky, () => {
      shaky.starve();
      return new Promise(() => {});
    });
    expect(await toEnd(bench.driver.drive())).toBe(true);
    judge(bench, shaky);
    const { settled, settling } = bench.attempt();
    expect(settled?.outcome).toMatchObject({ kind: 'resource', reason: 'oom_killed' });
    expect(settling?.steps.find(({ step }) => step === 'stop')?.facts).toEqual({
      exitCode: 137,
      finishedAt: null,
      oomKilled: false,
      oomInside: 0,
      oomHost: null,
      oomEvents: 1,
      oomEventsWhole: false,
      endedByOom: true,
    });
  });

  it('without such a word is lost', async () => {
    const shaky = shakySandbox();
    const bench = kernel(mkdtempSync(path.join(home, 'p-')), shaky, () => {
      shaky.faults = ['vanish'];
      void shaky.service.list();
      return new Promise(() => {});
    });
    expect(await toEnd(bench.driver.drive())).toBe(true);
    expect(bench.attempt().settled?.outcome.kind).toBe('lost');
  });
});

describe('settlement that cannot be recorded', () => {
  it('ends the work and the container all the same; with room again the first cause is recorded', async () => {
    const shaky = shakySandbox();
    let aborted = false;
    const agent: Agent = (_task, _tools, signal) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => {
          aborted = true;
          resolve({ kind: 'cancelled' });
        });
      });
    const bench = kernel(home, shaky, agent);
    const drive = bench.driver.drive();
    expect(await passing(10, () => bench.attempt().phase === 'running')).toBe(true);
    const execute = bench.sessions.execute.bind(bench.sessions);
    bench.sessions.execute = () => {
      throw new EscrowError('StorageFull', 'No space left.', 'Free space.');
    };
    bench.driver.settle('window_close');
    bench.driver.settle('cancel');
    expect(aborted).toBe(true);
    expect(await passing(1_000, () => shaky.container() === 'stopped')).toBe(true);
    expect(bench.attempt().settling).toBeNull();
    expect(bench.told.unrecorded, 'clients hear of it').toBeGreaterThan(0);
    bench.sessions.execute = execute;
    expect(await toEnd(drive)).toBe(true);
    expect(bench.attempt().settling?.trigger).toBe('window_close');
    expect(bench.attempt().settled).toMatchObject({ outcome: { kind: 'cancelled' }, confirmed: true });
    expect(bench.attempt().settled?.unknown).toContain('bytes');
  });
});
