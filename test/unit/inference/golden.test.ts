import { readdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { InferenceFailure } from '../../../src/server/inference/port.ts';
import type { InferenceEngine } from '../../../src/server/inference/port.ts';
import { honestProps, honestServed, startCompletionsPeer } from '../../fixtures/bad-peers/completions-peer.ts';
import { honestLoaded, honestTag, startOllamaPeer } from '../../fixtures/bad-peers/ollama-peer.ts';
import { completionsEngineOn } from '../../fixtures/engine-subjects.ts';
import { conversation, recordedTools } from '../../fixtures/golden/exchanges/conversation.ts';
import { chatOptions, engineOn } from '../../fixtures/ollama-chat.ts';

const folder = resolve(import.meta.dirname, '../../fixtures/golden/exchanges');
const recorded = (await readdir(folder))
  .filter((name) => name.endsWith('.outcome.json'))
  .map((name) => name.replace('.outcome.json', ''));

let peer: { readonly host: string; readonly chats: string[]; close(): Promise<void> } | undefined;
afterEach(async () => peer?.close());

/** The adapter on a peer that answers the next chat with recorded bytes. */
async function replay(name: string, status: number, response: Buffer): Promise<InferenceEngine> {
  if (name.startsWith('ollama')) {
    const tag = { ...honestTag, name: 'tiny:latest', model: 'tiny:latest' };
    peer = await startOllamaPeer({
      tags: () => [tag],
      ps: (chats) =>
        chats === 0 ? [] : [{ ...honestLoaded, name: 'tiny:latest', model: 'tiny:latest', context_length: 4096 }],
      chat: (answer) => void answer.writeHead(status, { 'content-type': 'application/x-ndjson' }).end(response),
    });
    return engineOn(peer.host);
  }
  peer = await startCompletionsPeer({
    models: () => [{ ...honestServed, id: 'tiny.gguf', aliases: [] }],
    props: () => ({ ...honestProps, model_path: 'tiny.gguf', default_generation_settings: { n_ctx: 4096 } }),
    chat: (answer) => void answer.writeHead(status, { 'content-type': 'text/event-stream' }).end(response),
  });
  return completionsEngineOn(peer.host);
}

describe('recorded exchanges with real engines', () => {
  test('there are some of each engine', () => {
    for (const engine of ['ollama', 'llama-server'])
      for (const what of Object.keys(conversation)) expect(recorded).toContain(`${engine}-${what}`);
  });

  test.each(recorded)('%s: the same bytes are sent, and the same is made of the answer', async (name) => {
    const read = async (end: string): Promise<Buffer> => readFile(join(folder, `${name}.${end}`));
    const { status, outcome } = JSON.parse((await read('outcome.json')).toString()) as {
      status: number;
      outcome: unknown;
    };
    const engine = await replay(name, status, await read('response.txt'));
    const model = await engine.identity(name.startsWith('ollama') ? 'tiny' : 'tiny.gguf');
    const messages = conversation[name.replace(/^(ollama|llama-server)-/, '')] ?? [];
    const made = await engine
      .chat(
        {
          model: model.tag,
          messages,
          tools: recordedTools,
          options: { ...chatOptions, numCtx: 4096, numPredict: 64 },
          engineVersion: null,
        },
        model,
        () => undefined,
        new AbortController().signal,
      )
      .then(
        (turn) => ({
          content: turn.content,
          thinking: turn.thinking,
          toolCalls: turn.toolCalls,
          doneReason: turn.doneReason,
          promptTokens: turn.receipt.promptTokens,
          outputTokens: turn.receipt.outputTokens,
          cachedTokens: turn.receipt.cachedTokens,
        }),
        (error: unknown) => {
          if (!InferenceFailure.is(error)) throw error;
          return { failure: error.kind, code: error.code };
        },
      );
    expect(made).toEqual(outcome);
    expect(peer?.chats[0]).toBe((await read('request.txt')).toString());
  });
});
