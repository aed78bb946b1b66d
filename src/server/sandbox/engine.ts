import type { Duplex, Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import * as z from 'zod';
import type { EngineAddress } from './engine-address.ts';
import {
  EngineConnection,
  requestMs,
  settled,
  slowRequestMs,
  type EngineFlavour,
  type EngineInfo,
  type EngineVersion,
} from './engine-connection.ts';
import { EngineFault } from './engine-fault.ts';
import { EngineImages } from './engine-images.ts';

/** An engine ends a program's output before it writes down how the program ended; under load, moments before. */
const execEndMs = 5_000;
const execLookMs = 20;

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

export type CreateOptions = Docker.ContainerCreateOptions;

/** Of a container that is inspected with its sizes. */
const SizedReply = z.object({ SizeRw: z.number().default(0) });

/** What engines say of a path of a container, in a header. Podman names the path itself where it is no link. */
const PathStat = z.object({ linkTarget: z.string().default('') });

/** The containers of one engine and their volumes; its images. Every call has a deadline and throws EngineFault only. */
export class ContainerEngine {
  readonly images: EngineImages;
  readonly #connection: EngineConnection;

  constructor(address: EngineAddress) {
    this.#connection = new EngineConnection(address);
    this.images = new EngineImages(this.#connection);
  }

  version(): Promise<EngineVersion> {
    return this.#connection.version();
  }
  flavour(): Promise<EngineFlavour> {
    return this.#connection.flavour();
  }
  info(): Promise<EngineInfo> {
    return this.#connection.info();
  }

  /** Returns the engine's id of the new container. Throws `conflict` where the name is taken. */
  async create(options: CreateOptions): Promise<string> {
    const client = await this.#connection.client();
    // The client would put all of it into the address as well, which not every engine takes at this length.
    const { name, ...body } = options;
    const request = { _query: name === undefined ? {} : { name }, _body: body } as unknown as CreateOptions;
    try {
      const container = await settled('create', client.createContainer(request), slowRequestMs);
      return container.id;
    } catch (error) {
      throw (await this.#connection.flavour()) === 'podman' ? conflictOfPodman(error) : error;
    }
  }

  async start(id: string): Promise<void> {
    const client = await this.#connection.client();
    await settled('start', client.getContainer(id).start(), slowRequestMs);
  }

  /**
   * The raw attached stream: multiplexed output to read, input to write. A chunk is valid during its `data` event only.
   * The caller owns and destroys it.
   */
  async attach(id: string): Promise<Duplex> {
    return this.#connection.attached(async (client) => {
      const attaching = client
        .getContainer(id)
        .attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true, logs: false });
      const stream = await settled('attach', attaching, requestMs, (late) => (late as Duplex).destroy());
      return stream as Duplex;
    });
  }

  /** Undefined where there is no such container. */
  async inspect(idOrName: string): Promise<InspectedContainer | undefined> {
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
    // The client's types know it by no name.
    const sized = { size: true } as Docker.ContainerInspectOptions;
    const found = await settled('inspect with sizes', client.getContainer(id).inspect(sized), slowRequestMs);
    // Left out where nothing was written.
    return SizedReply.parse(found).SizeRw;
  }

  /**
   * What the engine says happens to one container, as lines of JSON without end: from `since` on (seconds since the Unix
   * epoch by its own clock), or from now on. The caller destroys it.
   */
  async events(id: string, since: number | null): Promise<Readable> {
    const client = await this.#connection.client();
    const filters: Docker.GetEventsOptions['filters'] = { type: ['container'], container: [id] };
    const asked = client.getEvents({ filters, ...(since === null ? {} : { since }) });
    return (await settled('events', asked, requestMs, (late) => (late as Readable).destroy())) as Readable;
  }

  async kill(id: string): Promise<void> {
    const client = await this.#connection.client();
    await settled('kill', client.getContainer(id).kill({ signal: 'SIGKILL' }), requestMs);
  }

  /** Resolves when the engine says that the container runs no more, or after `ms`. Never throws. */
  async waitUntilStopped(id: string, ms: number): Promise<void> {
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
    await settled('remove', client.getContainer(id).remove({ v: true, force: false }), slowRequestMs);
  }

  async list(labels: readonly string[]): Promise<readonly ListedContainer[]> {
    const client = await this.#connection.client();
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

  /**
   * Runs a program in a running container as root and hands out its multiplexed output; the caller destroys it. Its exit
   * code is known a moment after its output is over: it is looked for until it is there, or five seconds long.
   */
  async exec(
    id: string,
    argv: readonly string[],
  ): Promise<{ readonly output: Readable; readonly exitCode: () => Promise<number | null> }> {
    const client = await this.#connection.client();
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
      exitCode: async () => {
        const deadline = performance.now() + execEndMs;
        for (;;) {
          const { Running: running, ExitCode: code } = await settled('exec inspect', created.inspect(), requestMs);
          if (!running || performance.now() > deadline) return code ?? null;
          await delay(execLookMs);
        }
      },
    };
  }

  /** The whole file system of a container as a tar stream. */
  async exportFiles(id: string): Promise<Readable> {
    const client = await this.#connection.client();
    return (await settled('export', client.getContainer(id).export(), slowRequestMs)) as Readable;
  }

  /** Unpacks an archive in a container; `ms` for large ones. */
  async putFiles(id: string, tar: Readable, path: string, ms = slowRequestMs): Promise<void> {
    const client = await this.#connection.client();
    await settled('put files', client.getContainer(id).putArchive(tar, { path }), ms);
  }

  /** One path of a container as an archive: a link as itself, a folder with all in it. Undefined where there is none. */
  async getFiles(id: string, path: string): Promise<Readable | undefined> {
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
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

  async createVolume(
    name: string,
    options: Readonly<Record<string, string>>,
    labels: Readonly<Record<string, string>>,
  ): Promise<void> {
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
    const found = await settled('volumes', client.listVolumes({ filters: { label: [...labels] } }), requestMs);
    return (found.Volumes ?? []).map((volume) => ({ name: volume.Name, labels: volume.Labels ?? {} }));
  }

  /** Throws `conflict` while a container uses it. */
  async removeVolume(name: string): Promise<void> {
    const client = await this.#connection.client();
    await settled('remove volume', client.getVolume(name).remove(), requestMs);
  }
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

/** Podman 4.3 says of a name that another request takes at this moment that it failed itself; only its words tell. */
function conflictOfPodman(error: unknown): unknown {
  const taken =
    EngineFault.is(error) && error.status === 500 && /container name .* is already in use/.test(error.message);
  return taken ? new EngineFault('conflict', error.message, error.status, { cause: error }) : error;
}
