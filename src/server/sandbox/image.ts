import { readFile } from 'node:fs/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { ContainerEngine, ImageFacts } from './engine.ts';
import { imageLayout, labelKeys, productLabel } from './labels.ts';
import type { ImageIdentity } from './port.ts';

/** Repository of the bases that `npm run setup` makes. */
export const baseRepository = 'escrow-base';
const preferredBase = `${baseRepository}:trixie`;

/** Hash of the executor that this Kernel ships. Throws EscrowError ImageUnavailable where the file is missing. */
export async function shippedExecutor(executorPath: string): Promise<Sha256> {
  try {
    return sha256(await readFile(executorPath));
  } catch {
    throw new EscrowError(
      'ImageUnavailable',
      `The executor is missing: ${executorPath}.`,
      'Run npm run build in a checkout, or install the extension again.',
      { executorPath },
    );
  }
}

/**
 * The prepared image for a base (null: the default) and the executor that this Kernel ships, found by labels: a name
 * can be moved, what labels and ids say was true when the image was made. Throws EscrowError ImageUnavailable.
 */
export async function resolveImage(
  engine: ContainerEngine,
  base: string | null,
  executorPath: string,
): Promise<ImageIdentity> {
  const executorDigest = await shippedExecutor(executorPath);
  const reference = base ?? (await defaultBase(engine));
  const found = reference === undefined ? undefined : await engine.inspectImage(reference);
  if (reference === undefined || found === undefined) {
    throw new EscrowError(
      'ImageUnavailable',
      base === null ? 'There is no base image yet.' : `There is no image ${base} in the container engine.`,
      base === null
        ? 'Run npm run setup in a checkout of Escrow: it makes the base image and the sandbox image.'
        : `Pull ${base} with your container engine, then run npm run setup -- --base ${base}.`,
      { base: reference ?? null },
    );
  }
  const prepared = await engine.images([
    `${labelKeys.product}=${productLabel}`,
    `${labelKeys.image}=prepared`,
    `${labelKeys.layout}=${imageLayout}`,
    `${labelKeys.base}=${found.Id}`,
    `${labelKeys.executor}=${executorDigest}`,
  ]);
  const newest = prepared.toSorted(byAge)[0];
  if (newest === undefined) {
    throw new EscrowError(
      'ImageUnavailable',
      `${reference} has not been prepared for this version of Escrow.`,
      base === null ? 'Run npm run setup.' : `Run npm run setup -- --base ${base}.`,
      { base: reference, baseDigest: found.Id, executorDigest },
    );
  }
  return { reference, digest: newest.id, executorDigest };
}

/** The usual base, else the newest that setup made; undefined where there is none. */
export async function defaultBase(engine: ContainerEngine): Promise<string | undefined> {
  if ((await engine.inspectImage(preferredBase)) !== undefined) return preferredBase;
  const bases = (await engine.images([])).filter(({ tags }) => tags.some(isBaseTag)).toSorted(byAge);
  return bases[0]?.tags.find(isBaseTag);
}

function isBaseTag(tag: string): boolean {
  return tag.startsWith(`${baseRepository}:`);
}

function byAge(a: ImageFacts, b: ImageFacts): number {
  return b.created - a.created || (a.id < b.id ? -1 : 1);
}
