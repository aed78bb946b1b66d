import { readFile, stat } from 'node:fs/promises';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { extract, pack, type ExtractEvents, type Header as FoundHeader, type Pack } from 'tar-stream';
import { EscrowError } from '../../protocol/errors.ts';
import { insidePaths, workerId } from '../../protocol/executor.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import { EngineFault, type ContainerEngine, type ImageFacts } from './engine.ts';
import { launcherProgram, launcherScript, syscallProbeProgram } from './inside-programs.ts';
import { imageLayout, labelKeys, productLabel } from './labels.ts';

/** Preparing takes about 15 s; on a machine under load a few times that. */
const patienceMs = 300_000;
const abandonedMs = 120_000;

/** One entry of an archive that is read. */
type Source = ExtractEvents['entry'][1];
type Header = Partial<FoundHeader> & Pick<FoundHeader, 'name'>;

/** Repository under which prepared images are tagged; a tag is only a name, labels and ids count. */
export const preparedRepository = 'escrow-sandbox';

export interface PreparationInput {
  /** Reference or id of the base image, present in the engine. */
  readonly base: string;
  /** A Node binary for Linux on the engine's architecture. */
  readonly nodePath: string;
  readonly nodeVersion: string;
  readonly executorPath: string;
  readonly log: (message: string) => void;
}

export interface PreparedImage {
  readonly reference: string;
  readonly digest: string;
  readonly baseDigest: string;
  readonly executorDigest: Sha256;
  /** False where everything was there already. */
  readonly made: boolean;
}

/**
 * Makes the image that sandboxes start from: the base's files without its configuration (which could name volumes,
 * health checks, variables, an entry point), a Node, and the executor. Nothing of the base is executed. Two layers, so
 * that a new executor costs a second, not a minute. Idempotent. Throws EscrowError ImageUnavailable, EngineFault.
 */
export async function prepareImage(engine: ContainerEngine, input: PreparationInput): Promise<PreparedImage> {
  const base = await engine.inspectImage(input.base);
  if (base === undefined) {
    throw new EscrowError(
      'ImageUnavailable',
      `There is no image ${input.base}.`,
      'Run npm run setup, or pull the image yourself and try again.',
      { base: input.base },
    );
  }
  if ((base.Config.OnBuild ?? []).length > 0) {
    throw new EscrowError(
      'ImageUnavailable',
      `${input.base} has ONBUILD instructions, which would run when something is built from it.`,
      'Name a base image without ONBUILD in the contract.',
      { base: input.base },
    );
  }
  const executor = await readFile(input.executorPath);
  const executorDigest = sha256(executor);
  const nodeDigest = await fileIdentity(input.nodePath, input.nodeVersion);

  const wanted = { base: base.Id, node: nodeDigest, executor: executorDigest };
  const result = { baseDigest: base.Id, executorDigest };
  const there = await findPrepared(engine, wanted);
  if (there !== undefined) return { ...result, ...there, made: false };

  // Two windows or test runs may want the same image at once: one makes it, the other finds it afterwards.
  return withFileContainer(engine, base.Id, preparationName(base.Id), async (baseFiles) => {
    const made = await findPrepared(engine, wanted);
    if (made !== undefined) return { ...result, ...made, made: false };
    const labels = {
      [labelKeys.product]: productLabel,
      [labelKeys.layout]: imageLayout,
      [labelKeys.base]: base.Id,
      [labelKeys.node]: nodeDigest,
    };
    let flat = (await imagesOf(engine, wanted)).find(({ labels: has }) => has[labelKeys.image] === 'flat')?.id;
    if (flat === undefined) {
      input.log(`flattening ${input.base} (${Math.round(base.Size / 1e6)} MB) and adding Node ${input.nodeVersion}`);
      flat = await flatten(engine, baseFiles, base.Architecture, input, { ...labels, [labelKeys.image]: 'flat' });
    }
    input.log('adding the executor');
    const tag = `${base.Id.replace('sha256:', '').slice(0, 12)}-${executorDigest.slice(0, 12)}`;
    const digest = await withFileContainer(engine, flat, undefined, async (id) => {
      const layer = pack();
      const name = insidePaths.executor.slice(1);
      // Only as fast as the engine reads: the two go together.
      const written = addBytes(layer, { name, mode: 0o644, ...rootOwned }, executor).then(() => layer.finalize());
      await Promise.all([written, engine.putFiles(id, Readable.from(layer), '/')]);
      return engine.commit(id, preparedRepository, tag, {
        ...labels,
        [labelKeys.image]: 'prepared',
        [labelKeys.executor]: executorDigest,
      });
    });
    return { ...result, reference: `${preparedRepository}:${tag}`, digest, made: true };
  });
}

interface Wanted {
  readonly base: string;
  readonly node: string;
  readonly executor: Sha256;
}

async function imagesOf(engine: ContainerEngine, wanted: Wanted): Promise<readonly ImageFacts[]> {
  return engine.images([
    `${labelKeys.product}=${productLabel}`,
    `${labelKeys.layout}=${imageLayout}`,
    `${labelKeys.base}=${wanted.base}`,
    `${labelKeys.node}=${wanted.node}`,
  ]);
}

async function findPrepared(
  engine: ContainerEngine,
  wanted: Wanted,
): Promise<{ readonly reference: string; readonly digest: string } | undefined> {
  const found = (await imagesOf(engine, wanted)).find(
    ({ labels }) => labels[labelKeys.image] === 'prepared' && labels[labelKeys.executor] === wanted.executor,
  );
  return found === undefined ? undefined : { reference: found.tags[0] ?? found.id, digest: found.id };
}

function preparationName(baseId: string): string {
  return `escrow-preparation-${baseId.replace('sha256:', '').slice(0, 12)}`;
}

/** A Node is told by its version and size: hashing 127 MB at each start would cost more than it shows. */
async function fileIdentity(path: string, version: string): Promise<string> {
  return `${version}-${(await stat(path)).size}`;
}

/**
 * A container that is never started: a handle on an image's files. With a name it is a lock as well; one whose holder
 * died is taken away after a while.
 */
async function withFileContainer<T>(
  engine: ContainerEngine,
  image: string,
  name: string | undefined,
  use: (id: string) => Promise<T>,
): Promise<T> {
  const deadline = performance.now() + patienceMs;
  let id: string | undefined;
  while (id === undefined) {
    try {
      id = await engine.create({
        ...(name === undefined ? {} : { name }),
        Image: image,
        Cmd: ['/nonexistent'],
        Labels: { [labelKeys.product]: productLabel, [labelKeys.image]: 'preparation' },
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
  const importing = engine.importFiles(Readable.from(flat), labels);
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

const rootOwned = { uid: 0, gid: 0, uname: '', gname: '' } as const;
/** Ours instead of the base's, or made by the engine at the start. */
const replaced = /^(?:workspace|tmp|exchange|home\/worker|opt\/escrow|dev|proc|sys|\.dockerenv)(?:\/|$)/;

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

async function addStream(flat: Pack, header: Header, content: AsyncIterable<Uint8Array>): Promise<void> {
  const written = new Promise<void>((resolve, reject) => {
    const target = flat.entry(header, (error) => (error ? reject(error) : resolve()));
    void feed(target, content).catch(reject);
  });
  await written;
}

async function feed(target: ReturnType<Pack['entry']>, content: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of content) {
    if (!target.write(chunk)) await once(target as unknown as NodeJS.EventEmitter, 'drain');
  }
  target.end(null);
}

async function addBytes(flat: Pack, header: Header, bytes: Buffer): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    flat.entry({ ...header, size: bytes.length }, bytes, (error) => (error ? reject(error) : resolve()));
  });
}

async function addEmpty(flat: Pack, header: Header): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    flat.entry({ ...header, size: 0 }, (error) => (error ? reject(error) : resolve()));
  });
}
