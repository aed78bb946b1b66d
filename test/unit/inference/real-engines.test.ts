import { afterEach, describe, expect, test, vi } from 'vitest';
import { admit, measure, startAdmission } from '../../../src/server/inference/admission.ts';
import { agentTools, systemPrompt } from '../../../src/server/agent/prompt.ts';
import type { InferenceOptions, ModelIdentity } from '../../../src/protocol/binding.ts';
import type { ChatMessage, ChatTurn, InferenceEngine } from '../../../src/server/inference/port.ts';
import { WeightsReader } from '../../../src/server/inference/weights.ts';
import { completionsEngineOn } from '../../fixtures/engine-subjects.ts';
import { findLlamaServer, startLlamaServer } from '../../fixtures/llama-server.ts';
import { chatOptions, engineOn, failureOf } from '../../fixtures/ollama-chat.ts';
import { findOllama, startRealOllama } from '../../fixtures/real-ollama.ts';
import type { RealOllama } from '../../fixtures/real-ollama.ts';
import { unless } from '../../fixtures/left-out.ts';

const ollamaProgram = await findOllama();
const llamaProgram = await findLlamaServer();

// Real programs load a model and compute on whatever this machine has to spare.
vi.setConfig({ testTimeout: 300_000 });

const closing: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(closing.splice(0).map(async (each) => each.close()));
});
const use = async <T extends { close(): Promise<void> }>(started: Promise<T>): Promise<T> => {
  const each = await started;
  closing.push(each);
  return each;
};

const options: InferenceOptions = { ...chatOptions, numCtx: 4096, numPredict: 24 };

/** A conversation as the agent has it: calls, answers, and the answer's text from the engine that is asked. */
async function talk(
  engine: InferenceEngine,
  model: ModelIdentity,
  turns: number,
  each: (turn: ChatTurn, messages: readonly ChatMessage[]) => void,
): Promise<void> {
  const { version } = await engine.health();
  const messages: ChatMessage[] = [
    { role: 'system', content: systemPrompt },
    { role: 'user', content: 'Fix src/usage.py.' },
  ];
  for (let n = 0; n < turns; n += 1) {
    const asked = messages.slice();
    const turn = await engine.chat(
      { model: model.tag, messages: asked, tools: agentTools, options, engineVersion: version },
      model,
      () => undefined,
      new AbortController().signal,
    );
    each(turn, asked);
    messages.push(
      {
        role: 'assistant',
        content: 'I look.',
        thinking: '',
        toolCalls: [{ id: null, name: 'file_editor', arguments: { command: 'view', path: '/workspace/src/usage.py' } }],
      },
      { role: 'tool', toolName: 'file_editor', toolCallId: null, content: `     ${n}\tx = ${n}\n` },
    );
  }
}

/** The bound of each request, kept as the loop keeps it, is never below what the engine counted. */
function boundKeeper(family: string | null): (turn: ChatTurn, messages: readonly ChatMessage[]) => void {
  let state = startAdmission(options.numCtx, options.numPredict, family);
  return (turn, messages) => {
    const { boundTokens } = admit(state, messages, agentTools);
    expect(boundTokens).toBeGreaterThanOrEqual(turn.receipt.promptTokens ?? Number.MAX_SAFE_INTEGER);
    const next = measure(state, messages, turn.receipt.promptTokens);
    expect(next.kind).toBe('ok');
    state = next.state;
  };
}

describe.skipIf(ollamaProgram === undefined)(
  `Ollama itself${unless(ollamaProgram !== undefined, 'ESCROW_OLLAMA names none')}`,
  () => {
    const begin = async (): Promise<{ ollama: RealOllama; engine: InferenceEngine }> => {
      const ollama = await use(startRealOllama(ollamaProgram ?? ''));
      return { ollama, engine: engineOn(ollama.host, { weights: new WeightsReader() }) };
    };
    const ask = async (
      engine: InferenceEngine,
      model: ModelIdentity,
      content: string,
      more: { options?: Partial<InferenceOptions>; signal?: AbortSignal; onEvent?: () => void } = {},
    ): Promise<ChatTurn> =>
      engine.chat(
        {
          model: model.tag,
          messages: [{ role: 'user', content }],
          tools: [],
          options: { ...options, ...more.options },
          engineVersion: null,
        },
        model,
        more.onEvent ?? (() => undefined),
        more.signal ?? new AbortController().signal,
      );

    test('host and engine agree on manifest and weights; a conversation loads the model once and keeps the bound', async () => {
      const { ollama, engine } = await begin();
      const model = await engine.identity(ollama.model);
      expect(model).toMatchObject({ witness: 'both', unproven: [], family: 'llama' });
      const before = await engine.survey(model);
      expect(before.store?.files?.length).toBeGreaterThan(0);
      const keep = boundKeeper(model.family);
      await talk(engine, model, 5, (turn, messages) => {
        expect(turn.receipt).toMatchObject({ verified: true, contextLoaded: 4096, witness: 'both' });
        keep(turn, messages);
      });
      expect(ollama.loads()).toBe(1);
    });

    test('another load-time option is another load: it belongs to the binding', async () => {
      const { ollama, engine } = await begin();
      const model = await engine.identity(ollama.model);
      await ask(engine, model, 'hi');
      await ask(engine, model, 'hi', { options: { draftNumPredict: 4 } });
      expect(ollama.loads()).toBe(2);
    });

    test('a prompt beyond the context is refused by the engine, not cut', async () => {
      const { ollama, engine } = await begin();
      const model = await engine.identity(ollama.model);
      const failure = await failureOf(ask(engine, model, 'hello '.repeat(3000)));
      expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'context', code: 'context_exceeded' });
    });

    test('a tag that is made anew with another template is noticed before anything is sent', async () => {
      const { ollama, engine } = await begin();
      const model = await engine.identity(ollama.model);
      await ask(engine, model, 'hi');
      await ollama.create('tiny', 'another template {{ .Prompt }}');
      const failure = await failureOf(ask(engine, model, 'hi'));
      expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'identity', code: 'digest_changed' });
    });

    test('another tag with the same weights that was loaded first is no proof of the bound one', async () => {
      const { ollama, engine } = await begin();
      await ollama.create('other', 'other template {{ .Prompt }}');
      const other = await engine.identity('other');
      const model = await engine.identity(ollama.model);
      await ask(engine, other, 'hi');
      const failure = await failureOf(ask(engine, model, 'hi'));
      expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'identity', code: 'alias_loaded' });
    });

    test('after a cancel it is seen to let go of the request, and only then the next one is sent', async () => {
      const { ollama, engine } = await begin();
      const model = await engine.identity(ollama.model);
      const leave = async (): Promise<void> => {
        const abort = new AbortController();
        const failure = await failureOf(
          ask(engine, model, 'hi', {
            options: { numPredict: 2000 },
            signal: abort.signal,
            onEvent: () => {
              abort.abort(new Error('enough'));
            },
          }),
        );
        expect(failure.kind).toBe('cancelled');
      };
      // Once for a runner that the request loaded, once for one that was there.
      for (let n = 0; n < 2; n += 1) {
        await leave();
        const next = await ask(engine, model, 'hi');
        expect(next.receipt.notes).not.toContain('idle_unknown');
      }
      expect(await engine.idle(model.tag)).toBe('idle');
      expect(ollama.loads()).toBe(1);
    });
  },
);

describe.skipIf(llamaProgram === undefined)(
  `llama.cpp's server itself${unless(llamaProgram !== undefined, 'ESCROW_LLAMA_SERVER names none')}`,
  () => {
    test('file, template and context are bound; what it cannot prove is named; a conversation keeps the bound', async () => {
      const server = await use(startLlamaServer(llamaProgram ?? '', { context: 4096 }));
      const engine = completionsEngineOn(server.host);
      const model = await engine.identity(server.model);
      expect(model).toMatchObject({
        witness: 'both',
        family: 'llama',
        contextAdvertised: 4096,
        capabilities: ['completion', 'tools'],
        unproven: ['thinking_switch'],
      });
      expect(model.digest).toMatch(/^[0-9a-f]{64}$/);
      const keep = boundKeeper(model.family);
      const cached: (number | null)[] = [];
      await talk(engine, model, 4, (turn, messages) => {
        expect(turn.receipt).toMatchObject({
          verified: true,
          contextLoaded: 4096,
          notes: ['thinking_switch_unproven'],
        });
        cached.push(turn.receipt.cachedTokens);
        keep(turn, messages);
      });
      // The prefix is the same bytes on each request, so from the second on most of it comes from the cache.
      expect(cached[0]).toBe(0);
      expect(cached.at(-1)).toBeGreaterThan(300);
    });

    test('a prompt beyond the context is refused by the engine, not cut; after a cancel its slots say that it is idle', async () => {
      const server = await use(startLlamaServer(llamaProgram ?? '', { context: 4096 }));
      const engine = completionsEngineOn(server.host);
      const model = await engine.identity(server.model);
      const ask = (content: string, signal: AbortSignal, onEvent: () => void, numPredict = 64): Promise<ChatTurn> =>
        engine.chat(
          {
            model: model.tag,
            messages: [{ role: 'user', content }],
            tools: [],
            options: { ...options, numPredict },
            engineVersion: null,
          },
          model,
          onEvent,
          signal,
        );
      const failure = await failureOf(ask('hello '.repeat(3000), new AbortController().signal, () => undefined));
      expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'context', code: 'context_exceeded' });
      const abort = new AbortController();
      const cancelled = await failureOf(
        ask(
          'hi',
          abort.signal,
          () => {
            abort.abort(new Error('enough'));
          },
          3000,
        ),
      );
      expect(cancelled.kind).toBe('cancelled');
      const next = await ask('hi', new AbortController().signal, () => undefined);
      expect(next.receipt.notes).not.toContain('idle_unknown');
      expect(await engine.idle(model.tag)).toBe('idle');
    });
  },
);
