import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { defaultOptions, defaultSwitches } from '../../../src/server/agent/defaults.ts';
import { agentTools, promptDigest } from '../../../src/server/agent/prompt.ts';
import { makeBinding } from '../../../src/server/inference/binding.ts';
import { createChatCompletionsEngine } from '../../../src/server/inference/chat-completions.ts';
import type { ChatMessage, ChatTurn, InferenceEngine } from '../../../src/server/inference/port.ts';
import { WeightsReader } from '../../../src/server/inference/weights.ts';
import {
  callEvents,
  event,
  honestProps,
  honestServed,
  lastEvents,
  servedModel,
  startCompletionsPeer,
  streamingEvents,
  type CompletionsBehaviour,
  type CompletionsPeer,
} from '../../fixtures/bad-peers/completions-peer.ts';
import { completionsEngineOn } from '../../fixtures/engine-subjects.ts';
import { anySha256 } from '../../fixtures/frozen-contract.ts';
import { chatOptions, failureOf } from '../../fixtures/ollama-chat.ts';
import { tinyGguf } from '../../fixtures/tiny-gguf.ts';

let peer: CompletionsPeer | undefined;
afterEach(async () => peer?.close());

async function on(behaviour: CompletionsBehaviour = {}): Promise<InferenceEngine> {
  peer = await startCompletionsPeer(behaviour);
  return completionsEngineOn(peer.host);
}

async function ask(
  engine: InferenceEngine,
  parts: { messages?: readonly ChatMessage[]; think?: boolean | 'low' | 'high'; model?: string } = {},
): Promise<ChatTurn> {
  const identity = await engine.identity(parts.model ?? servedModel);
  return engine.chat(
    {
      model: identity.tag,
      messages: parts.messages ?? [{ role: 'user', content: 'hi' }],
      tools: [],
      options: { ...chatOptions, think: parts.think ?? false },
      engineVersion: null,
    },
    identity,
    () => undefined,
    new AbortController().signal,
  );
}
const sent = (): Record<string, unknown> => JSON.parse(peer?.chats[0] ?? '{}') as Record<string, unknown>;

describe('a server for chat completions', () => {
  test('one that tells nothing of itself leaves everything unproven, and works', async () => {
    const engine = await on({ props: () => null, models: () => [{ id: servedModel }] });
    expect(await engine.identity(servedModel)).toMatchObject({
      digest: null,
      contextAdvertised: null,
      weights: null,
      templateDigest: null,
      family: null,
      unproven: ['digest', 'context', 'template', 'version', 'truncation', 'thinking_switch'],
      witness: 'engine',
    });
    const { receipt } = await ask(engine);
    expect(receipt).toMatchObject({ verified: true, contextLoaded: null, modelDigestAfter: null, witness: 'engine' });
    expect(receipt.notes).toContain('digest_unproven');
    expect((await engine.health()).version).toBe('not told');
  });

  test('a file that this host reads is hashed: digest, family and witness come from it, and its change is found', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'completions-'));
    try {
      const model = join(folder, 'm.gguf');
      await writeFile(model, tinyGguf());
      const engine = await on({
        props: () => ({ ...honestProps, model_path: model }),
        chat: async (response) => {
          await writeFile(model, tinyGguf(2));
          streamingEvents(response).end(event({ content: 'x' }) + lastEvents);
        },
      });
      const identity = await engine.identity(servedModel);
      expect(identity).toMatchObject({ family: 'llama', witness: 'both', unproven: ['thinking_switch'] });
      expect(identity.digest).toMatch(/^[0-9a-f]{64}$/);
      const failure = await failureOf(ask(engine));
      expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'identity', code: 'weights_changed' });
      expect(failure.receipt?.modelDigestAfter).toBeNull();
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('calls without an id pair with their answers by place; what was no object goes back under its name', async () => {
    const engine = await on();
    await ask(engine, {
      messages: [
        { role: 'user', content: 'go' },
        {
          role: 'assistant',
          content: '',
          thinking: 'not sent',
          toolCalls: [
            { id: null, name: 'a', arguments: { x: 1 } },
            { id: 'given', name: 'b', arguments: 'text' },
            { id: null, name: 'c', arguments: null },
          ],
        },
        { role: 'tool', toolName: 'a', toolCallId: null, content: 'one' },
        { role: 'tool', toolName: 'b', toolCallId: 'given', content: 'two' },
        { role: 'tool', toolName: 'c', toolCallId: null, content: 'three' },
      ],
    });
    expect(sent()['messages']).toEqual([
      { role: 'user', content: 'go' },
      {
        role: 'assistant',
        content: '',
        tool_calls: [
          { id: 'call_1_0', type: 'function', function: { name: 'a', arguments: '{"x":1}' } },
          { id: 'given', type: 'function', function: { name: 'b', arguments: '{"malformed_arguments":"text"}' } },
          { id: 'call_1_2', type: 'function', function: { name: 'c', arguments: '{"malformed_arguments":null}' } },
        ],
      },
      { role: 'tool', content: 'one', tool_call_id: 'call_1_0' },
      { role: 'tool', content: 'two', tool_call_id: 'given' },
      { role: 'tool', content: 'three', tool_call_id: 'call_1_2' },
    ]);
    expect(sent()).toMatchObject({
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 256,
      chat_template_kwargs: { enable_thinking: false },
    });
  });

  test('a call comes in pieces, thinking apart; text that is no JSON reaches the reader as it is', async () => {
    const engine = await on({
      chat: (response) =>
        void streamingEvents(response).end(
          event({ reasoning_content: 'so ' }) +
            event({ content: 'stray</think>said' }) +
            callEvents('terminal', '{"command":"a","__proto__":{"x":1}}', 0) +
            callEvents('terminal', '{command: a', 1, '') +
            ': a comment\r\nevent: x\n\n' +
            lastEvents,
        ),
    });
    const turn = await ask(engine);
    expect(turn.content).toBe('said');
    expect(turn.thinking).toBe('so \nstray');
    expect(turn.toolCalls[0]).toMatchObject({ id: 'call_0', name: 'terminal' });
    expect(JSON.stringify(turn.toolCalls[0]?.arguments)).toBe('{"command":"a","__proto__":{"x":1}}');
    expect(turn.toolCalls[1]).toEqual({ id: null, name: 'terminal', arguments: '{command: a' });
    expect(turn.receipt).toMatchObject({ promptTokens: 120, cachedTokens: 100, totalMs: 103.13, loadMs: null });
  });

  test.each([
    ['a second choice', event({}, { choices: [{ index: 1, delta: { content: 'x' } }] }), 'unknown_shape'],
    ['a call that was left out', callEvents('a', '{}', 1), 'unknown_shape'],
    ['no reason for the end', `${event({ content: 'x' })}data: [DONE]\n\n`, 'no_done'],
    ['a line that is no field', 'hello\n', 'malformed_line'],
    ['an error field', 'error: {"message":"out of memory"}\n\n', 'out_of_memory'],
  ])('%s is a failure', async (_name, body, code) => {
    const engine = await on({ chat: (response) => void streamingEvents(response).end(body) });
    expect((await failureOf(ask(engine))).code).toBe(code);
  });

  test('a server with its proxy for outside tools is refused, also when it is turned on later', async () => {
    const engine = await on({ props: () => ({ ...honestProps, cors_proxy_enabled: true }) });
    await expect(engine.identity(servedModel)).rejects.toMatchObject({ code: 'InferenceUnavailable' });
    expect(await engine.health()).toMatchObject({ state: 'unavailable', code: 'engine_has_proxy' });
    await peer?.close();
    let on2 = false;
    const later = await on({ props: () => ({ ...honestProps, cors_proxy_enabled: on2 }) });
    const identity = await later.identity(servedModel);
    on2 = true;
    const failure = await failureOf(
      later.chat(
        { model: servedModel, messages: [], tools: [], options: chatOptions, engineVersion: null },
        identity,
        () => undefined,
        new AbortController().signal,
      ),
    );
    expect(failure.code).toBe('engine_has_proxy');
    expect(peer?.chats).toHaveLength(0);
  });

  test.each(['http://192.0.2.1:8080', 'https://example.invalid', 'http://user:pw@127.0.0.1', 'file:///x'])(
    '%s is no server on this machine',
    (host) => {
      expect(() =>
        createChatCompletionsEngine({
          host,
          now: () => 0,
          monotonic: () => 0,
          log: () => undefined,
          weights: new WeightsReader(),
        }),
      ).toThrow(expect.objectContaining({ code: 'InferenceUnavailable' }));
    },
  );

  test('says of its slots whether it works', async () => {
    let busy = true;
    const engine = await on({ busy: () => busy });
    expect(await engine.idle(servedModel)).toBe('busy');
    busy = false;
    expect(await engine.idle(servedModel)).toBe('idle');
  });

  test('a binding refuses what such a server cannot do: a larger context, drafts, a model without tools', async () => {
    const bind = async (asked: Parameters<typeof makeBinding>[0]['asked']) =>
      makeBinding({
        engine: completionsEngineOn(peer?.host ?? ''),
        model: servedModel,
        defaults: defaultOptions,
        asked,
        switches: defaultSwitches,
        promptDigest: promptDigest(agentTools),
        image: { reference: 'x', digest: 'x', executorDigest: anySha256 },
        profile: { name: 'bounded', digest: anySha256 },
      });
    await on();
    expect((await bind({})).options.numCtx).toBe(8192);
    await expect(bind({ numCtx: 16_384 })).rejects.toMatchObject({ code: 'InvalidParams' });
    await expect(bind({ draftNumPredict: 4 })).rejects.toMatchObject({ code: 'InvalidParams' });
    await peer?.close();
    await on({ props: () => ({ ...honestProps, chat_template_caps: { supports_tools: false } }) });
    await expect(bind({})).rejects.toMatchObject({ code: 'InvalidParams' });
    expect((await completionsEngineOn(peer?.host ?? '').inventory())[0]?.refused).toBe('no_tools');
  });

  test('a model is asked for by an alias, and is the one that is served', async () => {
    const engine = await on({ models: () => [{ ...honestServed, aliases: ['qwen'] }] });
    expect((await engine.identity('qwen')).tag).toBe(servedModel);
    await expect(engine.identity('another')).rejects.toMatchObject({ code: 'ModelNotFound' });
  });
});
