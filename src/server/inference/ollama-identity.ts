import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';
import { isCloudName } from './cloud.ts';
import { claimedDigest, readManifest, storeOf } from './ollama-store.ts';
import type { WeightsReader } from './weights.ts';
import type { ShowReply as Show, TagEntry } from './wire.ts';

export function hasRemote(entry: { readonly remote_host?: unknown; readonly remote_model?: unknown }): boolean {
  return Boolean(entry.remote_host) || Boolean(entry.remote_model);
}

/** A code why the entry may not be used, or null. */
export function refusedReason(entry: TagEntry): string | null {
  return isCloudName(entry.name) || hasRemote(entry) ? 'cloud' : null;
}

/** The FROM line of a modelfile names the weights: a blob path with the digest in it. */
export function weightsOf(shown: Show): string | null {
  return /^FROM\s+(.+)$/m.exec(shown.modelfile ?? '')?.[1]?.trim() ?? null;
}

/** What the engine says of a model; nothing in it is proven yet. */
export function identityOf(entry: TagEntry, shown: Show | null): ModelIdentity {
  const details = entry.details ?? shown?.details ?? null;
  const info = shown?.model_info ?? {};
  const context = Object.entries(info).find(([key]) => key.endsWith('.context_length'))?.[1];
  const path = shown === null ? null : weightsOf(shown);
  const template = shown?.template ?? null;
  return {
    tag: entry.name,
    digest: entry.digest,
    quantisation: details?.quantization_level ?? null,
    parameterSize: details?.parameter_size ?? null,
    family: details?.family ?? null,
    contextAdvertised:
      typeof context === 'number' && Number.isInteger(context)
        ? context
        : (entry.context_length ?? details?.context_length ?? null),
    capabilities: [...(shown?.capabilities ?? entry.capabilities ?? [])],
    sizeBytes: entry.size ?? null,
    templateDigest: template === null || template === '' ? null : sha256(template),
    weights: path === null ? null : { path, sizeBytes: null, claimed: claimedDigest(path), hashed: null },
    unproven: [],
    witness: 'engine',
  };
}

/**
 * The same identity with what this host can read: the weights are hashed, and the manifest, whose hash is what the engine
 * calls the digest. Both readable and as told: witness `both`. Throws EscrowError WeightsDiffer where they contradict.
 */
export async function vouched(identity: ModelIdentity, weights: WeightsReader | null): Promise<ModelIdentity> {
  const told = identity.weights;
  const read = weights === null || told === null ? null : await weights.read(told.path);
  if (told === null || read === null) return { ...identity, unproven: ['digest', 'weights'] };
  const differ = (what: string): EscrowError =>
    new EscrowError(
      'WeightsDiffer',
      `${what} of "${identity.tag}" on this machine is not what the engine says it is.`,
      'Do not use this model; remove it and install it again.',
      { tag: identity.tag, path: told.path, claimed: told.claimed, hashed: read.sha256 },
    );
  if (told.claimed !== null && told.claimed !== read.sha256) throw differ('The file of the weights');
  const store = storeOf(told.path);
  const manifest = store === null ? null : await readManifest(store, identity.tag);
  if (manifest !== null && (manifest.sha256 !== identity.digest || manifest.weights !== read.sha256))
    throw differ('The manifest');
  return {
    ...identity,
    weights: { ...told, sizeBytes: read.sizeBytes, hashed: read.sha256 },
    unproven: manifest === null ? ['digest'] : [],
    witness: 'both',
  };
}
