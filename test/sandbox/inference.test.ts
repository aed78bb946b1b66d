import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import type { LiveInference } from '../../src/protocol/attempt.ts';
import {
  callEvents,
  event,
  lastEvents,
  servedModel,
  startCompletionsPeer,
  streamingEvents,
  type CompletionsPeer,
} from '../fixtures/bad-peers/completions-peer.ts';
import {
  callLine,
  honestLoaded,
  honestTag,
  lastLine,
  line,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../fixtures/bad-peers/ollama-peer.ts';
import { exampleRepo, type ExampleRepo } from '../fixtures/example-repo.ts';
import { prepareContract, sessionAt, settled, turns, verified } from '../fixtures/journey.ts';
import { eventually, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

const reviewer = { name: 'test', channel: 'script' as const };
/** The second check is not run, so the first finish is asked back. */
const script = [turns.view, turns.test, turns.edit, turns.test, turns.finish, turns.finish].map(
  (turn) => turn.toolCalls[0],
);

let repo: ExampleRepo;
let kernel: TestKernel | undefined;
const peers: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  await ensureSandboxImage();
  repo = await exampleRepo();
});
afterAll(async () => repo.dispose());
afterEach(async () => {
  await kernel?.dispose();
  kernel = undefined;
  await Promise.all(peers.splice(0).map(async (peer) => peer.close()));
});

async function begin(
  settings: Readonly<Record<string, unknown>>,
  environment: Readonly<Record<string, string>> = {},
): Promise<{ kernel: TestKernel; digest: ContractDigest }> {
  const home = await mkdtemp(path.join(tmpdir(), 'escrow-inference-'));
  await writeFile(path.join(home, 'settings.json'), JSON.stringify(settings));
  kernel = await startTestKernel({ home, environment });
  return { kernel, digest: await prepareContract(kernel.kernel, repo.contract) };
}

/** llama.cpp's wire, answering with the script: which turn it is, the conversation says. */
async function scriptedCompletions(): Promise<CompletionsPeer> {
  const peer = await startCompletionsPeer({
    props: () => ({
      default_generation_settings: { n_ctx: 16_384 },
      model_path: servedModel,
      build_info: 'b11669-Debian',
      chat_template: 'x',
      chat_template_caps: { supports_tools: true },
    }),
    chat: (response, body) => {
      const { messages } = JSON.parse(body) as { messages: readonly { role: string }[] };
      const call = script[messages.filter((m) => m.role === 'assistant').length];
      if (call === undefined) throw new Error('the script is over');
      streamingEvents(response).end(
        event({ role: 'assistant', content: null }) +
          event({ reasoning_content: 'I go on.' }) +
          event({ content: 'Next step.' }) +
          callEvents(call.name, JSON.stringify(call.arguments)) +
          lastEvents.replace('"prompt_tokens":120', `"prompt_tokens":${400 + messages.length * 60}`),
      );
    },
  });
  peers.push(peer);
  return peer;
}

describe('a server for chat completions', () => {
  test('works only once it is approved; then as any engine, with what it cannot prove named', async () => {
    const peer = await scriptedCompletions();
    const { kernel: running, digest } = await begin({});
    const { kernel: client } = running;
    const start = { digest, engine: 'chat-completions' as const, model: servedModel };

    await expect(client.call('session/start', start)).rejects.toMatchObject({ code: 'EngineNotApproved' });
    await expect(client.call('engine/approve', { host: 'http://192.0.2.1:8080', reviewer })).rejects.toMatchObject({
      code: 'InferenceUnavailable',
    });
    expect(peer.chats).toHaveLength(0);

    await expect(client.call('engine/approve', { host: peer.host, reviewer })).resolves.toMatchObject({
      host: peer.host,
      version: 'b11669-Debian',
      revoked: false,
    });
    const { models } = await client.call('kernel/models', {});
    expect(models.find((m) => m.engine === 'chat-completions')).toMatchObject({
      tag: servedModel,
      refused: null,
      unproven: ['digest', 'thinking_switch'],
      fit: { needBytes: 2_497_280_000 },
    });

    const lives: (LiveInference | null)[] = [];
    client.on('session/live', ({ live }) => lives.push(live));
    const { session } = await client.call('session/start', { ...start, switches: { nearestMatch: false } });
    const view = await sessionAt(client, session.id, 'verified', verified);

    expect(view.binding).toMatchObject({
      engine: { kind: 'chat-completions', version: 'b11669-Debian', host: peer.host },
      model: { digest: null, witness: 'engine', unproven: ['digest', 'thinking_switch'] },
      switches: { nearestMatch: false, finishGate: true },
    });
    const attempt = view.attempts[0];
    expect(attempt?.outcome?.kind).toBe('candidate');
    expect(view.candidates[0]?.verdict).toBe('passed');
    expect(attempt?.metrics).toMatchObject({
      requests: 6,
      failed: 0,
      outputTokens: 42,
      cachedTokens: 600,
      loadMs: null,
    });
    expect(attempt?.metrics.providerMs).toBeCloseTo(6 * (55.382 + 47.75), 0);
    expect(attempt?.metrics.wallMs).toBeGreaterThan(0);
    expect(attempt?.engine).toMatchObject({ gpuShare: null, kvBytes: null, layersOffloaded: null, during: [] });
    expect(attempt?.engine?.memory?.hostTotal).toBeGreaterThan(0);

    // What is streamed is told while it runs, and its end.
    expect(lives.find((live) => live?.state === 'thinking')?.text).toBe('I go on.');
    expect(lives.at(-1)).toBeNull();
    expect(view.live).toBeNull();

    const { events } = await client.call('session/events', { session: session.id, limit: 1000 });
    const receipts = events.flatMap((e) =>
      e.type === 'attempt.turn' ? [(e.data as { receipt: object }).receipt] : [],
    );
    expect(receipts).toHaveLength(6);
    for (const receipt of receipts)
      expect(receipt).toMatchObject({ verified: true, notes: ['digest_unproven', 'thinking_switch_unproven'] });

    await client.call('engine/revoke', { host: peer.host, reviewer });
    const { approvals } = await client.call('engine/list', {});
    expect(approvals).toMatchObject([{ host: peer.host, reviewer: 'test', revoked: true }]);
    await expect(client.call('session/start', start)).rejects.toMatchObject({ code: 'EngineNotApproved' });
  });
});

describe('an attempt on Ollama', () => {
  /** An Ollama whose list of models and loaded runners a test can change. */
  const ollama = async (state: { models: string[] }): Promise<{ host: string; chats: string[] }> => {
    const peer = await startOllamaPeer({
      tags: () => state.models.map((name) => ({ ...honestTag, name, model: name })),
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: (response, body) => {
        const { messages } = JSON.parse(body) as { messages: readonly { role: string }[] };
        const call = script[messages.filter((m) => m.role === 'assistant').length];
        if (call === undefined) throw new Error('the script is over');
        // Something else on this machine pulls a model while the session runs.
        if (!state.models.includes('pulled:7b')) state.models.push('pulled:7b');
        streaming(response).end(
          line({ content: 'Next step.' }) +
            callLine(call.name, call.arguments) +
            lastLine.replace('"prompt_eval_count":120', `"prompt_eval_count":${400 + messages.length * 60}`),
        );
      },
    });
    peers.push(peer);
    return peer;
  };

  test('discloses what changed at the engine: since the last attempt, and during this one', async () => {
    const state = { models: [peerModel, 'other:1b'] };
    const { host } = await ollama(state);
    const { kernel: running, digest } = await begin({}, { ESCROW_INFERENCE_HOST: host });
    const { kernel: client } = running;
    const play = async () => {
      const { session } = await client.call('session/start', { digest, engine: 'ollama', model: peerModel });
      const view = await sessionAt(client, session.id, 'settled', settled);
      await sessionAt(client, session.id, 'verified', verified);
      return view.attempts[0]?.engine;
    };
    const first = await play();
    expect(first?.sinceLast).toBeNull();
    expect(first?.during).toEqual([
      { what: 'model_added', name: 'pulled:7b', before: null, after: honestTag.digest },
      { what: 'loaded', name: peerModel, before: null, after: `${honestTag.digest} context 16384` },
    ]);
    expect(first?.gpuShare).toBe(0.5);
    state.models.splice(state.models.indexOf('other:1b'), 1);
    const second = await play();
    expect(second?.sinceLast).toEqual([
      { what: 'model_removed', name: 'other:1b', before: honestTag.digest, after: null },
    ]);
    expect(second?.during).toEqual([]);
  });

  test('stops as a resource at the memory ceiling of this machine, before anything is sent', async () => {
    const { host, chats } = await ollama({ models: [peerModel] });
    // More than a hundredth of any machine is in use.
    const { kernel: running, digest } = await begin({ hostMemoryCeiling: 0.01 }, { ESCROW_INFERENCE_HOST: host });
    const { kernel: client } = running;
    const { session } = await client.call('session/start', { digest, engine: 'ollama', model: peerModel });
    const view = await sessionAt(client, session.id, 'settled', settled);
    expect(view.attempts[0]?.outcome).toMatchObject({ kind: 'resource', reason: 'host_memory_ceiling' });
    expect(view.attempts[0]?.outcome?.detail).toContain('stopped before loading');
    expect(chats).toHaveLength(0);
    expect(view.attempts[0]?.settlement?.confirmed).toBe(true);
  });

  test('a model that loads is told apart from a dead one, in the view and to whoever listens', async () => {
    const loading = Promise.withResolvers<void>();
    const peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: async (response) => {
        await loading.promise;
        streaming(response).end(callLine('finish', { message: 'x' }) + lastLine);
      },
    });
    peers.push(peer);
    const { kernel: running, digest } = await begin({}, { ESCROW_INFERENCE_HOST: peer.host });
    const { kernel: client } = running;
    const seen: number[] = [];
    client.on('session/live', ({ live }) => {
      if (live?.state === 'loading') seen.push(live.sinceMs);
    });
    const { session } = await client.call('session/start', { digest, engine: 'ollama', model: peerModel });
    // A probe every two seconds says that it is alive.
    await eventually('seen alive while it loads', () => seen.some((ms) => ms >= 1900));
    const view = await client.call('session/get', { session: session.id });
    expect(view.live).toMatchObject({ n: 1, state: 'loading' });
    loading.resolve();
    const over = await sessionAt(client, session.id, 'settled', settled);
    expect(over.attempts[0]?.outcome?.kind).toBe('no_change');
  });
});
