import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';
import { readGguf, type GgufFacts } from './gguf.ts';

/** A model file as this host read it. */
export interface HostWeights {
  readonly sha256: Sha256;
  readonly sizeBytes: number;
  readonly gguf: GgufFacts | null;
}

/**
 * Hashes model files where this process may read them. A file of some gigabytes takes seconds, so a hash is kept as long
 * as the file's identity, size and times stay; two callers of one file share one reading.
 */
export class WeightsReader {
  readonly #known = new Map<string, { readonly stamp: string; readonly read: Promise<HostWeights | null> }>();

  /** Null where the path is not an absolute path of a readable regular file. Never throws. */
  async read(path: string): Promise<HostWeights | null> {
    const stamp = await stampOf(path);
    if (stamp === null) return null;
    const known = this.#known.get(path);
    if (known?.stamp === stamp) return known.read;
    const read = this.#readNow(path, stamp);
    this.#known.set(path, { stamp, read });
    return read;
  }

  /** The hash that is known of exactly the file that lies there now; null where it was never read or has changed. */
  async known(path: string): Promise<HostWeights | null> {
    const known = this.#known.get(path);
    if (known === undefined || (await stampOf(path)) !== known.stamp) return null;
    return known.read;
  }

  async #readNow(path: string, stamp: string): Promise<HostWeights | null> {
    try {
      const hash = createHash('sha256');
      let sizeBytes = 0;
      for await (const chunk of createReadStream(path, { highWaterMark: 1_048_576 }) as AsyncIterable<Buffer>) {
        hash.update(chunk);
        sizeBytes += chunk.length;
      }
      const gguf = await readGguf(path).catch(() => null);
      // A file that changed while it was read has no hash.
      if ((await stampOf(path)) !== stamp) return null;
      return { sha256: hash.digest('hex') as Sha256, sizeBytes, gguf };
    } catch {
      return null;
    }
  }
}

async function stampOf(path: string): Promise<string | null> {
  if (!isAbsolute(path)) return null;
  try {
    const s = await stat(path, { bigint: true });
    return s.isFile() ? `${s.dev}:${s.ino}:${s.size}:${s.mtimeNs}:${s.ctimeNs}` : null;
  } catch {
    return null;
  }
}

/** Whether the file of the weights is still the one whose hash is bound. Nothing bound: nothing to find. */
export async function weightsFindings(
  expected: ModelIdentity,
  weights: WeightsReader | null,
): Promise<'weights_changed'[]> {
  const bound = expected.weights;
  if (weights === null || bound === null || bound.hashed === null) return [];
  const now = await weights.read(bound.path);
  return now?.sha256 === bound.hashed ? [] : ['weights_changed'];
}
