import type { ImageList, ImagePrune, ImageView } from '../../protocol/images.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { ContainerEngine } from '../sandbox/engine.ts';
import { EngineFault } from '../sandbox/engine-fault.ts';
import type { ImageFacts } from '../sandbox/engine-images.ts';
import { imageLayout, labelKeys, productLabel } from '../sandbox/labels.ts';

/** What decides whether an image is still needed, as seen a moment ago. */
export interface ImageNeeds {
  readonly homeId: string;
  readonly executor: Sha256;
  /** Id of the default prepared image; null where there is none. */
  readonly current: string | null;
  /** Ids that sessions which are not closed are bound to. */
  readonly bound: ReadonlySet<string>;
}

interface Layer {
  /** Bytes; null where the engine does not tell them for a single layer. */
  readonly size: number | null;
  readonly users: Set<string>;
}

interface Inventory {
  readonly all: readonly ImageFacts[];
  readonly ours: readonly ImageFacts[];
  readonly layersOf: ReadonlyMap<string, readonly string[]>;
  readonly layers: ReadonlyMap<string, Layer>;
  readonly inUse: ReadonlySet<string>;
}

const kinds = ['base', 'flat', 'dependencies', 'steps', 'prepared'] as const;

/**
 * Looks at every image of the engine: a layer that somebody else's image shares is not freed with ours. One that
 * somebody removes meanwhile is left out. Throws EngineFault.
 */
async function takeInventory(engine: ContainerEngine): Promise<Inventory> {
  const all = await engine.images.list([]);
  const layersOf = new Map<string, readonly string[]>();
  const layers = new Map<string, Layer>();
  for (const { id } of all) {
    const found = await engine.images.inspect(id);
    const newestFirst = await engine.images.layerSizes(id);
    if (found === undefined || newestFirst === undefined) continue;
    const sizes = newestFirst.toReversed();
    const own = found.RootFS?.Layers ?? [];
    // Instructions without a layer have no bytes; where the two can't be matched, single sizes are not known.
    const filled = sizes.length === own.length ? sizes : sizes.filter((size) => size > 0);
    const known = filled.length === own.length;
    const chain: string[] = [];
    own.forEach((_, n) => {
      // The same bytes over other layers are another layer to the engine.
      const key = own.slice(0, n + 1).join(' ');
      chain.push(key);
      const before = layers.get(key);
      const size = known ? (filled[n] ?? null) : (before?.size ?? null);
      layers.set(key, { size, users: new Set([...(before?.users ?? []), id]) });
    });
    layersOf.set(id, chain);
  }
  const ours = all.filter(({ id, labels }) => layersOf.has(id) && labels[labelKeys.product] === productLabel);
  return { all, ours, layersOf, layers, inUse: await engine.images.inUse() };
}

function kindOf({ labels }: ImageFacts): ImageView['kind'] {
  return kinds.find((kind) => kind === labels[labelKeys.image]) ?? 'base';
}

function ownerOf({ labels }: ImageFacts, homeId: string): ImageView['owner'] {
  const home = labels[labelKeys.home] ?? labels[labelKeys.owner];
  return home === undefined ? 'set-up' : home === homeId ? 'this-home' : 'another-home';
}

function bytesOf(keys: readonly string[], layers: Inventory['layers']): number | null {
  let sum = 0;
  for (const key of keys) {
    const size = layers.get(key)?.size ?? null;
    if (size === null) return null;
    sum += size;
  }
  return sum;
}

interface Choice {
  readonly all: boolean;
  readonly setUp: boolean;
}

/** Each of our images with the reason to keep it; null: it may go. Pure. */
function judge(inventory: Inventory, needs: ImageNeeds, choice: Choice): ReadonlyMap<string, string | null> {
  const { all, ours, inUse } = inventory;
  const verdicts = new Map<string, string | null>();
  for (const image of ours) {
    const owner = ownerOf(image, needs.homeId);
    const { labels } = image;
    const kind = kindOf(image);
    const mine = owner === 'this-home' || (owner === 'set-up' && choice.setUp);
    const fits =
      labels[labelKeys.layout] === imageLayout &&
      (kind !== 'prepared' || labels[labelKeys.executor] === needs.executor);
    verdicts.set(
      image.id,
      inUse.has(image.id)
        ? 'container'
        : needs.bound.has(image.id)
          ? 'session'
          : image.id === needs.current
            ? 'current'
            : !mine || kind === 'base'
              ? 'not-ours'
              : fits && !choice.all
                ? 'usable'
                : null,
    );
  }
  // What a kept image is built on stays; engines refuse it anyway. Another one with the same layers is no reason: those
  // of the same packages are the same in every home.
  const parents = new Map(all.map(({ id, parent }) => [id, parent]));
  for (const { id } of all) {
    if (verdicts.get(id) === null) continue;
    for (let below = parents.get(id) ?? null; below !== null; below = parents.get(below) ?? null) {
      if (verdicts.get(below) === null) verdicts.set(below, 'below');
    }
  }
  return verdicts;
}

function viewOf(image: ImageFacts, inventory: Inventory, needs: ImageNeeds, kept: string | null): ImageView {
  const { labels } = image;
  const own = (inventory.layersOf.get(image.id) ?? []).filter((key) => inventory.layers.get(key)?.users.size === 1);
  return {
    id: image.id,
    tags: [...image.tags],
    kind: kindOf(image),
    owner: ownerOf(image, needs.homeId),
    createdAt: image.created * 1000,
    sizeBytes: image.size,
    ownBytes: bytesOf(own, inventory.layers),
    base: labels[labelKeys.base] ?? null,
    executor: labels[labelKeys.executor] ?? null,
    dependencies: labels[labelKeys.dependencies] ?? null,
    kept,
  };
}

/** Unknown in any sum over layers: what the storage of the engine adds is never told. */
function unknownsOf(keys: Iterable<string>, layers: Inventory['layers']): string[] {
  const missing = [...keys].some((key) => layers.get(key)?.size === null);
  return [...(missing ? ['layer_sizes'] : []), 'engine_overhead'];
}

function sumKnown(keys: Iterable<string>, layers: Inventory['layers']): number {
  return [...keys].reduce((sum, key) => sum + (layers.get(key)?.size ?? 0), 0);
}

/** Everything of Escrow in the engine, each layer counted once. Throws EngineFault. */
export async function listImages(engine: ContainerEngine, needs: ImageNeeds): Promise<ImageList> {
  const inventory = await takeInventory(engine);
  const verdicts = judge(inventory, needs, { all: false, setUp: false });
  const keys = new Set(inventory.ours.flatMap(({ id }) => inventory.layersOf.get(id) ?? []));
  return {
    images: inventory.ours
      .toSorted((a, b) => b.created - a.created || (a.id < b.id ? -1 : 1))
      .map((image) => viewOf(image, inventory, needs, verdicts.get(image.id) ?? null)),
    totalBytes: sumKnown(keys, inventory.layers),
    unknown: unknownsOf(keys, inventory.layers),
  };
}

/**
 * Removes what `judge` lets go, images before what they are built on, and tells what became of each. `preview` only
 * tells. Never forces: what somebody uses since is reported as failed. Throws EngineFault where the engine can't be asked.
 */
export async function pruneImages(
  engine: ContainerEngine,
  needs: ImageNeeds,
  choice: Choice & { readonly preview: boolean },
  onRemoved: (id: string) => void,
): Promise<ImagePrune> {
  const inventory = await takeInventory(engine);
  const verdicts = judge(inventory, needs, choice);
  const view = (image: ImageFacts): ImageView => viewOf(image, inventory, needs, verdicts.get(image.id) ?? null);
  const going = inventory.ours
    .filter(({ id }) => verdicts.get(id) === null)
    .toSorted((a, b) => (inventory.layersOf.get(b.id)?.length ?? 0) - (inventory.layersOf.get(a.id)?.length ?? 0));
  const removed: ImageView[] = [];
  const failed: { id: string; reason: string }[] = [];
  for (const image of going) {
    if (!choice.preview) {
      try {
        await engine.images.remove(image.id, true);
      } catch (error) {
        if (!EngineFault.is(error)) throw error;
        failed.push({ id: image.id, reason: error.message });
        continue;
      }
      onRemoved(image.id);
    }
    removed.push(view(image));
  }
  const gone = new Set(removed.map(({ id }) => id));
  const freed = [...inventory.layers]
    .filter(([, { users }]) => [...users].every((id) => gone.has(id)))
    .map(([key]) => key);
  return {
    done: !choice.preview,
    removed,
    kept: inventory.ours.filter(({ id }) => !gone.has(id)).map(view),
    failed,
    freedBytes: sumKnown(freed, inventory.layers),
    unknown: unknownsOf(freed, inventory.layers),
  };
}
