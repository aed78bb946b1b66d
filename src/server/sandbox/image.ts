import { readFile } from 'node:fs/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { digestOf, sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { hasOnBuild } from './base-fit.ts';
import { dependenciesDigest } from './dependency-layer.ts';
import type { ContainerEngine } from './engine.ts';
import { findImages, newest, type ImageKey } from './image-preparation.ts';
import type { ImageIdentity, ImageWanted, Language } from './port.ts';

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

/** What an image of the default base is asked for with. */
export const defaultImage: ImageWanted = { base: null, pinned: null, language: null, dependencies: null, steps: [] };

/** Digest of opaque steps; null where there are none. */
export function stepsDigest(steps: ImageWanted['steps']): Sha256 | null {
  return steps.length === 0 ? null : digestOf(steps.map(({ argv, network }) => ({ argv: [...argv], network })));
}

/** What the prepared image is told apart by, for a base that is there. */
export function imageKey(wanted: ImageWanted, baseId: string, executor: Sha256): ImageKey {
  return {
    base: baseId,
    executor,
    dependencies: wanted.dependencies === null ? null : dependenciesDigest(wanted.dependencies),
    steps: stepsDigest(wanted.steps),
  };
}

export interface FoundBase {
  readonly reference: string;
  /** Id of the image, which is what counts. */
  readonly id: string;
  readonly sizeBytes: number;
  readonly architecture: string;
  /** Whether it has instructions that an engine runs when something is built from it. */
  readonly onBuild: boolean;
}

/**
 * The base in the engine: what was pinned at the freeze, else what the reference stands for now, else the default.
 * Undefined where there is none.
 */
export async function findBase(
  engine: ContainerEngine,
  wanted: Pick<ImageWanted, 'base' | 'pinned' | 'language'>,
): Promise<FoundBase | undefined> {
  const reference = baseReference(wanted) ?? (await defaultBase(engine));
  const asked = wanted.pinned ?? reference;
  if (asked === undefined) return undefined;
  const found = await engine.images.inspect(asked);
  if (found === undefined) return undefined;
  return {
    reference: reference ?? asked,
    id: found.Id,
    sizeBytes: found.Size,
    architecture: found.Architecture,
    onBuild: hasOnBuild(found),
  };
}

/**
 * The prepared image for what is wanted and the executor that this Kernel ships. Makes nothing. Throws EscrowError
 * ImageUnavailable with how to get it.
 */
export async function resolveImage(
  engine: ContainerEngine,
  wanted: ImageWanted,
  executorPath: string,
): Promise<ImageIdentity> {
  const executorDigest = await shippedExecutor(executorPath);
  const base = await findBase(engine, wanted);
  if (base === undefined) {
    const reference = baseReference(wanted);
    const gone = wanted.pinned !== null;
    throw new EscrowError(
      'ImageUnavailable',
      gone
        ? `The base image that this contract was frozen with (${reference ?? 'the default'}, ${wanted.pinned}) is not in the container engine any more.`
        : reference === null
          ? 'There is no base image yet.'
          : `There is no image ${reference} in the container engine.`,
      gone
        ? 'Freeze the contract again to take what its base stands for now.'
        : reference === null
          ? 'Prepare the sandbox image: escrow image prepare (in a checkout of Escrow: npm run setup).'
          : 'Prepare the image of this contract: escrow image prepare CONTRACT.',
      { base: reference, pinned: wanted.pinned },
    );
  }
  const prepared = newest(await findImages(engine, 'prepared', imageKey(wanted, base.id, executorDigest), null));
  if (prepared === undefined) {
    const packages = wanted.dependencies === null ? '' : ' with the packages of this contract';
    throw new EscrowError(
      'ImageUnavailable',
      `${base.reference} has not been prepared${packages} for this version of Escrow.`,
      wanted.base === null && wanted.dependencies === null
        ? 'Prepare the sandbox image: escrow image prepare (in a checkout of Escrow: npm run setup).'
        : 'Prepare the image of this contract: escrow image prepare CONTRACT.',
      { base: base.reference, baseDigest: base.id, executorDigest },
    );
  }
  return { reference: wanted.base ?? base.reference, digest: prepared.id, executorDigest };
}

/** Where no base is named and the default one can't serve: images that have the language, by name. */
const languageBases: Readonly<Record<Language, string | null>> = {
  // The default base has both.
  node: null,
  python: null,
  go: 'golang:1-trixie',
  rust: 'rust:1-slim-trixie',
};
/** Has Node and Python; what set-up pulls where it can't make a base. */
export const registryBase = 'node:24-trixie';

/** The base that is meant by name; null: the default. */
export function baseReference({ base, language }: Pick<ImageWanted, 'base' | 'language'>): string | null {
  return base ?? (language === null ? null : languageBases[language]);
}

/** The usual base, else the newest that setup made; undefined where there is none. */
export async function defaultBase(engine: ContainerEngine): Promise<string | undefined> {
  if ((await engine.images.inspect(preferredBase)) !== undefined) return preferredBase;
  const bases = (await engine.images.list([])).filter(({ tags }) => tags.some(isBaseTag));
  return newest(bases)?.tags.find(isBaseTag);
}

function isBaseTag(tag: string): boolean {
  return tag.startsWith(`${baseRepository}:`);
}
