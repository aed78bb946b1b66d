import { once } from 'node:events';
import type { ChatMessage, ChatTool } from '../../../src/server/inference/port.ts';
import { callLine, honestLoaded, line, startOllamaPeer, streaming } from '../../fixtures/bad-peers/ollama-peer.ts';
import { qwenPrompt, qwenTokens } from '../../fixtures/qwen.ts';

/** One request as it reached the engine, with the moments (ms, this process) between which the client worked. */
export interface SeenRequest {
  readonly arrivedAt: number;
  /** The last byte of the answer was handed to the system. */
  answeredAt: number;
  readonly body: string;
  /** Prompt tokens by Qwen's tokenizer over Qwen's own template: what a provider would count. */
  readonly promptTokens: number;
}

export interface ScriptedCall {
  readonly name: string;
  readonly arguments: unknown;
}

export interface ScriptedEngine {
  readonly host: string;
  /**
   * Begins a conversation: answers come from `calls` in order, one call each, after `beforeAnswer`; returns what is seen
   * of it.
   */
  play(calls: readonly ScriptedCall[], beforeAnswer: () => Promise<void>): readonly SeenRequest[];
  close(): Promise<void>;
}

interface WireBody {
  readonly messages: readonly {
    readonly role: 'system' | 'user' | 'assistant' | 'tool';
    readonly content: string;
    readonly tool_name?: string;
    readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: unknown } }[];
  }[];
  readonly tools: readonly { readonly function: ChatTool }[];
}

/** The messages and tools of a request as the loop had them. */
export function readBody(body: string): { messages: ChatMessage[]; tools: ChatTool[] } {
  const wire = JSON.parse(body) as WireBody;
  return {
    messages: wire.messages.map((m): ChatMessage => {
      switch (m.role) {
        case 'assistant':
          return {
            role: 'assistant',
            content: m.content,
            thinking: '',
            toolCalls: (m.tool_calls ?? []).map((c) => ({ id: null, ...c.function })),
          };
        case 'tool':
          return { role: 'tool', content: m.content, toolName: m.tool_name ?? '', toolCallId: null };
        case 'system':
        case 'user':
          return { role: m.role, content: m.content };
        default:
          throw new Error('unreachable role');
      }
    }),
    tools: wire.tools.map((t) => t.function),
  };
}

/** An honest Ollama in this process that answers at once with scripted calls and counts as Qwen does. */
export async function startScriptedEngine(): Promise<ScriptedEngine> {
  let script: readonly ScriptedCall[] = [];
  let seen: SeenRequest[] = [];
  let wait: () => Promise<void> = async () => {};
  const peer = await startOllamaPeer({
    ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
    chat: async (response, body) => {
      const arrivedAt = performance.now();
      const { messages, tools } = readBody(body);
      const promptTokens = qwenTokens(qwenPrompt(messages, tools));
      const request: SeenRequest = { arrivedAt, answeredAt: Number.NaN, body, promptTokens };
      const call = script[seen.length];
      seen.push(request);
      if (call === undefined) throw new Error('the script is over');
      await wait();
      const finished = once(response, 'finish');
      streaming(response).end(
        callLine(call.name, call.arguments) +
          line(
            {},
            { done: true, done_reason: 'stop', prompt_eval_count: promptTokens, eval_count: 40, total_duration: 1e6 },
          ),
      );
      await finished;
      request.answeredAt = performance.now();
    },
  });
  return {
    host: peer.host,
    play(calls, beforeAnswer) {
      script = calls;
      wait = beforeAnswer;
      seen = [];
      return seen;
    },
    close: () => peer.close(),
  };
}

/** A call of the editor or the terminal, as a script has it. */
export const calls = {
  view: (file: string, range?: readonly [number, number]): ScriptedCall => ({
    name: 'file_editor',
    arguments: { command: 'view', path: `/workspace/${file}`, ...(range === undefined ? {} : { view_range: range }) },
  }),
  replace: (file: string, from: string, to: string): ScriptedCall => ({
    name: 'file_editor',
    arguments: { command: 'str_replace', path: `/workspace/${file}`, old_str: from, new_str: to },
  }),
  run: (command: string): ScriptedCall => ({ name: 'terminal', arguments: { command } }),
  finish: { name: 'finish', arguments: { message: 'Timezone-free texts are UTC now.' } },
} as const;
