import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { parseGguf } from '../../../src/server/inference/gguf.ts';
import { manifestPath } from '../../../src/server/inference/ollama-store.ts';
import { createOllamaEngine } from '../../../src/server/inference/ollama.ts';
import type { InferenceEngine } from '../../../src/server/inference/port.ts';
import { WeightsReader } from '../../../src/server/inference/weights.ts';
import { honestTag, peerModel, startOllamaPeer } from '../../fixtures/bad-peers/ollama-peer.ts';
import type { OllamaPeer } from '../../fixtures/bad-peers/ollama-peer.ts';
import { chatOnce, failureOf } from '../../fixtures/ollama-chat.ts';
import { tinyGguf } from '../../fixtures/tiny-gguf.ts';

let folder: string;
let peer: OllamaPeer | undefined;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weights-'));
});
afterEach(async () => {
  await peer?.close();
  await rm(folder, { recursive: true });
});

/** A model store as Ollama lays it out, with one model. */
async function store(bytes: Uint8Array): Promise<{ blob: string; digest: string; manifest: string }> {
  const hash = sha256(bytes);
  const blob = join(folder, 'blobs', `sha256-${hash}`);
  const manifest = join(folder, 'manifests', ...manifestPath(peerModel));
  const text = JSON.stringify({
    schemaVersion: 2,
    layers: [{ mediaType: 'application/vnd.ollama.image.model', digest: `sha256:${hash}`, size: bytes.length }],
  });
  await mkdir(join(folder, 'blobs'), { recursive: true });
  await mkdir(join(manifest, '..'), { recursive: true });
  await writeFile(blob, bytes);
  await writeFile(manifest, text);
  return { blob, digest: sha256(text), manifest };
}

async function engineOver(blob: string, digest: string): Promise<InferenceEngine> {
  peer = await startOllamaPeer({
    tags: () => [{ ...honestTag, digest }],
    show: () => ({ modelfile: `FROM ${blob}\n`, template: 'x', details: honestTag.details, capabilities: ['tools'] }),
    ps: (chats) => (chats === 0 ? [] : [{ name: peerModel, digest, size: 10, size_vram: 10, context_length: 8192 }]),
  });
  return createOllamaEngine({
    host: peer.host,
    kind: 'ollama',
    now: () => 0,
    monotonic: () => performance.now(),
    log: () => undefined,
    weights: new WeightsReader(),
  });
}

describe('weights that this host can read', () => {
  test('hash and manifest as the engine says: both vouch, and the receipt says so', async () => {
    const { blob, digest } = await store(tinyGguf());
    const engine = await engineOver(blob, digest);
    const identity = await engine.identity(peerModel);
    expect(identity).toMatchObject({ witness: 'both', unproven: [], templateDigest: sha256('x') });
    expect(identity.weights).toMatchObject({ path: blob, hashed: sha256(tinyGguf()), claimed: sha256(tinyGguf()) });
    expect((await chatOnce(engine, { identity })).receipt).toMatchObject({ verified: true, witness: 'both' });
    const seen = await engine.survey(identity);
    expect(seen.store).toEqual({
      path: folder,
      files: [{ name: `sha256-${sha256(tinyGguf())}`, size: tinyGguf().length }],
    });
  });

  test('bytes other than what the name of the file claims are refused', async () => {
    const { blob, digest } = await store(tinyGguf());
    await writeFile(blob, tinyGguf(2));
    await expect((await engineOver(blob, digest)).identity(peerModel)).rejects.toMatchObject({ code: 'WeightsDiffer' });
  });

  test('a manifest other than the digest that the engine tells is refused', async () => {
    const { blob } = await store(tinyGguf());
    await expect((await engineOver(blob, 'f'.repeat(64))).identity(peerModel)).rejects.toMatchObject({
      code: 'WeightsDiffer',
    });
  });

  test('weights without a readable manifest: the link from tag to file stays unproven', async () => {
    const { blob, digest, manifest } = await store(tinyGguf());
    await rm(manifest);
    expect(await (await engineOver(blob, digest)).identity(peerModel)).toMatchObject({
      witness: 'both',
      unproven: ['digest'],
    });
  });

  test('a file that this host cannot read leaves the engine as the only witness', async () => {
    const engine = await engineOver(join(folder, 'blobs', `sha256-${'c'.repeat(64)}`), 'a'.repeat(64));
    expect(await engine.identity(peerModel)).toMatchObject({ witness: 'engine', unproven: ['digest', 'weights'] });
  });

  test('a file that was changed after the binding ends the request before anything is sent', async () => {
    const { blob, digest } = await store(tinyGguf());
    const engine = await engineOver(blob, digest);
    const identity = await engine.identity(peerModel);
    await writeFile(blob, tinyGguf(2));
    const failure = await failureOf(chatOnce(engine, { identity }));
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'identity', code: 'weights_changed' });
    expect(peer?.chats).toHaveLength(0);
  });
});

describe('the reader of weights', () => {
  test('reads a file once, and again when it was touched', async () => {
    const path = join(folder, 'm.gguf');
    await writeFile(path, tinyGguf());
    const reader = new WeightsReader();
    expect(await reader.known(path)).toBeNull();
    const [a, b] = await Promise.all([reader.read(path), reader.read(path)]);
    expect(a).toBe(b);
    expect(await reader.known(path)).toBe(a);
    await utimes(path, new Date(1000), new Date(1000));
    expect(await reader.known(path)).toBeNull();
    expect((await reader.read(path))?.sha256).toBe(a?.sha256);
  });

  test.each(['relative.gguf', '/nowhere/m.gguf', '/dev/zero', '/etc'])('%s is no file of weights', async (path) => {
    expect(await new WeightsReader().read(path)).toBeNull();
  });
});

describe('a model file', () => {
  test('says its architecture, tokenizer and context', () => {
    expect(parseGguf(Buffer.from(tinyGguf(1, 4096)))).toEqual({
      architecture: 'llama',
      name: 'tiny',
      tokenizer: 'gpt2',
      contextLength: 4096,
    });
  });

  test('cut anywhere or altered anywhere, it is read to where it makes sense and never throws', () => {
    const whole = Buffer.from(tinyGguf()).subarray(0, 9000);
    for (let cut = 0; cut < whole.length; cut += 37) {
      expect(() => parseGguf(whole.subarray(0, cut))).not.toThrow();
      const altered = Buffer.from(whole);
      altered[cut] = (altered[cut] ?? 0) ^ 0xff;
      expect(() => parseGguf(altered)).not.toThrow();
    }
    expect(parseGguf(Buffer.from('not a model at all, but long enough'))).toBeNull();
  });
});
