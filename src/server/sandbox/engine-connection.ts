import { setTimeout as delay } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import Docker from 'dockerode';
import * as z from 'zod';
import type { EngineAddress } from './engine-address.ts';
import { EngineFault, faultOf } from './engine-fault.ts';
import { ReusedReads } from './reused-reads.ts';

/** The API that this code was written against; older engines get what they speak, newer ones are asked for this. */
const newestApi: ApiVersion = { major: 1, minor: 47 };
/** `CgroupnsMode` and everything else that we send exists since 1.41 (Docker 20.10). */
const oldestApi: ApiVersion = { major: 1, minor: 41 };

/** An engine that needs longer for a plain request hangs. Creating and removing may wait for its storage. */
export const requestMs = 20_000;
export const slowRequestMs = 60_000;

interface ApiVersion {
  readonly major: number;
  readonly minor: number;
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

/** The same engine, once for everything and once for streams that are attached to (reused-reads.ts). */
interface Clients {
  readonly plain: Docker;
  readonly attaching: Docker;
}

/** One engine by its address: what it is, and clients that speak the API on which both agree. Throws EngineFault only. */
export class EngineConnection {
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
    await this.client();
    return this.#flavour;
  }

  async info(): Promise<EngineInfo> {
    const client = await this.client();
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

  /** Throws `unsupported` where the engine is too old or has dropped what we speak. */
  async client(): Promise<Docker> {
    return (await this.#connected()).plain;
  }

  /** An attached stream, whose chunks are valid during their `data` event only. */
  async attached(attach: (client: Docker) => Promise<Duplex>): Promise<Duplex> {
    const stream = await attach((await this.#connected()).attaching);
    this.#reads.begin(stream);
    return stream;
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

/** Bounds a request by time; `late` gets a result that came after the deadline, so that it can be given back. */
export async function settled<T>(
  what: string,
  request: Promise<T>,
  ms: number,
  late?: (result: T) => void,
): Promise<T> {
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

/** For what lasts as long as it takes. Throws EngineFault. */
export async function unbounded<T>(what: string, request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    throw faultOf(what, error);
  }
}
