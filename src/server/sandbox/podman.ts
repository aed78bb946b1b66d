import { readFile, writeFile, rename } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { ContainerEngine, CreateOptions, InspectedContainer } from './engine.ts';
import { sha256 } from '../../protocol/hash.ts';
import { labelKeys, type Labels } from './labels.ts';
import { tmpfsOptions, type SandboxProfile, type TmpfsLimit } from './profile.ts';
import { seccompOption } from './seccomp.ts';

/**
 * What Podman wants otherwise than Docker, measured on 4.3: the filter as a file's path; no `nr_inodes` for a tmpfs,
 * which a volume of type tmpfs does take (its size as `nr_blocks`: `size` is understood as a disk quota); and folders
 * of its own in a read-only container, `/var/tmp` writable for everybody and without a bound among them.
 */
const blockBytes = 4096;

/**
 * Podman's monitor closes a container's input when any client of its attachment goes, unless it was started with
 * `--leave-stdin-open`, which Podman never does (conmon `terminate_remote_sock`; Podman 4.3 to 5.8). Who comes second
 * could listen, but not speak, and would take the input from whoever is there when it goes.
 */
export const podmanClosesInput = 'Podman closes a container’s input when its first client goes';

/** Tmpfs volumes of one container, by its name: made before it, gone with it. */
export interface PodmanVolume {
  readonly name: string;
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Labels;
}

export interface PodmanShape {
  readonly options: CreateOptions;
  readonly volumes: readonly PodmanVolume[];
}

/** Podman's own extra folders, made harmless: one nobody can write to, one that only root can and that is bounded. */
const ownFolders = { '/var/tmp': 'ro,size=4096,mode=0755', '/run': 'rw,nosuid,nodev,noexec,size=65536,mode=0755' };

/**
 * Said, because what is not said is what the user's containers.conf makes of it (`pidns = "host"`): the supervisor ends
 * every process that it can see.
 */
const ownNamespaces = { PidMode: 'private', UTSMode: 'private' };

/**
 * What a container of any kind of ours is asked for, in Podman's words: the filter as a file's path, namespaces by name.
 */
export function podmanHost(host: CreateOptions['HostConfig'], seccompPath: string): CreateOptions['HostConfig'] {
  const security = ((host?.SecurityOpt ?? []) as string[]).map((option) =>
    option.startsWith('seccomp={') ? `seccomp=${seccompPath}` : option,
  );
  return { ...host, SecurityOpt: security, ...ownNamespaces };
}

/** The same sandbox in Podman's words. */
export function podmanShape(options: CreateOptions, profile: SandboxProfile, seccompPath: string): PodmanShape {
  const container = options.name ?? '';
  const volumes = profile.tmpfs.map((limit, index) => ({
    name: `${container}-${index}`,
    options: { type: 'tmpfs', device: 'tmpfs', o: volumeOptions(limit) },
    labels: { ...options.Labels, [labelKeys.container]: container },
  }));
  return {
    volumes,
    options: {
      ...options,
      HostConfig: {
        ...podmanHost(options.HostConfig, seccompPath),
        Tmpfs: ownFolders,
        Binds: profile.tmpfs.map((limit, index) => bindOf(limit, `${container}-${index}`)),
      },
    },
  };
}

function volumeOptions(limit: TmpfsLimit): string {
  const flags = ['nosuid', 'nodev', limit.exec ? 'exec' : 'noexec'];
  const bounds = [`nr_blocks=${limit.bytes / blockBytes}`, `nr_inodes=${limit.inodes}`];
  return [...flags, ...bounds, `mode=${limit.mode}`, `uid=${limit.owner}`, `gid=${limit.owner}`].join(',');
}

function bindOf(limit: TmpfsLimit, volume: string): string {
  return `${volume}:${limit.path}:rw,nosuid,nodev,${limit.exec ? 'exec' : 'noexec'},nocopy`;
}

/**
 * What Podman says of a container, in Docker's words, so that one comparison serves both. A statement is only
 * translated where it says the same; everything else stays as it is and counts as not in force.
 */
export async function asDockerSays(seen: InspectedContainer, profile: SandboxProfile): Promise<InspectedContainer> {
  const { hostConfig: host } = seen;
  const ours = new Map<string, string>();
  for (const [index, limit] of profile.tmpfs.entries()) {
    const wanted = bindOf(limit, `${seen.name}-${index}`);
    const found = (host.Binds ?? []).find((bind) => bind === wanted || bind.startsWith(`${wanted},`));
    if (found !== undefined) ours.set(limit.path, found);
  }
  const own = Object.keys(host.Tmpfs ?? {}).filter((path) => !(path in ownFolders));
  const security: string[] = [];
  for (const option of (host.SecurityOpt ?? []) as string[]) security.push(await securityInDockersWords(option));
  return {
    ...seen,
    // Each volume is one mount; tmpfs that we did not ask for count as foreign.
    mounts: seen.mounts - ours.size + own.length,
    hostConfig: {
      ...host,
      Binds: (host.Binds ?? []).filter((bind) => ![...ours.values()].includes(bind)),
      Tmpfs: Object.fromEntries(
        profile.tmpfs.filter(({ path }) => ours.has(path)).map((limit) => [limit.path, tmpfsOptions(limit)]),
      ),
      Ulimits: (host.Ulimits ?? []).map((limit) => ({
        ...limit,
        Name: (limit.Name ?? '').replace(/^RLIMIT_/, '').toLowerCase(),
      })),
      SecurityOpt: security,
      ...capabilitiesInDockersWords(host, profile),
      // A namespace of its own; `shareable` says that an engine's client could let another container in.
      ...(host.IpcMode === 'shareable' ? { IpcMode: 'private' } : {}),
      ...(host.PidMode === 'private' ? { PidMode: '' } : {}),
    },
  };
}

/**
 * Podman tells the difference to defaults that it does not tell. Nothing added beyond ours and something dropped: what
 * is left is then only known from inside, where the kernel says it.
 */
function capabilitiesInDockersWords(host: InspectedContainer['hostConfig'], profile: SandboxProfile): object {
  const added = ((host.CapAdd ?? []) as string[]).map((name) => name.replace(/^CAP_/, ''));
  const dropped = (host.CapDrop ?? []) as string[];
  const plausible = added.every((name) => profile.capabilities.includes(name)) && dropped.length > 0;
  return plausible ? { CapDrop: null } : {};
}

/** The filter's file is read again: its name alone proves nothing. */
async function securityInDockersWords(option: string): Promise<string> {
  const path = /^seccomp=(\/.*)$/.exec(option)?.[1];
  if (path === undefined) return option;
  const text = await readFile(path, 'utf8').catch(() => '');
  return `seccomp=${text}` === seccompOption ? seccompOption : option;
}

/** Writes a filter where Podman can read it, once; the name is its digest. Returns the path. */
export async function seccompFile(folder: string, option: string = seccompOption): Promise<string> {
  const text = option.slice('seccomp='.length);
  const path = join(folder, `seccomp-${sha256(text).slice(0, 16)}.json`);
  if ((await readFile(path, 'utf8').catch(() => '')) === text) return path;
  const beside = `${path}.${randomBytes(6).toString('hex')}`;
  // No secret, and an engine without root may be another user's.
  await writeFile(beside, text, { mode: 0o644 });
  await rename(beside, path);
  return path;
}

/** Removes this home's volumes that no container uses, except those of `making`. Never throws: what is in use stays. */
export async function sweepVolumes(
  engine: ContainerEngine,
  homeId: string,
  making: ReadonlySet<string>,
): Promise<void> {
  const found = await engine.volumes([`${labelKeys.home}=${homeId}`]).catch(() => []);
  for (const { name, labels } of found) {
    const container = labels[labelKeys.container];
    if (container === undefined || making.has(container)) continue;
    await engine.removeVolume(name).catch(() => undefined);
  }
}
