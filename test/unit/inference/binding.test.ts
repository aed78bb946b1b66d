import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { defaultOptions, defaultSwitches } from '../../../src/server/agent/defaults.ts';
import { agentTools, promptDigest } from '../../../src/server/agent/prompt.ts';
import { makeBinding } from '../../../src/server/inference/binding.ts';
import type { BindingParts } from '../../../src/server/inference/binding.ts';
import { honestTag, peerDigest, peerModel, startOllamaPeer, weights } from '../../fixtures/bad-peers/ollama-peer.ts';
import type { OllamaPeer } from '../../fixtures/bad-peers/ollama-peer.ts';
import { anySha256 } from '../../fixtures/frozen-contract.ts';
import { engineOn } from '../../fixtures/ollama-chat.ts';

let peer: OllamaPeer;
let context = 40_960;
let capabilities = ['completion', 'tools'];
beforeEach(async () => {
  context = 40_960;
  capabilities = ['completion', 'tools'];
  peer = await startOllamaPeer({
    show: () => ({
      modelfile: `FROM ${weights}`,
      details: honestTag.details,
      capabilities,
      model_info: { 'general.architecture': 'qwen3', 'qwen3.context_length': context },
    }),
  });
});
afterEach(async () => peer.close());

const bind = async (asked: BindingParts['asked'] = {}) =>
  makeBinding({
    engine: engineOn(peer.host),
    model: 'QWEN3:4b',
    defaults: defaultOptions,
    asked,
    switches: defaultSwitches,
    promptDigest: promptDigest(agentTools),
    image: { reference: 'base', digest: 'sha256:x', executorDigest: anySha256 },
    profile: { name: 'bounded', digest: anySha256 },
  });

describe('a binding', () => {
  test('is the exact identity: engine, digest, frozen options, digests of prompt, image, profile', async () => {
    expect(await bind({ numPredict: 512, seed: undefined })).toEqual({
      engine: { kind: 'ollama', version: '0.33.1', host: peer.host },
      model: {
        tag: peerModel,
        digest: peerDigest,
        quantisation: 'Q4_K_M',
        parameterSize: '4.0B',
        family: 'qwen3',
        contextAdvertised: 40_960,
        capabilities: ['completion', 'tools'],
        sizeBytes: 2_500_000_000,
        templateDigest: null,
        // The peer names a file that this machine does not have: only the engine's word stands.
        weights: { path: weights, sizeBytes: null, claimed: 'c'.repeat(64), hashed: null },
        unproven: ['digest', 'weights'],
        witness: 'engine',
      },
      options: { ...defaultOptions, numPredict: 512 },
      switches: defaultSwitches,
      promptDigest: promptDigest(agentTools),
      image: { reference: 'base', digest: 'sha256:x' },
      executorDigest: anySha256,
      profile: { name: 'bounded', digest: anySha256 },
      synthetic: false,
      qualification: 'none',
    });
  });

  test('fits a default context to the model, but never changes one that was asked for', async () => {
    context = 8192;
    expect((await bind()).options.numCtx).toBe(8192);
    await expect(bind({ numCtx: 16_384 })).rejects.toMatchObject({ code: 'InvalidParams' });
  });

  test.each([
    ['output that leaves no room', { numCtx: 2048, numPredict: 4096 }],
    ['a context below the least', { numCtx: 1000 }],
    ['a temperature that is none', { temperature: 9 }],
  ])('%s is refused', async (_name, asked) => {
    await expect(bind(asked)).rejects.toMatchObject({ code: 'InvalidParams' });
  });

  test('a model that cannot call tools is refused', async () => {
    capabilities = ['completion'];
    await expect(bind()).rejects.toMatchObject({ code: 'InvalidParams' });
  });
});
