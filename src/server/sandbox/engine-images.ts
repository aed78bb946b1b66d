import type { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { requestMs, settled, slowRequestMs, unbounded, type EngineConnection } from './engine-connection.ts';
import { EngineFault } from './engine-fault.ts';

/** A commit reads everything that is new: thousands of files of packages. */
const commitMs = 300_000;
/** How often a listing is asked for at most. One in eight fails while two others make and remove images all the time. */
const mostListings = 20;

export interface ImageFacts {
  readonly id: string;
  /** Id of the image that it was built on, as the engine has it; null for one that was imported. */
  readonly parent: string | null;
  readonly tags: readonly string[];
  readonly created: number;
  readonly size: number;
  readonly labels: Readonly<Record<string, string>>;
}

/** The images of one engine. Every call but a pull and an import has a deadline; throws EngineFault only. */
export class EngineImages {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Every image; where Podman meets one that somebody removes meanwhile, it fails as a whole and is asked again. */
  async #listed(filters: object): Promise<Docker.ImageInfo[]> {
    const client = await this.#connection.client();
    const podman = (await this.#connection.flavour()) === 'podman';
    for (let n = 1; ; n += 1) {
      try {
        // All: an image without a tag that another one is built on is hidden otherwise.
        return await settled('images', client.listImages({ all: true, ...filters }), requestMs);
      } catch (error) {
        if (!podman || n === mostListings || !EngineFault.is(error) || error.status !== 500) throw error;
      }
    }
  }

  async list(labels: readonly string[]): Promise<readonly ImageFacts[]> {
    const filters =
      labels.length === 0 || (await this.#connection.flavour()) === 'podman' ? {} : { filters: { label: [...labels] } };
    const listed = await this.#listed(filters);
    // Podman 4.3 finds nothing for several labels at once: what counts is looked at here.
    const has = (label: string, of: Readonly<Record<string, string>> | null): boolean => {
      const [key = '', ...value] = label.split('=');
      return of?.[key] === value.join('=');
    };
    const found = listed.filter((image) => labels.every((label) => has(label, image.Labels as Record<string, string>)));
    return found.map((image) => ({
      id: image.Id,
      parent: image.ParentId === '' ? null : image.ParentId.replace(/^(?:sha256:)?/, 'sha256:'),
      // Engines write a name for "no name".
      tags: (image.RepoTags ?? []).filter((tag) => tag !== '<none>:<none>'),
      created: image.Created,
      size: image.Size,
      labels: (image.Labels as Record<string, string> | null) ?? {},
    }));
  }

  /** Undefined where there is no such image. */
  async inspect(reference: string): Promise<Docker.ImageInspectInfo | undefined> {
    const client = await this.#connection.client();
    try {
      return await settled('image inspect', client.getImage(reference).inspect(), requestMs);
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /** Makes an image from a tar stream of files, with nothing but the given labels as its configuration. Returns its id. */
  async import(tar: Readable, labels: Readonly<Record<string, string>>, reference?: string): Promise<string> {
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
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
    const client = await this.#connection.client();
    await settled('tag', client.getImage(id).tag({ repo, tag }), requestMs);
  }

  /**
   * Bytes that each instruction of an image's making added, newest first; ones without a layer are 0. Undefined where
   * there is no such image.
   */
  async layerSizes(id: string): Promise<readonly number[] | undefined> {
    const client = await this.#connection.client();
    try {
      const found = (await settled('history', client.getImage(id).history(), requestMs)) as { Size: number }[];
      return found.map(({ Size: size }) => size);
    } catch (error) {
      if (EngineFault.is(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /** Ids of the images that containers of this engine were made from, running or not. */
  async inUse(): Promise<ReadonlySet<string>> {
    const client = await this.#connection.client();
    const found = await settled('list', client.listContainers({ all: true }), slowRequestMs);
    return new Set(found.map(({ ImageID: image }) => image));
  }

  /** Makes an image of a container's files with this configuration and no other. Returns its id. Without a name it has none. */
  async commit(
    id: string,
    name: { readonly repository: string; readonly tag: string } | null,
    labels: Readonly<Record<string, string>>,
  ): Promise<string> {
    const client = await this.#connection.client();
    const named = name === null ? {} : { repo: name.repository, tag: name.tag };
    const body = { Labels: labels, Cmd: null, Env: [], Entrypoint: null };
    // Podman 4.3 takes no configuration from the body.
    const changes =
      (await this.#connection.flavour()) === 'podman' ? { changes: labelInstructions(labels).join('\n') } : {};
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
  async remove(id: string, exactly = false): Promise<void> {
    const client = await this.#connection.client();
    const how = { force: false, ...(exactly ? { noprune: true } : {}) };
    try {
      await settled('remove image', client.getImage(id).remove(how), slowRequestMs);
    } catch (error) {
      if (!EngineFault.is(error, 'not-found')) throw error;
    }
  }
}

function labelInstructions(labels: Readonly<Record<string, string>>): string[] {
  return Object.entries(labels).map(([key, value]) => `LABEL ${key}=${JSON.stringify(value)}`);
}

async function readText(stream: Readable): Promise<string> {
  let text = '';
  // The engine's progress report is short; a bound keeps a lying one from filling memory.
  for await (const chunk of stream) text = `${text}${String(chunk)}`.slice(-64 * 1024);
  return text;
}
