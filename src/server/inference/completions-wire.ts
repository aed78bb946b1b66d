import * as z from 'zod';
import { unreachable } from '../../protocol/primitives.ts';
import { argumentDepth, callsPerTurn, refuseEndless } from './chat-stream.ts';
import type { Answer, AnswerReader } from './exchange.ts';
import { Fault } from './fault.ts';
import type { ChatEvent, ChatMessage, ChatRequest, ToolCall } from './port.ts';
import { RepetitionWatch } from './repetition.ts';
import { doneMarker } from './stream-reader.ts';
import { classifyEngineError, errorText } from './symptoms.ts';
import { splitThinking } from './think-split.ts';
import { jsonDepth } from './wire.ts';

/** `/v1/models`, with what llama.cpp adds in `meta`. Members that are not listed are not read. */
export const ModelsReply = z.looseObject({
  data: z.array(
    z.looseObject({
      id: z.string().max(4096),
      aliases: z.array(z.string()).nullish(),
      owned_by: z.string().nullish(),
      meta: z
        .looseObject({
          n_ctx: z.number().nullish(),
          n_ctx_train: z.number().nullish(),
          n_params: z.number().nullish(),
          size: z.number().nullish(),
          ftype: z.string().nullish(),
        })
        .nullish(),
    }),
  ),
});
export type ServedModel = z.infer<typeof ModelsReply>['data'][number];

/** llama.cpp's `/props`; other servers have none. */
export const PropsReply = z.looseObject({
  default_generation_settings: z.looseObject({ n_ctx: z.number().int().nullish() }).nullish(),
  total_slots: z.number().int().nullish(),
  model_path: z.string().max(4096).nullish(),
  model_ftype: z.string().nullish(),
  build_info: z.string().max(200).nullish(),
  chat_template: z.string().nullish(),
  chat_template_caps: z.looseObject({ supports_tools: z.boolean().nullish() }).nullish(),
  cors_proxy_enabled: z.boolean().nullish(),
});
export type Props = z.infer<typeof PropsReply>;

export const SlotsReply = z.array(z.looseObject({ is_processing: z.boolean() }));

function wireMessage(message: ChatMessage, index: number): Readonly<Record<string, unknown>> {
  switch (message.role) {
    case 'system':
    case 'user':
      return { role: message.role, content: message.content };
    case 'assistant':
      return {
        role: 'assistant',
        content: message.content,
        ...(message.toolCalls.length === 0
          ? {}
          : {
              tool_calls: message.toolCalls.map((call, n) => ({
                id: call.id ?? madeId(index, n),
                type: 'function',
                function: { name: call.name, arguments: argumentText(call.arguments) },
              })),
            }),
      };
    case 'tool':
      return { role: 'tool', content: message.content, tool_call_id: message.toolCallId ?? '' };
    default:
      return unreachable(message);
  }
}

/** The id of a call that came without one, by its place: the same on every request of the conversation. */
const madeId = (message: number, call: number): string => `call_${message}_${call}`;

/** Arguments go as text. What was no JSON goes back as the model wrote it, under a name that says so. */
function argumentText(value: unknown): string {
  return JSON.stringify(
    typeof value === 'object' && value !== null && !Array.isArray(value) ? value : { malformed_arguments: value },
  );
}

/** Answers pair with calls by id: where the engine gave none, by their order after the calls. */
function paired(messages: readonly ChatMessage[]): readonly Readonly<Record<string, unknown>>[] {
  const open: string[] = [];
  return messages.map((message, index) => {
    if (message.role === 'assistant') {
      open.length = 0;
      for (const [n, call] of message.toolCalls.entries()) open.push(call.id ?? madeId(index, n));
    }
    const wire = wireMessage(message, index);
    if (message.role !== 'tool') return wire;
    const next = open.shift();
    return message.toolCallId === null && next !== undefined ? { ...wire, tool_call_id: next } : wire;
  });
}

/** The exact bytes of a request to `/v1/chat/completions`. The context is the server's own and is not sent. */
export function encodeCompletion(request: ChatRequest): Uint8Array {
  const { options } = request;
  return Buffer.from(
    JSON.stringify({
      model: request.model,
      messages: paired(request.messages),
      ...(request.tools.length === 0
        ? {}
        : {
            tools: request.tools.map((tool) => ({
              type: 'function',
              function: { name: tool.name, description: tool.description, parameters: tool.parameters },
            })),
          }),
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: options.numPredict,
      temperature: options.temperature,
      seed: options.seed,
      chat_template_kwargs: { enable_thinking: options.think !== false },
      ...(typeof options.think === 'string' ? { reasoning_effort: options.think } : {}),
    }),
  );
}

const DeltaCall = z.looseObject({
  index: z.number().int().min(0),
  id: z.string().nullish(),
  function: z.looseObject({ name: z.string().nullish(), arguments: z.string().nullish() }).nullish(),
});

/** One event of the stream. The last one with `usage` may have no choice. */
const CompletionChunk = z.looseObject({
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.number().int(),
      delta: z
        .looseObject({
          content: z.string().nullish(),
          reasoning_content: z.string().nullish(),
          reasoning: z.string().nullish(),
          tool_calls: z.array(DeltaCall).nullish(),
        })
        .nullish(),
      finish_reason: z.string().nullish(),
    }),
  ),
  usage: z
    .looseObject({
      prompt_tokens: z.number().int(),
      completion_tokens: z.number().int(),
      prompt_tokens_details: z.looseObject({ cached_tokens: z.number().int().nullish() }).nullish(),
    })
    .nullish(),
  timings: z.looseObject({ prompt_ms: z.number().nullish(), predicted_ms: z.number().nullish() }).nullish(),
});

/** What the server said at the end of an answer; null where it said nothing of it. */
export interface CompletionEnd {
  readonly doneReason: string | null;
  readonly promptTokens: number | null;
  readonly outputTokens: number | null;
  readonly cachedTokens: number | null;
  readonly promptMs: number | null;
  readonly outputMs: number | null;
}

/** Reads the events of an answer. `model` is the id that was asked. */
export function completionReader(model: string, onEvent: (event: ChatEvent) => void): AnswerReader<CompletionEnd> {
  let content = '';
  let thinking = '';
  const calls: { id: string | null; name: string; text: string }[] = [];
  const repetition = new RepetitionWatch();
  let end: CompletionEnd | null = null;
  let over = false;
  const noEnd: CompletionEnd = {
    doneReason: null,
    promptTokens: null,
    outputTokens: null,
    cachedTokens: null,
    promptMs: null,
    outputMs: null,
  };

  const takeCall = (delta: z.infer<typeof DeltaCall>): void => {
    if (delta.index >= callsPerTurn) throw new Fault('model', 'too_many_calls', `more than ${callsPerTurn} calls`);
    // Pieces of a call come in order; a new index begins the next one.
    if (delta.index > calls.length) throw new Fault('transport', 'unknown_shape', 'a call was left out');
    if (delta.index === calls.length) calls.push({ id: null, name: '', text: '' });
    const call = calls[delta.index];
    if (call === undefined) return;
    call.id ??= delta.id === '' ? null : (delta.id ?? null);
    call.name += delta.function?.name ?? '';
    const piece = delta.function?.arguments ?? '';
    call.text += piece;
    refuseEndless(repetition, piece);
  };

  return {
    get last() {
      return end;
    },
    take(value) {
      if (over) throw new Fault('transport', 'data_after_done', 'the engine went on after its last event');
      if (value === doneMarker) {
        over = true;
        return;
      }
      if (typeof value === 'object' && value !== null && 'error' in value && value.error !== undefined) {
        const message = errorText(value.error);
        const symptom = classifyEngineError(200, message);
        throw new Fault(symptom.kind, symptom.code, `error inside the answer: ${message.slice(0, 400)}`);
      }
      const parsed = CompletionChunk.safeParse(value);
      if (!parsed.success) throw new Fault('transport', 'unknown_shape', 'an event of the answer has an unknown shape');
      const chunk = parsed.data;
      if (chunk.model !== model)
        throw new Fault('identity', 'model_substituted', 'the answer names another model than the one asked');
      if (chunk.choices.some((choice) => choice.index !== 0) || chunk.choices.length > 1)
        throw new Fault('transport', 'unknown_shape', 'the answer has more than one choice');
      for (const { delta, finish_reason: reason } of chunk.choices) {
        const thought = delta?.reasoning_content ?? delta?.reasoning ?? '';
        if (thought !== '') {
          thinking += thought;
          refuseEndless(repetition, thought);
          onEvent({ kind: 'thinking', text: thought });
        }
        const text = delta?.content ?? '';
        if (text !== '') {
          content += text;
          refuseEndless(repetition, text);
          onEvent({ kind: 'content', text });
        }
        for (const call of delta?.tool_calls ?? []) takeCall(call);
        if (reason !== null && reason !== undefined) end = { ...(end ?? noEnd), doneReason: reason };
      }
      if (chunk.usage !== null && chunk.usage !== undefined)
        end = {
          ...(end ?? noEnd),
          promptTokens: chunk.usage.prompt_tokens,
          outputTokens: chunk.usage.completion_tokens,
          cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? null,
        };
      if (chunk.timings !== null && chunk.timings !== undefined)
        end = {
          ...(end ?? noEnd),
          promptMs: chunk.timings.prompt_ms ?? null,
          outputMs: chunk.timings.predicted_ms ?? null,
        };
    },
    end(): Answer<CompletionEnd> {
      if (!over || end === null || end.doneReason === null)
        throw new Fault('transport', 'no_done', 'the stream ended with status 200 and without its end');
      return {
        ...splitThinking(content, thinking),
        toolCalls: calls.map(whole),
        doneReason: end.doneReason,
        last: end,
      };
    },
  };
}

function whole(call: { readonly id: string | null; readonly name: string; readonly text: string }): ToolCall {
  let value: unknown = call.text === '' ? null : call.text;
  try {
    if (call.text !== '') value = JSON.parse(call.text) as unknown;
  } catch {
    // Not JSON: the agent reads it tolerantly or answers with a hint.
  }
  if (jsonDepth(value, argumentDepth) > argumentDepth)
    throw new Fault('model', 'arguments_too_deep', `arguments nested deeper than ${argumentDepth}`);
  return { id: call.id, name: call.name, arguments: value };
}
