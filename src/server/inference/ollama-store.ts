import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { sha256 } from '../../protocol/hash.ts';
import { Sha256 } from '../../protocol/primitives.ts';
import { canonicalTag } from './cloud.ts';

/** Files of a store that are listed; beyond it the list is no list. */
const mostFiles = 20_000;

/** What the name of a blob claims: `…/blobs/sha256-<hex>`. */
export function claimedDigest(path: string): Sha256 | null {
  const parsed = Sha256.safeParse(/sha256[-:]([0-9a-f]{64})$/.exec(path)?.[1]);
  return parsed.success ? parsed.data : null;
}

/** The model store that a weights path lies in, or null. */
export function storeOf(weights: string | null): string | null {
  if (weights === null || claimedDigest(weights) === null) return null;
  const blobs = dirname(weights);
  return blobs.endsWith('/blobs') || blobs.endsWith('\\blobs') ? dirname(blobs) : null;
}

const Manifest = z.looseObject({ layers: z.array(z.looseObject({ mediaType: z.string(), digest: z.string() })) });

/**
 * The manifest of a tag as this host reads it: its SHA-256 is what the engine calls the model's digest, and its model
 * layer names the weights. Null where the store is not readable or has no such tag.
 */
export async function readManifest(
  store: string,
  tag: string,
): Promise<{ readonly sha256: Sha256; readonly weights: Sha256 | null } | null> {
  try {
    const bytes = await readFile(join(store, 'manifests', ...manifestPath(tag)));
    const manifest = Manifest.parse(JSON.parse(bytes.toString('utf8')));
    const model = manifest.layers.find((layer) => layer.mediaType.endsWith('image.model'));
    return { sha256: sha256(bytes), weights: model === undefined ? null : claimedDigest(model.digest) };
  } catch {
    return null;
  }
}

/** `qwen3:4b` lies under `registry.ollama.ai/library/qwen3/4b`. */
export function manifestPath(tag: string): readonly string[] {
  const name = canonicalTag(tag);
  const colon = name.lastIndexOf(':');
  const parts = name.slice(0, colon).split('/');
  const [registry, namespace, model] =
    parts.length === 1
      ? ['registry.ollama.ai', 'library', parts[0]]
      : parts.length === 2
        ? ['registry.ollama.ai', parts[0], parts[1]]
        : [parts.slice(0, -2).join('/'), parts.at(-2), parts.at(-1)];
  return [registry ?? '', namespace ?? '', model ?? '', name.slice(colon + 1)];
}

/** Blobs of a store by name with their sizes, or null where it can't be read. */
export async function listStore(
  store: string,
): Promise<readonly { readonly name: string; readonly size: number }[] | null> {
  try {
    const names = await readdir(join(store, 'blobs'));
    if (names.length > mostFiles) return null;
    const files: { name: string; size: number }[] = [];
    for (const name of names.toSorted()) {
      const found = await stat(join(store, 'blobs', name)).catch(() => null);
      if (found !== null) files.push({ name, size: found.size });
    }
    return files;
  } catch {
    return null;
  }
}
