import { rm } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { AttemptEngine, LiveInference, MemoryReading } from '../../../src/protocol/attempt.ts';
import type { Binding } from '../../../src/protocol/binding.ts';
import { defaultOptions, defaultSwitches } from '../../../src/server/agent/defaults.ts';
import { agentTools, promptDigest } from '../../../src/server/agent/prompt.ts';
import { makeBinding } from '../../../src/server/inference/binding.ts';
import { InventoryLedger } from '../../../src/server/inference/inventory-ledger.ts';
import type { MemoryCeilings } from '../../../src/server/inference/memory.ts';
import type { InferenceEngine } from '../../../src/server/inference/port.ts';
import { AttemptInference } from '../../../src/server/session/attempt-inference.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import type { Store } from '../../../src/server/store/port.ts';
import {
  honestLoaded,
  lastLine,
  line,
  peerDigest,
  peerModel,
  startOllamaPeer,
  streaming,
  type OllamaPeer,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import { anySha256 } from '../../fixtures/frozen-contract.ts';
import { makeHome } from '../../fixtures/kernel.ts';
import { engineOn, failureOf } from '../../fixtures/ollama-chat.ts';
import { ids } from '../../fixtures/session.ts';

const GiB = 1024 ** 3;
const memory = (hostFree: number, gpuFree: number | null = null): MemoryReading => ({
  at: 0,
  hostTotal: 32 * GiB,
  hostFree: hostFree * GiB,
  gpus: gpuFree === null ? null : [{ name: 'RTX 4060', driver: '550.54', total: 8 * GiB, free: gpuFree * GiB }],
});

let home: string;
let store: Store;
let peer: OllamaPeer | undefined;
beforeEach(async () => {
  home = await makeHome();
  store = openStore({ home, now: () => 1 });
});
afterEach(async () => {
  await peer?.close();
  store.close();
  await rm(home, { recursive: true });
});

interface Begun {
  readonly inference: AttemptInference;
  readonly recorded: AttemptEngine[];
  readonly lives: (LiveInference | null)[];
}

async function begin(
  engine: InferenceEngine,
  parts: { readings?: MemoryReading[]; ceilings?: MemoryCeilings } = {},
): Promise<Begun> {
  const binding: Binding = await makeBinding({
    engine,
    model: peerModel,
    defaults: defaultOptions,
    asked: { numCtx: 8192 },
    switches: defaultSwitches,
    promptDigest: promptDigest(agentTools),
    image: { reference: 'x', digest: 'x', executorDigest: anySha256 },
    profile: { name: 'bounded', digest: anySha256 },
  });
  const recorded: AttemptEngine[] = [];
  const lives: (LiveInference | null)[] = [];
  const readings = [...(parts.readings ?? [])];
  const last = readings.at(-1) ?? memory(16);
  return {
    recorded,
    lives,
    inference: new AttemptInference({
      engine,
      binding,
      session: ids.session,
      attempt: ids.attempt,
      inventories: new InventoryLedger(store, () => 1),
      memory: { read: () => Promise.resolve(readings.shift() ?? last) },
      ceilings: parts.ceilings ?? { host: 0.95, gpu: null },
      live: (live) => lives.push(live),
      record: (facts) => recorded.push(facts),
      log: () => undefined,
      monotonic: () => performance.now(),
    }),
  };
}
const never = (): AbortSignal => new AbortController().signal;

describe("the engine's side of an attempt", () => {
  test('a model that lies wholly on the processor has no layer on a GPU', async () => {
    peer = await startOllamaPeer({ ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, size_vram: 0 }]) });
    const { inference, recorded } = await begin(engineOn(peer.host));
    await inference.begin();
    await inference.chat([{ role: 'user', content: 'hi' }], [], never());
    await inference.end();
    expect(recorded.at(-1)).toMatchObject({ gpuShare: 0, layersOffloaded: 0, loadedBytes: 3_000_000_000 });
  });

  test('names device and driver where there is no doubt, and what nobody tells stays null', async () => {
    peer = await startOllamaPeer();
    const { inference, recorded, lives } = await begin(engineOn(peer.host), { readings: [memory(16, 6)] });
    expect(await inference.begin()).toBeNull();
    await inference.chat([{ role: 'user', content: 'hi' }], [], never());
    await inference.end();
    expect(recorded.at(-1)).toMatchObject({
      device: 'RTX 4060',
      driver: '550.54',
      gpuShare: 0.5,
      loadedBytes: 3_000_000_000,
      layersOffloaded: null,
      kvBytes: null,
      modelStore: '/models',
      during: [{ what: 'loaded', name: peerModel, before: null, after: `${peerDigest} context 8192` }],
    });
    expect(lives.map((live) => live?.state ?? null)).toEqual(['loading', 'answering', null]);
    expect(lives[1]).toMatchObject({ n: 1, text: 'hello', chars: 5 });
  });

  test('weights that fit nowhere end it before anything is sent, unless they are loaded already', async () => {
    let loaded: object[] = [];
    peer = await startOllamaPeer({ ps: () => loaded as never });
    const engine = engineOn(peer.host);
    const tight = { readings: [memory(2, 0.2)] };
    expect(await (await begin(engine, tight)).inference.begin()).toEqual({
      kind: 'resource',
      code: 'model_does_not_fit',
      detail: 'stopped before loading: the weights take 2384 MiB, free are 2048 MiB of host and 205 MiB of GPU memory',
    });
    loaded = [honestLoaded];
    expect(await (await begin(engine, tight)).inference.begin()).toBeNull();
    expect(peer.chats).toHaveLength(0);
  });

  test('a ceiling that is reached while the model loads ends the request as a resource, with that phase', async () => {
    const closed = Promise.withResolvers<void>();
    peer = await startOllamaPeer({
      chat: (response) => {
        response.once('close', () => {
          closed.resolve();
        });
      },
    });
    const { inference, recorded } = await begin(engineOn(peer.host), { readings: [memory(16), memory(1)] });
    expect(await inference.begin()).toBeNull();
    const failure = await failureOf(inference.chat([{ role: 'user', content: 'hi' }], [], never()));
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'resource', code: 'host_memory_ceiling' });
    expect(failure.message).toContain('stopped while loading');
    await closed.promise;
    await inference.end();
    expect(recorded.at(-1)?.lowest).toEqual({ hostFree: GiB, gpuFree: null });
  });

  test('and while it answers, as running', async () => {
    peer = await startOllamaPeer({
      chat: (response) => void streaming(response).write(line({ content: 'begun' })),
    });
    const { inference } = await begin(engineOn(peer.host), { readings: [memory(16), memory(1)] });
    await inference.begin();
    const failure = await failureOf(inference.chat([{ role: 'user', content: 'hi' }], [], never()));
    expect(failure.message).toContain('stopped while running');
  });

  test('an engine that cannot be surveyed leaves the difference unknown and holds nothing up', async () => {
    peer = await startOllamaPeer({
      chat: (response) => void streaming(response).end(line({ content: 'x' }) + lastLine),
    });
    const { inference, recorded } = await begin(engineOn(peer.host));
    await inference.begin();
    await peer.close();
    await inference.end();
    expect(recorded.at(-1)).toMatchObject({ during: null });
  });

  test('the end of one attempt is what the next is compared with, also by another Kernel', async () => {
    const models = [peerModel];
    peer = await startOllamaPeer({
      tags: () => models.map((name) => ({ name, digest: peerDigest, size: 1, capabilities: ['tools'] })),
    });
    const engine = engineOn(peer.host);
    const first = await begin(engine);
    await first.inference.begin();
    await first.inference.end();
    store.close();
    store = openStore({ home, now: () => 2 });
    models.push('new:1b');
    const second = await begin(engine);
    await second.inference.begin();
    expect(second.recorded[0]?.sinceLast).toEqual([
      { what: 'model_added', name: 'new:1b', before: null, after: peerDigest },
    ]);
  });
});
