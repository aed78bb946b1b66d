import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { InferenceFailure } from '../../../src/server/inference/port.ts';
import {
  callLine,
  lastLine,
  line,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import { chatOnce, engineOn } from '../../fixtures/ollama-chat.ts';

const honest = Buffer.from(
  line({ thinking: 'so' }) + line({ content: 'grün' }) + callLine('terminal', { command: 'a' }) + lastLine,
);

/** Bytes overwritten, removed or doubled at any place. */
const damage = fc.tuple(fc.nat(honest.length), fc.nat(40), fc.uint8Array({ maxLength: 12 }));

test('a damaged stream is a named failure, or differs in no shape; it never hangs, and no half of it is delivered', async () => {
  let body: Buffer = honest;
  const peer = await startOllamaPeer({ chat: (response) => void streaming(response).end(body) });
  const engine = engineOn(peer.host, { stallMs: 2000 });
  const identity = await engine.identity(peerModel);
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(damage, { minLength: 1, maxLength: 3 }), async (damages) => {
        body = honest;
        for (const [at, cut, bytes] of damages)
          body = Buffer.concat([body.subarray(0, at), bytes, body.subarray(Math.min(body.length, at + cut))]);
        try {
          const turn = await chatOnce(engine, { identity });
          expect(turn.receipt.verified).toBe(true);
          expect(Buffer.from(turn.rawResponse)).toEqual(body);
          expect(body.toString()).toContain('"done":true');
        } catch (error) {
          expect(InferenceFailure.is(error) && error.code).toMatch(/^[a-z0-9_]+$/);
        }
      }),
      { numRuns: 150 },
    );
  } finally {
    await peer.close();
  }
});
