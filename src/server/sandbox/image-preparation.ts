import { readFile, stat } from 'node:fs/promises';
import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { extract, pack, type ExtractEvents, type Header as FoundHeader, type Pack } from 'tar-stream';
import { EscrowError } from '../../protocol/errors.ts';
import { insidePaths, workerId } from '../../protocol/executor.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { hasOnBuild, refuseOnBuild, refuseUnfit } from './base-fit.ts';
import type { ContainerEngine } from './engine.ts';
import { EngineFault } from './engine-fault.ts';
import type { ImageFacts } from './engine-images.ts';
import { launcherProgram, launcherScript, syscallProbeProgram } from './inside-programs.ts';
import { imageLayout, labelKeys, productLabel } from './labels.ts';
import type { PackedTree } from './dependency-layer.ts';
import { removeImages } from './opaque-steps.ts';
import { addBytes, addEmpty, addStream, rootOwned, type Header } from './tar-writing.ts';

/** Preparing takes about 15 s; on a machine under load a few times that. */
const patienceMs = 300_000;
/** How long a lock is held at most: for a base; with packages, whose files are many; with steps, which take their time. */
const flatteningMs = 120_000;
const packingMs = 15 * 60_000;
const steppingMs = 3 * 60 * 60_000;

/** One entry of an archive that is read. */
type Source = ExtractEvents['entry'][1];

/** Repository under which prepared images are tagged; a tag is only a name, labels and ids count. */
export const preparedRepository = 'escrow-sandbox';

/** What prepared images are told apart by; two with the same are interchangeable. */
export interface ImageKey {
  /** Id of the base. */
  readonly base: string;
  readonly executor: Sha256;
  /** Digest of lock files and manifests; null: no packages. */
  readonly dependencies: Sha256 | null;
  /** Digest of opaque steps that were run over the base; null: none. */
  readonly steps: Sha256 | null;
}

export interface PreparationInput {
  /** Reference or id of the base image, present in the engine. */
  readonly base: string;
  /** A Node binary for Linux on the engine's architecture. */
  readonly nodePath: string;
  readonly nodeVersion: string;
  readonly executorPath: string;
  /** Packages to be put between base and executor. */
  readonly dependencies?: { readonly digest: Sha256; readonly write: (layer: Pack) => Promise<PackedTree> } | null;
  /** Opaque steps: `over` runs them over the flat base and gives what they left (newest last), flattened as a base is. */
  readonly steps?: { readonly digest: Sha256; readonly over: (base: string) => Promise<readonly string[]> } | null;
  /** The Kernel's home that pays for it: only that home prunes it. Absent: set-up. */
  readonly homeId?: string;
  /** Before each part that is really made: in words, and which one. */
  readonly log: (message: string, part: MadeStep['kind']) => void;
}

/** What one part of a preparation took; only for what was really made. */
export interface MadeStep {
  readonly kind: 'flatten' | 'opaque' | 'dependencies' | 'executor';
  readonly ms: number;
  readonly packed: PackedTree | null;
}

export interface PreparedImage {
  readonly reference: string;
  readonly digest: string;
  readonly baseDigest: string;
  readonly executorDigest: Sha256;
  /** False where everything was there already. */
  readonly made: boolean;
  readonly steps: readonly MadeStep[];
}

/**
 * Makes the image that sandboxes start from: the base's files without its configuration (which could name volumes,
 * health checks, variables, an entry point), a Node, packages where they are asked for, and the executor. Nothing of the
 * base is executed. A layer each, so that a new executor costs a second, not a minute. Idempotent; what a failed
 * preparation made is removed again. Throws EscrowError ImageUnavailable, EngineFault.
 */
export async function prepareImage(engine: ContainerEngine, input: PreparationInput): Promise<PreparedImage> {
  const base = await engine.images.inspect(input.base);
  if (base === undefined) {
    throw new EscrowError(
      'ImageUnavailable',
      `There is no image ${input.base}.`,
      'Run npm run setup, or pull the image yourself and try again.',
      { base: input.base },
    );
  }
  refuseOnBuild({ reference: input.base, onBuild: hasOnBuild(base) });
  const executor = await readFile(input.executorPath);
  const node = await fileIdentity(input.nodePath, input.nodeVersion);
  const key: ImageKey = {
    base: base.Id,
    executor: sha256(executor),
    dependencies: input.dependencies?.digest ?? null,
    steps: input.steps?.digest ?? null,
  };
  const result = { baseDigest: base.Id, executorDigest: key.executor };
  const there = newest(await findImages(engine, 'prepared', key, node));
  if (there !== undefined) return { ...result, reference: nameOf(there), digest: there.id, made: false, steps: [] };

  // Two windows or test runs may want the same image at once: one makes it, the other finds it afterwards.
  const lock = {
    name: preparationName(key),
    owner: input.homeId,
    abandonedMs: key.steps !== null ? steppingMs : key.dependencies !== null ? packingMs : flatteningMs,
  };
  return withFileContainer(engine, base.Id, lock, async (baseFiles) => {
    const made = newest(await findImages(engine, 'prepared', key, node));
    if (made !== undefined) return { ...result, reference: nameOf(made), digest: made.id, made: false, steps: [] };
    const making = new Making(engine, input, key, node);
    try {
      const flat = await making.flat(base, baseFiles);
      const below = await making.packages(flat);
      const { reference, digest } = await making.prepared(below, executor);
      return { ...result, reference, digest, made: true, steps: making.steps };
    } catch (error) {
      await making.undo();
      throw error;
    }
  });
}

/** One preparation on its way: finds or makes each layer and remembers what it made. */
class Making {
  readonly steps: MadeStep[] = [];
  readonly #engine: ContainerEngine;
  readonly #input: PreparationInput;
  readonly #key: ImageKey;
  readonly #node: string;
  readonly #made: string[] = [];
  readonly #owned: { readonly owner: string | undefined };

  constructor(engine: ContainerEngine, input: PreparationInput, key: ImageKey, node: string) {
    this.#engine = engine;
    this.#input = input;
    this.#owned = { owner: input.homeId };
    this.#key = key;
    this.#node = node;
  }

  async flat(
    base: NonNullable<Awaited<ReturnType<ContainerEngine['images']['inspect']>>>,
    baseFiles: string,
  ): Promise<string> {
    const there = await this.#flatThere(this.#key);
    if (there !== undefined) return there;
    const { log, base: reference, nodeVersion, steps } = this.#input;
    const labels = this.#labels('flat');
    const flattenFiles = (files: string, kind: typeof labels) =>
      this.#timed('flatten', async () => ({
        id: await flatten(this.#engine, files, base.Architecture, this.#input, kind),
        packed: null,
      }));
    const plain = async (): Promise<string> => {
      await refuseUnfit(this.#engine, baseFiles, { reference, architecture: base.Architecture }, this.#input.nodePath);
      log(`flattening ${reference} (${Math.round(base.Size / 1e6)} MB) and adding Node ${nodeVersion}`, 'flatten');
      return flattenFiles(baseFiles, this.#labels('flat', null));
    };
    if (steps === null || steps === undefined) return plain();
    // Steps run over what is flat already: a base's volumes, health checks and variables take no part.
    const below = (await this.#flatThere({ ...this.#key, steps: null })) ?? (await plain());
    const started = performance.now();
    const left = await steps.over(below);
    this.steps.push({ kind: 'opaque', ms: Math.round(performance.now() - started), packed: null });
    try {
      return await withFileContainer(this.#engine, left.at(-1) ?? below, this.#owned, (files) =>
        flattenFiles(files, labels),
      );
    } finally {
      // Their files are in the flat one; what they are configured to is not wanted by anybody.
      await removeImages(this.#engine, left);
    }
  }

  /**
   * The newest flat image of a key that is whole. Podman makes one also of what a Kernel had sent when it died, where
   * that was between two files; the last one is our Node.
   */
  async #flatThere(key: ImageKey): Promise<string | undefined> {
    const engine = this.#engine;
    const there = newest(await findImages(engine, 'flat', key, this.#node));
    if (there === undefined || (await engine.flavour()) !== 'podman') return there?.id;
    const whole = await withFileContainer(engine, there.id, this.#owned, async (files) => {
      const last = await engine.getFiles(files, insidePaths.node);
      last?.destroy();
      return last !== undefined;
    });
    if (whole) return there.id;
    await removeImages(engine, [there.id]);
    return undefined;
  }

  async packages(flat: string): Promise<string> {
    const { dependencies, log } = this.#input;
    if (dependencies === null || dependencies === undefined) return flat;
    const there = newest(await findImages(this.#engine, 'dependencies', this.#key, this.#node));
    if (there !== undefined) return there.id;
    log('adding the packages', 'dependencies');
    return this.#timed('dependencies', () =>
      withFileContainer(this.#engine, flat, this.#owned, async (id) => {
        const layer = pack();
        let packed: PackedTree | null = null;
        await this.#put(id, layer, async () => {
          packed = await dependencies.write(layer);
        });
        return { id: await this.#engine.images.commit(id, null, this.#labels('dependencies')), packed };
      }),
    );
  }

  async prepared(below: string, executor: Buffer): Promise<{ readonly reference: string; readonly digest: string }> {
    this.#input.log('adding the executor', 'executor');
    const { base, dependencies, steps } = this.#key;
    const more = [steps, dependencies].flatMap((one) => (one === null ? [] : [one.slice(0, 8)]));
    const tag = [base.replace('sha256:', '').slice(0, 12), ...more, this.#key.executor.slice(0, 12)].join('-');
    const digest = await this.#timed('executor', () =>
      withFileContainer(this.#engine, below, this.#owned, async (id) => {
        const layer = pack();
        const name = insidePaths.executor.slice(1);
        await this.#put(id, layer, () => addBytes(layer, { name, mode: 0o644, ...rootOwned }, executor));
        const labels = { ...this.#labels('prepared'), [labelKeys.executor]: this.#key.executor };
        return {
          id: await this.#engine.images.commit(id, { repository: preparedRepository, tag }, labels),
          packed: null,
        };
      }),
    );
    return { reference: `${preparedRepository}:${tag}`, digest };
  }

  /** Newest first. Never throws: the fault that led here is the one to be told. */
  async undo(): Promise<void> {
    await removeImages(this.#engine, this.#made);
  }

  /** Only as fast as the engine reads: the two go together. */
  async #put(id: string, layer: Pack, write: () => Promise<void>): Promise<void> {
    const written = write().then(
      () => layer.finalize(),
      (error: unknown) => {
        layer.destroy(error as Error);
        throw error;
      },
    );
    const putting = this.#engine.putFiles(id, Readable.from(layer), '/', patienceMs);
    const [writing] = await Promise.allSettled([written, putting]);
    // What could not be written is the cause of what could not be put.
    if (writing.status === 'rejected') throw writing.reason;
    await putting;
  }

  async #timed(
    kind: MadeStep['kind'],
    work: () => Promise<{ readonly id: string; readonly packed: PackedTree | null }>,
  ): Promise<string> {
    const started = performance.now();
    const { id, packed } = await work();
    this.#made.push(id);
    // Podman takes what has no name away with the last image that was built on it, whosever it is.
    if (kind !== 'executor' && (await this.#engine.flavour()) === 'podman') {
      await this.#engine.images.tag(id, preparedRepository, id.replace('sha256:', '').slice(0, 12));
    }
    this.steps.push({ kind, ms: Math.round(performance.now() - started), packed });
    return id;
  }

  #labels(
    image: 'flat' | 'dependencies' | 'prepared',
    steps: Sha256 | null = this.#key.steps,
  ): Readonly<Record<string, string>> {
    const { base, dependencies } = this.#key;
    const { homeId } = this.#input;
    return {
      [labelKeys.product]: productLabel,
      [labelKeys.layout]: imageLayout,
      [labelKeys.image]: image,
      [labelKeys.base]: base,
      [labelKeys.node]: this.#node,
      ...(homeId === undefined ? {} : { [labelKeys.home]: homeId }),
      ...(steps === null ? {} : { [labelKeys.steps]: steps }),
      ...(dependencies === null || image === 'flat' ? {} : { [labelKeys.dependencies]: dependencies }),
    };
  }
}

/**
 * Images of one kind that a key asks for, by labels: a name can be moved, what labels and ids say was true when the image
 * was made. `node` null: with whichever Node.
 */
export async function findImages(
  engine: ContainerEngine,
  kind: 'flat' | 'dependencies' | 'prepared',
  key: ImageKey,
  node: string | null,
): Promise<readonly ImageFacts[]> {
  const found = await engine.images.list([
    `${labelKeys.product}=${productLabel}`,
    `${labelKeys.image}=${kind}`,
    `${labelKeys.layout}=${imageLayout}`,
    `${labelKeys.base}=${key.base}`,
    ...(node === null ? [] : [`${labelKeys.node}=${node}`]),
    ...(kind === 'prepared' ? [`${labelKeys.executor}=${key.executor}`] : []),
  ]);
  const wanted = kind === 'flat' ? null : key.dependencies;
  return found.filter(
    ({ labels }) =>
      (labels[labelKeys.dependencies] ?? null) === wanted && (labels[labelKeys.steps] ?? null) === key.steps,
  );
}

/** The newest of some images, the same one each time. */
export function newest(images: readonly ImageFacts[]): ImageFacts | undefined {
  return images.toSorted((a, b) => b.created - a.created || (a.id < b.id ? -1 : 1))[0];
}

function nameOf(image: ImageFacts): string {
  return image.tags[0] ?? image.id;
}

function preparationName({ base, dependencies, steps }: ImageKey): string {
  const parts = [base.replace('sha256:', ''), steps, dependencies].flatMap((one) =>
    one === null ? [] : [one.slice(0, 12)],
  );
  return `escrow-preparation-${parts.join('-')}`;
}

/** A Node is told by its version and size: hashing 127 MB at each start would cost more than it shows. */
export async function fileIdentity(path: string, version: string): Promise<string> {
  return `${version}-${(await stat(path)).size}`;
}

/**
 * A container that is never started: a handle on an image's files. With a name it is a lock as well; one whose holder
 * died is taken away after a while.
 */
export async function withFileContainer<T>(
  engine: ContainerEngine,
  image: string,
  how: {
    /** Makes it a lock of this name. */
    readonly name?: string;
    /** Longer than this nobody holds the lock who is alive, ms. */
    readonly abandonedMs?: number;
    /** The home on whose behalf: what a dead Kernel of it left is found by this. */
    readonly owner?: string | undefined;
  },
  use: (id: string) => Promise<T>,
): Promise<T> {
  const { name, owner, abandonedMs = flatteningMs } = how;
  const deadline = performance.now() + abandonedMs + patienceMs;
  let id: string | undefined;
  while (id === undefined) {
    try {
      id = await engine.create({
        ...(name === undefined ? {} : { name }),
        Image: image,
        Cmd: ['/nonexistent'],
        Labels: {
          [labelKeys.product]: productLabel,
          [labelKeys.image]: 'preparation',
          ...(owner === undefined ? {} : { [labelKeys.owner]: owner }),
        },
        NetworkDisabled: true,
        HostConfig: { NetworkMode: 'none' },
      });
    } catch (error) {
      if (name === undefined || !EngineFault.is(error, 'conflict') || performance.now() > deadline) throw error;
      const holder = await engine.inspect(name);
      const abandoned = holder !== undefined && Date.now() - holder.createdAt > abandonedMs;
      if (abandoned && holder.labels[labelKeys.image] === 'preparation') await engine.remove(holder.id);
      else await delay(200);
    }
  }
  try {
    return await use(id);
  } finally {
    await engine.remove(id);
  }
}

async function flatten(
  engine: ContainerEngine,
  baseFiles: string,
  architecture: string,
  input: PreparationInput,
  labels: Readonly<Record<string, string>>,
): Promise<string> {
  const files = await engine.exportFiles(baseFiles);
  const flat = pack();
  const importing = engine.images.import(Readable.from(wholeOrInvalid(flat)), labels);
  try {
    await copyBase(files, flat);
    await addOurs(flat, architecture, input);
    flat.finalize();
  } catch (error) {
    flat.destroy(error as Error);
    await importing.catch(() => {});
    throw error;
  }
  return importing;
}

/**
 * An archive as it is made; one that breaks off ends with what is no header of an archive. Podman takes the end of the
 * request between two files for the end of the archive, and makes an image of it.
 */
async function* wholeOrInvalid(archive: Pack): AsyncGenerator<Uint8Array> {
  try {
    for await (const part of archive as AsyncIterable<Uint8Array>) yield part;
  } catch {
    yield Buffer.alloc(1024, 0xff);
  }
}

/** Ours instead of the base's, or made by the engine at the start. */
const replaced =
  /^(?:workspace|tmp|exchange|home\/worker|opt\/escrow|deps|node_modules|dev|proc|sys|\.dockerenv)(?:\/|$)/;

/** Copies every file but what we replace, and takes away set-id bits: no program in a sandbox may raise its rights. */
async function copyBase(files: Readable, flat: Pack): Promise<void> {
  const reader = extract();
  // The tar library's streams are compatible with Node's, their types are not.
  const reading = pipeline(files, reader as unknown as NodeJS.WritableStream);
  try {
    for await (const entry of reader as AsyncIterable<Source>) {
      const header = entry.header;
      const name = header.name.replace(/^(?:\.?\/)+/, '');
      if (name === 'etc/ld.so.preload') {
        throw new EscrowError(
          'ImageUnavailable',
          'The base image has /etc/ld.so.preload: it would put foreign code into every program, the supervisor too.',
          'Name a base image without that file in the contract.',
        );
      }
      const device = header.type === 'character-device' || header.type === 'block-device' || header.type === 'fifo';
      if (name === '' || replaced.test(name) || device) {
        entry.resume();
        continue;
      }
      await copyEntry(flat, { ...plainHeader(header), name, mode: header.mode & 0o1777 }, entry);
    }
  } catch (error) {
    reader.destroy();
    await reading.catch(() => {});
    throw error;
  }
  await reading;
}

/** Without extended attributes, which could be file capabilities. */
function plainHeader({ name, uid, gid, size, mtime, type, linkname }: FoundHeader): Header {
  return { name, uid, gid, size, mtime, type, linkname };
}

async function copyEntry(flat: Pack, header: Header, content: Source): Promise<void> {
  if (header.type === 'file' || header.type === 'contiguous-file') {
    // Iterable as Node's streams are, but not in its types.
    await addStream(flat, header, content as unknown as AsyncIterable<Uint8Array>);
    return;
  }
  content.resume();
  await addEmpty(flat, header);
}

async function addOurs(flat: Pack, architecture: string, input: PreparationInput): Promise<void> {
  const folder = (name: string, mode: number, owner = 0) =>
    addEmpty(flat, { name, mode, type: 'directory', uid: owner, gid: owner });
  await folder('workspace', 0o755);
  await folder('tmp', 0o1777);
  await folder('exchange', 0o700);
  await folder('home/worker', 0o700, workerId);
  for (const name of ['dev', 'proc', 'sys', 'opt/escrow']) await folder(name, 0o755);
  const x64 = architecture === 'amd64';
  const launcher = x64 ? launcherProgram() : Buffer.from(launcherScript);
  await addBytes(flat, { name: insidePaths.launcher.slice(1), mode: 0o755, ...rootOwned }, launcher);
  if (x64) {
    const probe = syscallProbeProgram();
    await addBytes(flat, { name: insidePaths.syscallProbe.slice(1), mode: 0o755, ...rootOwned }, probe);
  }
  const { size } = await stat(input.nodePath);
  const node = { name: insidePaths.node.slice(1), mode: 0o755, size, ...rootOwned };
  await addStream(flat, node, createReadStream(input.nodePath));
}
