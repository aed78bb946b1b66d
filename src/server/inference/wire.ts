import * as z from 'zod';
import { unreachable } from '../../protocol/primitives.ts';
import type { ChatMessage, ChatRequest, ChatTool } from './port.ts';

/** Ollama's native API, as far as it is used (facts/ollama-wire). Members that are not listed are not read. */
const optionalText = z.string().nullish();
const details = z
  .looseObject({
    family: optionalText,
    parameter_size: optionalText,
    quantization_level: optionalText,
    context_length: z.number().nullish(),
  })
  .nullish();

export const VersionReply = z.looseObject({ version: z.string().max(200) });

const TagEntry = z.looseObject({
  name: z.string(),
  model: optionalText,
  digest: z.string(),
  size: z.number().nullish(),
  details,
  capabilities: z.array(z.string()).nullish(),
  context_length: z.number().nullish(),
  remote_host: optionalText,
  remote_model: optionalText,
});
export type TagEntry = z.infer<typeof TagEntry>;
export const TagsReply = z.looseObject({ models: z.array(TagEntry).nullable() });

const LoadedEntry = z.looseObject({
  name: z.string(),
  model: optionalText,
  digest: z.string().nullish(),
  size: z.number().nullish(),
  size_vram: z.number().nullish(),
  expires_at: optionalText,
  context_length: z.number().nullish(),
});
export type LoadedEntry = z.infer<typeof LoadedEntry>;
export const LoadedReply = z.looseObject({ models: z.array(LoadedEntry).nullable() });

export const ShowReply = z.looseObject({
  modelfile: optionalText,
  template: optionalText,
  capabilities: z.array(z.string()).nullish(),
  details,
  model_info: z.record(z.string(), z.unknown()).nullish(),
  remote_host: optionalText,
  remote_model: optionalText,
});
export type ShowReply = z.infer<typeof ShowReply>;

const WireToolCall = z.looseObject({
  id: z.string().nullish(),
  function: z.looseObject({ name: z.string(), arguments: z.unknown() }),
});

/** One line of the stream that carries a piece of the answer; the last has `done: true` and the counts. */
export const Chunk = z.looseObject({
  model: z.string(),
  done: z.boolean(),
  message: z.looseObject({
    role: z.string(),
    content: z.string().nullish(),
    thinking: optionalText,
    tool_calls: z.array(WireToolCall).nullish(),
  }),
  done_reason: optionalText,
  total_duration: z.number().nullish(),
  load_duration: z.number().nullish(),
  prompt_eval_count: z.number().int().nullish(),
  prompt_eval_duration: z.number().nullish(),
  eval_count: z.number().int().nullish(),
  eval_duration: z.number().nullish(),
  remote_host: optionalText,
  remote_model: optionalText,
});
export type Chunk = z.infer<typeof Chunk>;

function wireMessage(message: ChatMessage): Readonly<Record<string, unknown>> {
  switch (message.role) {
    case 'system':
    case 'user':
      return { role: message.role, content: message.content };
    case 'assistant':
      // Its thinking is left out: on ≥0.30 the server would drop it, and the admission bound relies on that.
      return {
        role: 'assistant',
        content: message.content,
        ...(message.toolCalls.length === 0
          ? {}
          : {
              tool_calls: message.toolCalls.map((call, index) => ({
                ...(call.id === null ? {} : { id: call.id }),
                function: { index, name: call.name, arguments: wireArguments(call.arguments) },
              })),
            }),
      };
    case 'tool':
      return {
        role: 'tool',
        content: message.content,
        tool_name: message.toolName,
        ...(message.toolCallId === null ? {} : { tool_call_id: message.toolCallId }),
      };
    default:
      return unreachable(message);
  }
}

/** The server takes objects only; whatever else a model sent goes back to it under a name that says so. */
function wireArguments(value: unknown): unknown {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : { malformed_arguments: value };
}

/**
 * The exact bytes of a chat request. Load-time options are the same on every request of a binding (another `num_ctx`
 * would reload the model), and nothing is left to a default that depends on the machine.
 */
export function encodeChat(request: ChatRequest): Uint8Array {
  const { options } = request;
  return Buffer.from(
    JSON.stringify({
      model: request.model,
      messages: request.messages.map(wireMessage),
      tools: request.tools.map((tool) => ({
        type: 'function',
        function: { name: tool.name, description: tool.description, parameters: tool.parameters },
      })),
      stream: true,
      think: options.think,
      keep_alive: options.keepAlive,
      truncate: false,
      shift: false,
      options: {
        num_ctx: options.numCtx,
        num_predict: options.numPredict,
        temperature: options.temperature,
        seed: options.seed,
        // Left out where it is off: older builds log an unknown option, and 0 is what none means.
        ...(options.draftNumPredict === 0 ? {} : { draft_num_predict: options.draftNumPredict }),
      },
    }),
  );
}

const schemaKeywords = new Set(['type', '$defs', 'items', 'required', 'properties']);
const propertyKeywords = new Set(['anyOf', 'type', 'items', 'description', 'enum', 'properties', 'required']);

/** Schema keywords that the server would drop without a word, as `tool.path.keyword`; empty when there are none. */
export function droppedKeywords(tools: readonly ChatTool[]): readonly string[] {
  const found: string[] = [];
  const walk = (schema: unknown, at: string, allowed: ReadonlySet<string>): void => {
    if (typeof schema !== 'object' || schema === null) return;
    if (Array.isArray(schema)) {
      for (const [i, member] of schema.entries()) walk(member, `${at}[${i}]`, propertyKeywords);
      return;
    }
    for (const [key, value] of Object.entries(schema)) {
      if (!allowed.has(key)) found.push(`${at}.${key}`);
      else if (key === 'properties' || key === '$defs') {
        for (const [name, member] of Object.entries(value as Record<string, unknown>))
          walk(member, `${at}.${name}`, propertyKeywords);
      } else if (key === 'items' || key === 'anyOf') walk(value, `${at}.${key}`, propertyKeywords);
    }
  };
  for (const tool of tools) walk(tool.parameters, tool.name, schemaKeywords);
  return found;
}

/** Levels of nesting of a JSON value, counted without recursion (hostile depth). Stops at `limit` + 1. */
export function jsonDepth(value: unknown, limit: number): number {
  let level: unknown[] = [value];
  let depth = 0;
  while (level.length > 0 && depth <= limit) {
    const next: unknown[] = [];
    for (const member of level)
      if (typeof member === 'object' && member !== null) for (const inner of Object.values(member)) next.push(inner);
    level = next;
    depth += 1;
  }
  return depth;
}

/** `major.minor.patch` of a version text, whatever follows; null where it does not begin so. */
export function parseVersion(text: string): readonly [number, number, number] | null {
  const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(text);
  return match === null ? null : [Number(match[1]), Number(match[2]), Number(match[3])];
}

/** ≥0.30 is required: only there do `truncate`, `shift`, cached counts and the loaded context mean what is relied on. */
export function isSupportedVersion(text: string): boolean {
  const version = parseVersion(text);
  return version !== null && (version[0] > 0 || version[1] >= 30);
}
