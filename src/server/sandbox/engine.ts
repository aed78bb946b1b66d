import { isAbsolute } from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import Docker from 'dockerode';
import * as z from 'zod';
import { ReusedReads } from './reused-reads.ts';

/** The API that this code was written against; older engines get what they speak, newer ones are asked for this. */
const newestApi: ApiVersion = { major: 1, minor: 47 };
/** `CgroupnsMode` and everything else that we send exists since 1.41 (Docker 20.10). */
const oldestApi: ApiVersion = { major: 1, minor: 41 };

/** An engine that needs longer for a plain request hangs. Creating and removing may wait for its storage. */
const requestMs = 20_000;
const slowRequestMs = 60_000;
/** A commit reads everything that is new: thousands of files of packages. */
const commitMs = 300_000;

interface ApiVersion {
  readonly major: number;
  readonly minor: number;
}

/** A failed request to the container engine. */
export class EngineFault extends Error {
  override readonly name = 'EngineFault';
  readonly kind: 'unreachable' | 'permission' | 'timeout' | 'not-found' | 'conflict' | 'refused' | 'unsupported';
  readonly status: number | null;
  constructor(kind: EngineFault['kind'], message: string, status: number | null = null, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
    this.status = status;
  }
  static is(value: unknown, kind?: EngineFault['kind']): value is EngineFault {
    return value instanceof EngineFault && (kind === undefined || value.kind === kind);
  }
}

export type EngineAddress =
  | { readonly kind: 'socket'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

/**
 * Where the engine listens: what a machine setting names, else DOCKER_HOST, else the platform's default. A remote
 * engine is only used when the setting names it: an environment variable alone must not move work off the machine.
 * Throws EngineFault `unsupported`.
 */
export function engineAddress(
  setting: string | null,
  environment: string | undefined,
  platform: NodeJS.Platform,
): EngineAddress {
  const text = setting ?? environment ?? '';
  if (text === '') {
    return { kind: 'socket', path: platform === 'win32' ? '//./pipe/docker_engine' : '/var/run/docker.sock' };
  }
  if (isAbsolute(text)) return { kind: 'socket', path: text };
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new EngineFault('unsupported', `${text} is no address of a container engine`);
  }
  if (url.protocol === 'unix:') return { kind: 'socket', path: decodeURIComponent(url.pathname) };
  if (url.protocol === 'npipe:') return { kind: 'socket', path: text.slice('npipe://'.length) };
  if ((url.protocol === 'tcp:' || url.protocol === 'http:') && url.port !== '') {
    const loopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
    if (setting === null && !loopback) {
      throw new EngineFault(
        'unsupported',
        `${text} is on another machine; only a machine setting may name such an engine`,
      );
    }
    return { kind: 'tcp', host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) };
  }
  throw new EngineFault('unsupported', `${url.protocol} addresses of container engines are not supported`);
}

/** Two engines speak this API, and want some things otherwise. */
export type EngineFlavour = 'docker' | 'podman';

export interface EngineVersion {
  readonly flavour: EngineFlavour;
  readonly name: string;
  readonly version: string;
  readonly api: string;
  readonly architecture: string;
}

export interface EngineInfo {
  readonly cpus: number;
  readonly rootless: boolean;
  readonly memoryBytes: number;
  readonly cgroupVersion: string;
  readonly securityOptions: readonly string[];
  readonly initBinary: string;
  readonly storageRoot: string;
  readonly swapLimit: boolean;
  readonly memoryLimit: boolean;
  readonly cpuLimit: boolean;
  readonly pidsLimit: boolean;
}

export type ContainerState = 'created' | 'running' | 'paused' | 'exited' | 'dead' | 'other';

export interface InspectedContainer {
  readonly id: string;
  readonly name: string;
  readonly state: ContainerState;
  readonly running: boolean;
  readonly pid: number;
  readonly exitCode: number | null;
  readonly oomKilled: boolean;
  readonly finishedAt: string | null;
  /** Milliseconds since the Unix epoch, by the engine's clock. */
  readonly createdAt: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly environment: readonly string[];
  readonly image: string;
  readonly hostConfig: Docker.HostConfig;
  readonly mounts: number;
  readonly networks: readonly string[];
}

export interface ListedContainer {
  readonly id: string;
  readonly name: string;
  readonly state: ContainerState;
  readonly labels: Readonly<Record<string, string>>;
}

export interface ImageFacts {
  readonly id: string;
  readonly tags: readonly string[];
  readonly created: number;
  readonly size: number;
  readonly labels: Readonly<Record<string, string>>;
}

export type CreateOptions = Docker.ContainerCreateOptions;

/** Of `GET /info`; what an engine leaves out counts as not there. */
const InfoReply = z.object({
  Rootless: z.boolean().optional().catch(undefined),
  NCPU: z.number().catch(0),
  MemTotal: z.number().catch(0),
  CgroupVersion: z.string().catch(''),
  SecurityOptions: z.array(z.string()).nullish(),
  InitBinary: z.string().catch(''),
  DockerRootDir: z.string().catch(''),
  SwapLimit: z.boolean().catch(false),
  MemoryLimit: z.boolean().catch(false),
  CpuCfsQuota: z.boolean().catch(false),
  PidsLimit: z.boolean().catch(false),
});

/** Of a container that is inspected with its sizes. */
const SizedReply = z.object({ SizeRw: z.number().default(0) });

/** What engines say of a path of a container, in a header. Podman names the path itself where it is no link. */
const PathStat = z.object({ linkTarget: z.string().default('') });

/** The same engine, once for everything and once for streams that are attached to (reused-reads.ts). */
interface Clients {
  readonly plain: Docker;
  readonly attaching: Docker;
}

/** The one place that talks to a container engine. Every call has a deadline and throws EngineFault only. */
export class ContainerEngine {
  readonly #address: EngineAddress;
  readonly #reads = new ReusedReads();
  #clients: Clients | undefined;
  #flavour: EngineFlavour = 'docker';

  constructor(address: EngineAddress) {
    this.#address = address;
  }

  async version(): Promise<EngineVersion> {
    const plain = this.#connect(undefined);
    const found = await settled('version', plain.version(), requestMs);
    return {
      flavour: flavourOf(found),
      name: flavourOf(found) === 'podman' ? 'Podman' : 'Docker',
      version: found.Version,
      api: found.ApiVersion,
      architecture: found.Arch,
    };
  }

  async flavour(): Promise<EngineFlavour> {
    await this.#negotiated();
    return this.#flavour;
  }

  async info(): Promise<EngineInfo> {
    const client = await this.#negotiated();
    const found = InfoReply.parse(await settled('info', client.info(), requestMs));
    return {
      cpus: found.NCPU,
      rootless: found.Rootless ?? (found.SecurityOptions ?? []).some((text) => text.includes('name=rootless')),
      memoryBytes: found.MemTotal,
      cgroupVersion: found.CgroupVersion,
      securityOptions: found.SecurityOptions ?? [],
      initBinary: found.InitBinary,
      storageRoot: found.DockerRootDir,
      swapLimit: found.SwapLimit,
      memoryLimit: found.MemoryLimit,
      cpuLimit: found.CpuCfsQuota,
      pidsLimit: found.PidsLimit,
    };
  }

  /** Returns the engine's id of the new container. Throws `conflict` where the name is taken. */
  async create(options: CreateOptions): Promise<string> {
    const client = await this.#negotiated();
    // The client would put all of it into the address as well, which not every engine takes at this length.
    const { name, ...body } = options;
    const request = { _query: name === undefined ? {} : { name }, _body: body } as unknown as CreateOptions;
    const container = await settled('create', client.createContainer(request), slowRequestMs);
    return container.id;
  }

  async start(id: string): Promise<void> {
    const client = await this.#negotiated();
    await settled('start', client.getContainer(id).start(), slowRequestMs);
  }

  /**
   * The raw attached stream: multiplexed output to read, input to write. A chunk is valid during its `data` event only.
   * The caller owns and destroys it.
   */
  async attach(id: string): Promise<Duplex> {
    const { attaching: client } = await this.#connected();
    const attaching = client
      .getContainer(id)
      .attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true, logs: false });
    const stream = await settled('attach', attaching, requestMs, (late) => (late as Duplex).destroy());
    this.#reads.begin(stream as Duplex);
    return stream as Duplex;
  }

  /** Undefined where there is no such container. */
  async inspect(idOrName: string): Promise<InspectedContainer | undefined> {
    const client = await this.#negotiated();
    let found: Docker.ContainerInspectInfo;
    try {
      found = await settled('inspect', client.getContainer(idOrName).inspect(), requestMs);
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
    const { State: state, Config: config } = found;
    return {
      id: found.Id,
      name: found.Name.replace(/^\//, ''),
      state: stateOf(state.Status),
      running: state.Running,
      pid: state.Pid,
      exitCode: typeof state.ExitCode === 'number' ? state.ExitCode : null,
      oomKilled: state.OOMKilled,
      // Engines write the year 1 for "not yet".
      finishedAt: state.FinishedAt.startsWith('0001-') ? null : state.FinishedAt,
      createdAt: Date.parse(found.Created),
      labels: config.Labels ?? {},
      environment: config.Env ?? [],
      image: found.Image,
      hostConfig: found.HostConfig,
      mounts: found.Mounts.filter(({ Type: type }) => (type as string) !== 'tmpfs').length,
      networks: Object.keys(found.NetworkSettings.Networks ?? {}),
    };
  }

  /** Bytes of the files that a container has made or changed, links counted once, holes as if they were full. */
  async writtenBytes(id: string): Promise<number> {
    const client = await this.#negotiated();
    // The client's types know it by no name.
    const sized = { size: true } as Docker.ContainerInspectOptions;
    const found = await settled('inspect with sizes', client.getContainer(id).inspect(sized), slowRequestMs);
    // Left out where nothing was written.
    return SizedReply.parse(found).SizeRw;
  }

  async kill(id: string): Promise<void> {
    const client = await this.#negotiated();
    await settled('kill', client.getContainer(id).kill({ signal: 'SIGKILL' }), requestMs);
  }

  /** Resolves when the engine says that the container runs no more, or after `ms`. Never throws. */
  async waitUntilStopped(id: string, ms: number): Promise<void> {
    const client = await this.#negotiated();
    const controller = new AbortController();
    const waiting = client
      .getContainer(id)
      .wait({ condition: 'not-running', abortSignal: controller.signal })
      .then(
        () => undefined,
        () => undefined,
      );
    await Promise.race([waiting, delay(ms, undefined, { ref: false })]);
    controller.abort();
  }

  async remove(id: string): Promise<void> {
    const client = await this.#negotiated();
    await settled('remove', client.getContainer(id).remove({ v: true, force: false }), slowRequestMs);
  }

  async list(labels: readonly string[]): Promise<readonly ListedContainer[]> {
    const client = await this.#negotiated();
    const found = await settled(
      'list',
      client.listContainers({ all: true, filters: { label: [...labels] } }),
      slowRequestMs,
    );
    return found.map(({ Id: id, Names: names, State: state, Labels: label }) => ({
      id,
      name: (names[0] ?? id).replace(/^\//, ''),
      state: stateOf(state),
      labels: label,
    }));
  }

  /** Runs a program in a running container as root and hands out its multiplexed output; the caller destroys it. */
  async exec(
    id: string,
    argv: readonly string[],
  ): Promise<{ readonly output: Readable; readonly exitCode: () => Promise<number | null> }> {
    const client = await this.#negotiated();
    const created = await settled(
      'exec create',
      client
        .getContainer(id)
        .exec({ Cmd: [...argv], AttachStdout: true, AttachStderr: true, User: '0:0', WorkingDir: '/' }),
      requestMs,
    );
    const output = await settled('exec start', created.start({ hijack: true, stdin: false }), requestMs, (late) =>
      late.destroy(),
    );
    return {
      output,
      exitCode: async () => (await settled('exec inspect', created.inspect(), requestMs)).ExitCode ?? null,
    };
  }

  async createVolume(
    name: string,
    options: Readonly<Record<string, string>>,
    labels: Readonly<Record<string, string>>,
  ): Promise<void> {
    const client = await this.#negotiated();
    const creating = client.createVolume({
      Name: name,
      Driver: 'local',
      DriverOpts: { ...options },
      Labels: { ...labels },
    });
    await settled('volume', creating, requestMs);
  }

  async volumes(
    labels: readonly string[],
  ): Promise<readonly { readonly name: string; readonly labels: Readonly<Record<string, string>> }[]> {
    const client = await this.#negotiated();
    const found = await settled('volumes', client.listVolumes({ filters: { label: [...labels] } }), requestMs);
    return (found.Volumes ?? []).map((volume) => ({ name: volume.Name, labels: volume.Labels ?? {} }));
  }

  /** Throws `conflict` while a container uses it. */
  async removeVolume(name: string): Promise<void> {
    const client = await this.#negotiated();
    await settled('remove volume', client.getVolume(name).remove(), requestMs);
  }

  async images(labels: readonly string[]): Promise<readonly ImageFacts[]> {
    const client = await this.#negotiated();
    // All: an image without a tag that another one is built on is hidden otherwise.
    const filters = labels.length === 0 || this.#flavour === 'podman' ? {} : { filters: { label: [...labels] } };
    const listed = await settled('images', client.listImages({ all: true, ...filters }), requestMs);
    // Podman 4.3 finds nothing for several labels at once: what counts is looked at here.
    const has = (label: string, of: Readonly<Record<string, string>> | null): boolean => {
      const [key = '', ...value] = label.split('=');
      return of?.[key] === value.join('=');
    };
    const found = listed.filter((image) => labels.every((label) => has(label, image.Labels as Record<string, string>)));
    return found.map((image) => ({
      id: image.Id,
      // Engines write a name for "no name".
      tags: (image.RepoTags ?? []).filter((tag) => tag !== '<none>:<none>'),
      created: image.Created,
      size: image.Size,
      labels: (image.Labels as Record<string, string> | null) ?? {},
    }));
  }

  /** Undefined where there is no such image. */
  async inspectImage(reference: string): Promise<Docker.ImageInspectInfo | undefined> {
    const client = await this.#negotiated();
    try {
      return await settled('image inspect', client.getImage(reference).inspect(), requestMs);
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /** The whole file system of a container as a tar stream. */
  async exportFiles(id: string): Promise<Readable> {
    const client = await this.#negotiated();
    return (await settled('export', client.getContainer(id).export(), slowRequestMs)) as Readable;
  }

  /** Makes an image from a tar stream of files, with nothing but the given labels as its configuration. Returns its id. */
  async importFiles(tar: Readable, labels: Readonly<Record<string, string>>, reference?: string): Promise<string> {
    const client = await this.#negotiated();
    const changes = labelInstructions(labels);
    const progress = (await unbounded(
      'import',
      // The types know the path of a file only; the client pipes any stream.
      client.importImage(tar as unknown as string, {
        fromSrc: '-',
        changes,
        ...(reference === undefined ? {} : { repo: reference }),
      }),
    )) as unknown as Readable;
    const lines = await readText(progress);
    const id = /"status":\s*"(sha256:[0-9a-f]{64})"/.exec(lines)?.[1];
    if (id === undefined) throw new EngineFault('refused', `import: ${lines.slice(-400)}`);
    return id;
  }

  /** Fetches an image from the engine's registry. The caller has asked. An abort ends it; what came stays in the engine's cache. */
  async pull(reference: string, signal?: AbortSignal): Promise<void> {
    const client = await this.#negotiated();
    const progress = (await unbounded('pull', client.pull(reference))) as Readable;
    const stop = (): void => void progress.destroy(new Error('cancelled'));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      const error = /"error":\s*"([^"]*)"/.exec(await unbounded('pull', readText(progress)))?.[1];
      if (error !== undefined) throw new EngineFault('refused', `pull: ${error}`);
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  async tag(id: string, repo: string, tag: string): Promise<void> {
    const client = await this.#negotiated();
    await settled('tag', client.getImage(id).tag({ repo, tag }), requestMs);
  }

  /** Unpacks an archive in a container; `ms` for large ones. */
  async putFiles(id: string, tar: Readable, path: string, ms = slowRequestMs): Promise<void> {
    const client = await this.#negotiated();
    await settled('put files', client.getContainer(id).putArchive(tar, { path }), ms);
  }

  /** One path of a container as an archive: a link as itself, a folder with all in it. Undefined where there is none. */
  async getFiles(id: string, path: string): Promise<Readable | undefined> {
    const client = await this.#negotiated();
    try {
      return (await settled('get files', client.getContainer(id).getArchive({ path }), slowRequestMs, (late) =>
        (late as Readable).destroy(),
      )) as Readable;
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /**
   * Where a path of a container leads once every link in it has been followed as the container's own root would have it;
   * the path itself where there is none. Undefined where there is nothing.
   */
  async followPath(id: string, path: string): Promise<string | undefined> {
    const client = await this.#negotiated();
    try {
      const answer = (await settled(
        'stat',
        client.getContainer(id).infoArchive({ path }),
        slowRequestMs,
      )) as Readable & {
        readonly headers: Readonly<Record<string, string | undefined>>;
      };
      answer.destroy();
      const stat = Buffer.from(answer.headers['x-docker-container-path-stat'] ?? '', 'base64').toString('utf8');
      return PathStat.parse(JSON.parse(stat)).linkTarget || path;
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /** Bytes that each instruction of an image's making added, newest first; ones without a layer are 0. */
  async layerSizes(id: string): Promise<readonly number[]> {
    const client = await this.#negotiated();
    const found = (await settled('history', client.getImage(id).history(), requestMs)) as { Size: number }[];
    return found.map(({ Size: size }) => size);
  }

  /** Ids of the images that containers of this engine were made from, running or not. */
  async imagesInUse(): Promise<ReadonlySet<string>> {
    const client = await this.#negotiated();
    const found = await settled('list', client.listContainers({ all: true }), slowRequestMs);
    return new Set(found.map(({ ImageID: image }) => image));
  }

  /** Makes an image of a container's files with this configuration and no other. Returns its id. Without a name it has none. */
  async commit(
    id: string,
    name: { readonly repository: string; readonly tag: string } | null,
    labels: Readonly<Record<string, string>>,
  ): Promise<string> {
    const client = await this.#negotiated();
    const named = name === null ? {} : { repo: name.repository, tag: name.tag };
    const body = { Labels: labels, Cmd: null, Env: [], Entrypoint: null };
    // Podman 4.3 takes no configuration from the body.
    const changes = this.#flavour === 'podman' ? { changes: labelInstructions(labels).join('\n') } : {};
    const committed = (await settled(
      'commit',
      client.getContainer(id).commit({ _query: { container: id, ...named, pause: false, ...changes }, _body: body }),
      commitMs,
    )) as { Id: string };
    // Podman leaves out here what it says everywhere else.
    return committed.Id.replace(/^(?:sha256:)?/, 'sha256:');
  }

  /**
   * One that is not there any more is as good as removed. Without `exactly`, the engine takes nameless images below away
   * as well where nothing else needs them; Podman does so in any case.
   */
  async removeImage(id: string, exactly = false): Promise<void> {
    const client = await this.#negotiated();
    const how = { force: false, ...(exactly ? { noprune: true } : {}) };
    try {
      await settled('remove image', client.getImage(id).remove(how), slowRequestMs);
    } catch (error) {
      if (!EngineFault.is(error, 'not-found')) throw error;
    }
  }

  #connect(version: string | undefined, agent?: ReusedReads): Docker {
    const where =
      this.#address.kind === 'socket'
        ? { socketPath: this.#address.path }
        : { protocol: 'http' as const, host: this.#address.host, port: this.#address.port };
    return new Docker({
      ...where,
      ...(version === undefined ? {} : { version }),
      ...(agent === undefined ? {} : { agent }),
    });
  }

  /** Throws `unsupported` where the engine is too old or has dropped what we speak. */
  async #negotiated(): Promise<Docker> {
    return (await this.#connected()).plain;
  }

  async #connected(): Promise<Clients> {
    if (this.#clients !== undefined) return this.#clients;
    const plain = this.#connect(undefined);
    const found = (await settled('version', plain.version(), requestMs)) as {
      ApiVersion: string;
      MinAPIVersion?: string;
    };
    const theirs = parseApi(found.ApiVersion);
    const least = parseApi(found.MinAPIVersion ?? '1.12');
    const agreed = compareApi(theirs, newestApi) < 0 ? theirs : newestApi;
    if (compareApi(agreed, oldestApi) < 0 || compareApi(agreed, least) < 0) {
      throw new EngineFault(
        'unsupported',
        `the engine speaks API ${found.MinAPIVersion ?? '?'} to ${found.ApiVersion}, needed is ${oldestApi.major}.${oldestApi.minor} to ${newestApi.major}.${newestApi.minor}`,
      );
    }
    this.#flavour = flavourOf(found);
    const version = `v${agreed.major}.${agreed.minor}`;
    this.#clients = { plain: this.#connect(version), attaching: this.#connect(version, this.#reads) };
    return this.#clients;
  }
}

function labelInstructions(labels: Readonly<Record<string, string>>): string[] {
  return Object.entries(labels).map(([key, value]) => `LABEL ${key}=${JSON.stringify(value)}`);
}

function flavourOf(version: object): EngineFlavour {
  const { Components: parts } = version as { Components?: readonly { readonly Name?: string }[] | null };
  return parts?.some(({ Name: name }) => /podman/i.test(name ?? '')) === true ? 'podman' : 'docker';
}

function parseApi(text: string): ApiVersion {
  const [, major, minor] = /^(\d+)\.(\d+)$/.exec(text) ?? [];
  // What is no version is older than any.
  return { major: Number(major ?? 0), minor: Number(minor ?? 0) };
}

function compareApi(a: ApiVersion, b: ApiVersion): number {
  return a.major === b.major ? a.minor - b.minor : a.major - b.major;
}

function stateOf(text: string): ContainerState {
  switch (text) {
    case 'created':
    case 'running':
    case 'paused':
    case 'exited':
    case 'dead':
      return text;
    default:
      return 'other';
  }
}

/** Bounds a request by time; `late` gets a result that came after the deadline, so that it can be given back. */
async function settled<T>(what: string, request: Promise<T>, ms: number, late?: (result: T) => void): Promise<T> {
  const controller = new AbortController();
  const expired = Symbol('expired');
  try {
    const first = await Promise.race([request, delay(ms, expired, { signal: controller.signal })]);
    if (first === expired) {
      request.then(late, () => {});
      throw new EngineFault('timeout', `${what}: no answer of the container engine for ${ms / 1000} s`);
    }
    return first;
  } catch (error) {
    throw faultOf(what, error);
  } finally {
    controller.abort();
  }
}

async function unbounded<T>(what: string, request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    throw faultOf(what, error);
  }
}

function faultOf(what: string, error: unknown): EngineFault {
  if (error instanceof EngineFault) return error;
  const { code, statusCode, message } = error as { code?: string; statusCode?: number; message?: string };
  const text = `${what}: ${(message ?? String(error)).trim()}`;
  if (code === 'EACCES' || code === 'EPERM') return new EngineFault('permission', text, null, { cause: error });
  if (statusCode === undefined) return new EngineFault('unreachable', text, null, { cause: error });
  if (statusCode === 404) return new EngineFault('not-found', text, 404, { cause: error });
  if (statusCode === 409) return new EngineFault('conflict', text, 409, { cause: error });
  return new EngineFault('refused', text, statusCode, { cause: error });
}

async function readText(stream: Readable): Promise<string> {
  let text = '';
  // The engine's progress report is short; a bound keeps a lying one from filling memory.
  for await (const chunk of stream) text = `${text}${String(chunk)}`.slice(-64 * 1024);
  return text;
}
