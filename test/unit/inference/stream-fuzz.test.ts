import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { InferenceFailure } from '../../../src/server/inference/port.ts';
import type { InferenceEngine } from '../../../src/server/inference/port.ts';
import { LineReader, StreamFault } from '../../../src/server/inference/stream-reader.ts';
import {
  callEvents,
  event,
  lastEvents,
  servedModel,
  startCompletionsPeer,
  streamingEvents,
} from '../../fixtures/bad-peers/completions-peer.ts';
import {
  callLine,
  lastLine,
  line,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import { completionsEngineOn } from '../../fixtures/engine-subjects.ts';
import { chatOptions, engineOn } from '../../fixtures/ollama-chat.ts';

/** A wire: an honest answer on it, and the adapter on a peer that sends whatever bytes `body` gives. */
interface Wire {
  readonly name: string;
  readonly honest: Buffer;
  readonly model: string;
  /** What a whole answer must contain. */
  readonly end: string;
  readonly start: (
    body: () => Buffer,
  ) => Promise<{ readonly engine: InferenceEngine; readonly close: () => Promise<void> }>;
}

const wires: readonly Wire[] = [
  {
    name: 'Ollama',
    model: peerModel,
    end: '"done":true',
    honest: Buffer.from(
      line({ thinking: 'so' }) + line({ content: 'grün' }) + callLine('terminal', { command: 'a' }) + lastLine,
    ),
    async start(body) {
      const peer = await startOllamaPeer({ chat: (response) => void streaming(response).end(body()) });
      return { engine: engineOn(peer.host, { stallMs: 2000 }), close: () => peer.close() };
    },
  },
  {
    name: 'chat completions',
    model: servedModel,
    end: '[DONE]',
    honest: Buffer.from(
      event({ reasoning_content: 'so' }) +
        event({ content: 'grün' }) +
        callEvents('terminal', '{"command":"a"}') +
        lastEvents,
    ),
    async start(body) {
      const peer = await startCompletionsPeer({ chat: (response) => void streamingEvents(response).end(body()) });
      return { engine: completionsEngineOn(peer.host, { stallMs: 2000 }), close: () => peer.close() };
    },
  },
];

test.each(wires)(
  'a damaged stream ($name) is a named failure, or differs in no shape; it never hangs, and no half of it is delivered',
  async ({ honest, model, end, start }) => {
    /** Bytes overwritten, removed or doubled at any place. */
    const damage = fc.tuple(fc.nat(honest.length), fc.nat(40), fc.uint8Array({ maxLength: 12 }));
    let body: Buffer = honest;
    const { engine, close } = await start(() => body);
    const identity = await engine.identity(model);
    const request = { model, messages: [], tools: [], options: chatOptions, engineVersion: null };
    try {
      await fc.assert(
        fc.asyncProperty(fc.array(damage, { minLength: 1, maxLength: 3 }), async (damages) => {
          body = honest;
          for (const [at, cut, bytes] of damages)
            body = Buffer.concat([body.subarray(0, at), bytes, body.subarray(Math.min(body.length, at + cut))]);
          try {
            const turn = await engine.chat(request, identity, () => undefined, new AbortController().signal);
            expect(turn.receipt.verified).toBe(true);
            expect(Buffer.from(turn.rawResponse)).toEqual(body);
            expect(body.toString()).toContain(end);
          } catch (error) {
            expect(InferenceFailure.is(error) && error.code).toMatch(/^[a-z0-9_]+$/);
          }
        }),
        { numRuns: 120 },
      );
    } finally {
      await close();
    }
  },
);

test.each(['json-lines', 'events'] as const)(
  'however bytes are cut, a reader of %s gives the same values and the same fault',
  (framing) => {
    const piece = fc.oneof(
      fc.constantFrom('{"a":1}', 'data: {"b":"€"}', 'data: [DONE]', ': note', '', 'id: 3', 'x', 'data: {', '\u00FF'),
      fc.string({ unit: 'binary', maxLength: 20 }),
    );
    const limits = { lineBytes: 60, totalBytes: 400, lines: 30 };
    const read = (chunks: readonly Uint8Array[]): unknown => {
      const values: unknown[] = [];
      const reader = new LineReader((value) => values.push(value), limits, framing);
      try {
        for (const chunk of chunks) reader.push(chunk);
        reader.end();
        return values;
      } catch (error) {
        if (!(error instanceof StreamFault)) throw error;
        return error.code;
      }
    };
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        fc.array(fc.nat(300), { maxLength: 8 }),
        fc.uint8Array({ maxLength: 3 }),
        (pieces, cuts, tail) => {
          const bytes = Buffer.concat([Buffer.from(pieces.join('\n')), tail]);
          const at = [0, ...cuts.map((c) => Math.min(c, bytes.length)), bytes.length].toSorted((a, b) => a - b);
          const chunks = at.slice(1).map((to, i) => bytes.subarray(at[i], to));
          const whole = read([bytes]);
          // Only which of two limits is met first may depend on how much came at once.
          const limited = ['response_too_long', 'line_too_long', 'too_many_lines'];
          const cut = read(chunks);
          if (typeof whole === 'string' && limited.includes(whole)) expect(typeof cut).toBe('string');
          else expect(cut).toEqual(whole);
        },
      ),
      { numRuns: 500 },
    );
  },
);
