// Everything but the Kernel dies, stalls or fills up, in the middle of a real attempt.
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { findOrStartKernel } from '../../src/client/find-kernel.ts';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import { defaultBase } from '../../src/server/sandbox/image.ts';
import { callLine, peerModel, startOllamaPeer, streaming, line } from '../fixtures/bad-peers/ollama-peer.ts';
import { docker } from '../fixtures/docker.ts';
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
  type HeldAttempt,
} from '../fixtures/journey.ts';
import {
  endKernel,
  eventually,
  makeHome,
  settleHome,
  startTestKernel,
  testHello,
  type TestKernel,
} from '../fixtures/kernel.ts';
import { ownBundles, type OwnBundles } from '../fixtures/own-bundles.ts';
import { canMount, smallDisk, type SmallDisk, noMount } from '../fixtures/small-disk.ts';
import { hostPids, supervisorOf } from '../fixtures/strike.ts';

let bundles: OwnBundles;
let repo: ExampleRepo;
let home: string;
let digest: ContractDigest;
const open: TestKernel[] = [];
const folders: string[] = [];
/** A folder that goes at the end. */
async function ownFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-deaths-'));
  folders.push(folder);
  return folder;
}

beforeAll(async () => {
  bundles = await ownBundles();
  repo = await exampleRepo();
  home = await makeHome();
  const { kernel } = await start();
  digest = await prepareContract(kernel, repo.contract);
});

afterEach(async () => {
  for (const kernel of open.splice(0)) kernel.kernel.dispose();
  await endKernel(home);
});

afterAll(async () => {
  await settleHome(home, bundles.entry);
  for (const folder of [home, ...folders]) await rm(folder, { recursive: true, force: true });
  await repo.dispose();
  await bundles.dispose();
});

async function start(environment: Record<string, string> = {}, at = home): Promise<TestKernel> {
  const kernel = await startTestKernel({ home: at, entry: bundles.entry, environment });
  open.push(kernel);
  return kernel;
}

/** An attempt that has edited a file and whose model then thinks until it is told to go on. */
const atWork = async (kernel: TestKernel, contract = digest): Promise<HeldAttempt> =>
  heldAttempt(kernel.kernel, contract, await ownFolder(), [[turns.view, turns.edit], turns.finish], false);

const nothingLeft = (kernel: TestKernel): Promise<void> =>
  eventually('no container is left', async () => (await kernel.kernel.call('kernel/status', {})).containers === 0);

describe('control', () => {
  it('taken over: a higher token, the former controller told, its requests refused and recorded', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    const [former, later] = [
      await kernel.connect({ kind: 'window', name: 'former' }),
      await kernel.connect({ name: 'later' }),
    ];
    const first = await former.call('session/attach', { session: held.id, mode: 'control' });
    const told = new Promise((resolve) => former.on('session/controlLost', resolve));
    await expect(later.call('session/attach', { session: held.id, mode: 'control' })).rejects.toMatchObject({
      code: 'NotController',
    });
    const second = await later.call('session/attach', { session: held.id, mode: 'control', takeOver: true });
    expect(second.token!).toBeGreaterThan(first.token!);
    expect(await told).toEqual({ session: held.id, by: 'later' });
    await expect(former.call('session/cancel', { session: held.id, token: first.token! })).rejects.toMatchObject({
      code: 'StaleAuthority',
    });
    await expect(former.call('session/cancel', { session: held.id, token: second.token! })).rejects.toMatchObject({
      code: 'StaleAuthority',
    });
    const { events } = await later.call('session/events', { session: held.id, limit: 1000 });
    expect(events.filter((e) => e.type === 'request.refused')).toHaveLength(2);
    // The one that lost control goes; that means nothing for the session.
    former.dispose();
    await former.closed;
    await held.goOn();
    const view = await sessionAt(later, held.id, 'verified', verified);
    expect(view.attempts[0]?.outcome?.kind).toBe('candidate');
  });
});

describe('the queue', () => {
  it('survives the Kernel: what nobody controls runs, what a gone window wanted is parked until somebody attaches', async () => {
    const first = await start();
    const held = await atWork(first);
    const quick = await writeScript(repo.root, 'quick', [turns.view, turns.edit, turns.finish]);
    const alone = (await startSession(first.kernel, digest, quick, { attempts: 1, control: false })).session.id;
    const window = await first.connect({ kind: 'window', graceMs: 60_000 });
    const owned = (await startSession(window, digest, quick, { attempts: 1 })).session.id;
    const { queue } = await first.kernel.call('kernel/status', {});
    expect(queue).toHaveLength(2);
    expect((await first.kernel.call('session/get', { session: owned })).queuePosition).toBe(2);
    await first.kill();
    await first.kernel.closed;

    const second = await start();
    const interrupted = await sessionAt(second.kernel, held.id, 'settled', settled);
    expect(interrupted.attempts[0]?.outcome?.kind).toBe('interrupted');
    await sessionAt(second.kernel, alone, 'verified', verified);
    const parked = await second.kernel.call('session/get', { session: owned });
    expect(parked).toMatchObject({ state: 'parked', attempts: [] });
    const attached = await second.kernel.call('session/attach', { session: owned, mode: 'control' });
    expect(attached.token).not.toBeNull();
    await sessionAt(second.kernel, owned, 'verified', verified);
  });
});

describe('the container', () => {
  it('its supervisor killed: one observation ends the attempt; what is gone is called lost', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    process.kill((await supervisorOf(held.container))!, 'SIGKILL');
    const view = await sessionAt(kernel.kernel, held.id, 'settled', settled);
    expect(view.attempts[0]).toMatchObject({
      outcome: { kind: 'lost' },
      collection: { state: 'none' },
      settlement: { confirmed: true },
      requests: 3,
    });
    expect(view.candidates).toEqual([]);
    await nothingLeft(kernel);
  });

  it('killed from outside: lost, and the model is not asked again', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    await docker('kill', held.container);
    const view = await sessionAt(kernel.kernel, held.id, 'settled', settled);
    expect(view.attempts[0]).toMatchObject({ outcome: { kind: 'lost' }, settlement: { confirmed: true }, requests: 3 });
    expect(view.attempts[0]?.settlement?.unknown).toContain('bytes');
    await nothingLeft(kernel);
  });

  it('killed and removed from outside: lost, its absence observed', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    await docker('rm', '-f', held.container);
    const view = await sessionAt(kernel.kernel, held.id, 'settled', settled);
    expect(view.attempts[0]).toMatchObject({ outcome: { kind: 'lost' }, settlement: { confirmed: true } });
    expect(view.attempts[0]?.settlement?.steps.find((s) => s.step === 'stop')?.facts).toEqual({ absent: true });
  });

  it('made after its attempt had settled, as by a create that was on its way: swept, and recorded', async () => {
    const kernel = await start();
    const seq = (await kernel.kernel.call('evidence/subscribe', { lastSeenSeq: 0 })).seq;
    const held = await atWork(kernel);
    await held.goOn();
    const view = await sessionAt(kernel.kernel, held.id, 'verified', verified);
    const attempt = view.attempts[0]!;
    // What a create that was on its way when its Kernel died leaves: our labels, a settled attempt.
    const labels = {
      'escrow.product': 'escrow',
      'escrow.home': readHomeId(home),
      'escrow.purpose': 'attempt',
      'escrow.owner': attempt.id,
      'escrow.session': view.id,
    };
    const flags = Object.entries(labels).flatMap(([key, value]) => ['--label', `${key}=${value}`]);
    const base = (await defaultBase(engineHere())) ?? '';
    const stray = await docker('run', '-d', '--network=none', ...flags, base, 'sleep', '600');
    try {
      await kernel.kernel.call('kernel/probe', {});
      await eventually(
        'it is gone',
        async () => (await docker('ps', '-aq', '--no-trunc', '--filter', `id=${stray}`)) === '',
      );
      const { events } = await kernel.kernel.call('evidence/subscribe', { lastSeenSeq: seq });
      expect(events.filter((e) => e.type === 'container.swept').map((e) => e.data)).toMatchObject([
        { engineId: stray, owner: attempt.id, found: 'running', stop: 'stopped', absence: 'absent' },
      ]);
    } finally {
      await docker('rm', '-f', stray).catch(() => undefined);
    }
  });
});

describe('the inference engine', () => {
  it('gone in the middle of a stream: transport, nothing asked again, the reservation spent', async () => {
    let streams = 0;
    const peer = await startOllamaPeer({
      ps: () => [],
      chat: (response) => {
        streams += 1;
        streaming(response).write(line({ content: 'I look' }));
        if (streams === 1)
          response.write(callLine('file_editor', { command: 'view', path: '/workspace/src/usage.py' }));
        setImmediate(() => response.destroy());
      },
    });
    const kernel = await start({ ESCROW_INFERENCE_HOST: peer.host });
    try {
      const { session } = await kernel.kernel.call('session/start', {
        digest,
        engine: 'ollama',
        model: peerModel,
        control: false,
        extend: { attempts: 1, reviewer: { name: 'test', channel: 'script' } },
      });
      const view = await sessionAt(kernel.kernel, session.id, 'settled', settled);
      expect(view.attempts[0]).toMatchObject({
        outcome: { kind: 'transport' },
        collection: { state: 'complete' },
        settlement: { confirmed: true },
        requests: 1,
      });
      expect(peer.chats).toHaveLength(1);
      expect(view.candidates.every((c) => !c.eligible)).toBe(true);
      expect(view.budget.used).toBeGreaterThanOrEqual(1);
    } finally {
      await peer.close();
    }
  });
});

describe('the clock', () => {
  it('set a day forth and two days back in mid-attempt: nothing expires, nothing is lost', async () => {
    const clock = path.join(await ownFolder(), 'offset');
    const day = 86_400_000;
    const kernel = await start({
      NODE_OPTIONS: `--import=${path.resolve(import.meta.dirname, '../fixtures/wall-clock-jump.mjs')}`,
      ESCROW_TEST_CLOCK: clock,
    });
    const window = await kernel.connect({ kind: 'window', graceMs: 300_000 });
    const held = await atWork(kernel);
    await window.call('session/attach', { session: held.id, mode: 'control' });
    await writeFile(clock, String(day));
    await window.call('kernel/status', {});
    await writeFile(clock, String(-day));
    window.dispose();
    const again = await kernel.connect({ kind: 'window' });
    await held.goOn();
    const view = await sessionAt(again, held.id, 'verified', verified);
    expect(view.attempts[0]?.outcome?.kind).toBe('candidate');
    const times = view.attempts[0]!.settlement!.steps.map((s) => s.at);
    // The record tells what the clock said; it decides nothing.
    expect(Math.max(...times)).toBeLessThan(Date.now());
    again.dispose();
  });
});

describe('the machine', () => {
  it('suspended with everything on it, then continued: the attempt goes on', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    const pids = [kernel.pid, ...(await hostPids(held.container)).map((p) => p.pid)];
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    // Less than the dead man's switch: a real suspend stops the monotonic clock too, stopped processes see it go on.
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    for (const pid of pids.toReversed()) process.kill(pid, 'SIGCONT');
    await held.goOn();
    const view = await sessionAt(kernel.kernel, held.id, 'verified', verified);
    expect(view.attempts[0]?.outcome?.kind).toBe('candidate');
  });

  it('the Kernel stopped while clients wait: nobody starts another, and everybody is answered afterwards', async () => {
    const kernel = await start();
    const held = await atWork(kernel);
    process.kill(kernel.pid, 'SIGSTOP');
    let answered = false;
    const waiting = kernel.kernel.call('session/get', { session: held.id }).then((view) => {
      answered = true;
      return view;
    });
    await expect(
      findOrStartKernel({
        home,
        hello: testHello(),
        kernelPath: bundles.entry,
        nodePath: process.execPath,
        autostart: true,
        deadlineMs: 1_500,
      }),
    ).rejects.toMatchObject({ code: 'NoKernel' });
    expect(answered).toBe(false);
    process.kill(kernel.pid, 'SIGCONT');
    expect((await waiting).id).toBe(held.id);
    await held.goOn();
    const view = await sessionAt(kernel.kernel, held.id, 'verified', verified);
    expect(view.attempts[0]?.outcome?.kind).toBe('candidate');
    expect((await kernel.kernel.call('kernel/status', {})).pid).toBe(kernel.pid);
  });
});

describe.skipIf(!canMount)(`the disk of the state folder${noMount}`, () => {
  let disk: SmallDisk;
  let small: string;
  beforeAll(async () => {
    disk = await smallDisk(12);
    small = disk.folder;
  });
  afterAll(async () => {
    await settleHome(small, bundles.entry);
    await disk.dispose();
  });

  it('full in mid-attempt: the container is stopped all the same; with room again the record says what was lost', async () => {
    const kernel = await start({}, small);
    const contract = await prepareContract(kernel.kernel, repo.contract);
    const window = await kernel.connect({ kind: 'window', graceMs: 0 });
    const held = await atWork(kernel, contract);
    await window.call('session/attach', { session: held.id, mode: 'control' });
    await disk.fill();
    window.dispose();
    await eventually(
      'the container is stopped without a record',
      async () => (await docker('ps', '-q', '--no-trunc', '--filter', `id=${held.container}`)) === '',
    );
    expect((await kernel.kernel.call('kernel/status', {})).pid).toBe(kernel.pid);
    await disk.free();
    await kernel.kernel.call('kernel/probe', {});
    const view = await sessionAt(kernel.kernel, held.id, 'settled', settled);
    expect(view.attempts[0]).toMatchObject({
      outcome: { kind: 'cancelled' },
      settlement: { trigger: 'window_close', confirmed: true },
    });
    expect(view.attempts[0]?.settlement?.unknown).toContain('bytes');
    const { broken } = await kernel.kernel.call('kernel/verify', {});
    expect(broken).toEqual([]);
    await nothingLeft(kernel);
  });

  it('read-only when the Kernel starts again: it says so and nothing starts; writable, the attempt is settled', async () => {
    const first = await start({}, small);
    const contract = await prepareContract(first.kernel, repo.contract);
    const held = await atWork(first, contract);
    await first.kill();
    await first.kernel.closed;
    // A file system cannot be made read-only under a process that writes to it; between two Kernels it can.
    await disk.readOnly();
    try {
      await expect(start({}, small)).rejects.toMatchObject({ code: 'StorageUnwritable' });
    } finally {
      await disk.writable();
    }
    const kernel = await start({}, small);
    const view = await sessionAt(kernel.kernel, held.id, 'settled', settled);
    expect(view.attempts[0]).toMatchObject({ outcome: { kind: 'interrupted' }, settlement: { confirmed: true } });
    expect(view.attempts[0]?.collection?.state).toBe('complete');
    await nothingLeft(kernel);
  });
});

/** The home's identity, out of its database, read only. */
function readHomeId(folder: string): string {
  const text = readFileSync(path.join(folder, 'escrow.db')).toString('latin1');
  const found = /homeId([0-9a-f]{20})/.exec(text)?.[1];
  if (found === undefined) throw new Error('no home id');
  return found;
}
