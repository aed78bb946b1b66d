import type { ProfileName } from '../../protocol/contract.ts';
import { insidePaths } from '../../protocol/executor.ts';
import { digestOf } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { CreateOptions } from './engine.ts';
import { seccompDigest, seccompOption } from './seccomp.ts';

const mebibyte = 1024 * 1024;

export interface TmpfsLimit {
  readonly path: string;
  readonly bytes: number;
  readonly inodes: number;
  readonly exec: boolean;
  /** As the image has it: a tmpfs takes over the mode of the folder that it covers. */
  readonly mode: string;
  readonly owner: number;
}

export interface UlimitValue {
  readonly name: string;
  /** The name in /proc/<pid>/limits. */
  readonly shown: string;
  readonly value: number;
}

export interface SandboxProfile {
  readonly name: string;
  readonly memoryBytes: number;
  readonly cpus: number;
  readonly pids: number;
  readonly tmpfs: readonly TmpfsLimit[];
  readonly ulimits: readonly UlimitValue[];
  readonly capabilities: readonly string[];
}

/**
 * Design 20, profile `bounded`. Sizes and inode counts: 152 MiB writable in all, and at about 1 KiB of kernel memory an
 * inode (200,000 empty files took 200 MB) 38 MiB more at worst, all charged to the 2 GiB.
 */
export const bounded: SandboxProfile = {
  name: 'bounded',
  memoryBytes: 2048 * mebibyte,
  cpus: 2,
  pids: 128,
  tmpfs: [
    // exec: repositories bring scripts that their checks start. It belongs to root and the worker can't write to it.
    { path: insidePaths.workspace, bytes: 64 * mebibyte, inodes: 20_480, exec: true, mode: '755', owner: 0 },
    { path: insidePaths.tmp, bytes: 32 * mebibyte, inodes: 8_192, exec: false, mode: '1777', owner: 0 },
    { path: insidePaths.home, bytes: 32 * mebibyte, inodes: 8_192, exec: false, mode: '700', owner: 10_001 },
    { path: insidePaths.exchange, bytes: 16 * mebibyte, inodes: 1_024, exec: false, mode: '700', owner: 0 },
    { path: '/dev/shm', bytes: 8 * mebibyte, inodes: 1_024, exec: false, mode: '1777', owner: 0 },
  ],
  ulimits: [
    // The usual soft limit of a Linux login; the supervisor needs 32 (facts/feasibility).
    { name: 'nofile', shown: 'open files', value: 1024 },
    // Beyond every tmpfs: no sparse file can claim more.
    { name: 'fsize', shown: 'file size', value: 64 * mebibyte },
    { name: 'core', shown: 'core file size', value: 0 },
    // Kernel memory outside the cgroup's tmpfs accounting: none.
    { name: 'msgqueue', shown: 'msgqueue size', value: 0 },
    { name: 'memlock', shown: 'locked memory', value: 64 * 1024 },
    // Counted over the whole host for a uid, so it only backs up `pids`; Podman wants it stated.
    { name: 'nproc', shown: 'processes', value: 1024 },
    { name: 'sigpending', shown: 'pending signals', value: 1024 },
    // The priority of workers (nice 19) can't be taken back.
    { name: 'nice', shown: 'nice priority', value: 0 },
    { name: 'rtprio', shown: 'realtime priority', value: 0 },
  ],
  // To start workers under another uid, to end them, to give them their scratch folders. Measured to suffice.
  capabilities: ['SETUID', 'SETGID', 'KILL', 'CHOWN'],
};

/**
 * Issue 3 item 7, for repositories that don't fit `bounded`: 1,104 MiB writable in all, and at about 1 KiB of kernel
 * memory an inode 132 MiB more at worst, all charged to the 6 GiB. What it does not name is as in `bounded`.
 */
export const standard: SandboxProfile = {
  ...bounded,
  name: 'standard',
  memoryBytes: 6144 * mebibyte,
  pids: 256,
  tmpfs: [
    { path: insidePaths.workspace, bytes: 512 * mebibyte, inodes: 65_536, exec: true, mode: '755', owner: 0 },
    // exec: builds start programs that they have just made.
    { path: insidePaths.tmp, bytes: 256 * mebibyte, inodes: 32_768, exec: true, mode: '1777', owner: 0 },
    { path: insidePaths.home, bytes: 256 * mebibyte, inodes: 32_768, exec: false, mode: '700', owner: 10_001 },
    { path: insidePaths.exchange, bytes: 16 * mebibyte, inodes: 1_024, exec: false, mode: '700', owner: 0 },
    { path: '/dev/shm', bytes: 64 * mebibyte, inodes: 1_024, exec: false, mode: '1777', owner: 0 },
  ],
  ulimits: bounded.ulimits.map((limit) => (limit.name === 'fsize' ? { ...limit, value: 512 * mebibyte } : limit)),
};

/** The kernel's bits of `capabilities` (include/uapi/linux/capability.h): CHOWN 0, KILL 5, SETGID 6, SETUID 7. */
export const capabilityMask = '00000000000000e1';

const profiles: Readonly<Record<ProfileName, SandboxProfile>> = { bounded, standard };

export function profileNamed(name: ProfileName): SandboxProfile {
  return profiles[name];
}

/** Digest over every limit: a changed number is another profile. */
export function profileDigestOf(profile: SandboxProfile): Sha256 {
  return digestOf({ profile, seccomp: seccompDigest });
}

/** CPUs that can be asked for: an engine refuses more than its machine has. */
export function cpusWithin(profile: SandboxProfile, engineCpus: number): number {
  return engineCpus > 0 ? Math.min(profile.cpus, engineCpus) : profile.cpus;
}

export interface ContainerIdentity {
  readonly name: string;
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly nonce: string;
  readonly engineCpus: number;
}

export function tmpfsOptions(limit: TmpfsLimit): string {
  return [
    'rw',
    'nosuid',
    'nodev',
    limit.exec ? 'exec' : 'noexec',
    `size=${limit.bytes}`,
    `nr_inodes=${limit.inodes}`,
    // Ignored where the folder exists (facts/feasibility); for engines that heed it, it says the same as the image.
    `mode=${limit.mode}`,
    `uid=${limit.owner}`,
    `gid=${limit.owner}`,
  ].join(',');
}

/** What the engine is asked for. Every line is read back after the start (limits.ts). */
export function createOptions(profile: SandboxProfile, identity: ContainerIdentity): CreateOptions {
  return {
    name: identity.name,
    Image: identity.image,
    Labels: { ...identity.labels },
    Hostname: 'escrow',
    User: '0:0',
    WorkingDir: '/',
    Entrypoint: [insidePaths.node],
    // One worker thread and a small heap: the supervisor shares the container's pids and memory with the commands.
    Cmd: ['--v8-pool-size=1', '--max-old-space-size=256', insidePaths.executor],
    Env: [
      `ESCROW_NONCE=${identity.nonce}`,
      'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      'UV_THREADPOOL_SIZE=1',
      'HOME=/',
      'LANG=C.UTF-8',
    ],
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    OpenStdin: true,
    // The end of one client's input is not the end of the supervisor's.
    StdinOnce: false,
    Tty: false,
    StopSignal: 'SIGKILL',
    StopTimeout: 1,
    HostConfig: {
      // Not NetworkDisabled as well: engines would leave /etc/hosts empty, and tests do ask for localhost. The three files
      // that they mount are small, read-only, and these options keep the machine's own name servers out of them.
      NetworkMode: 'none',
      Dns: ['127.0.0.1'],
      DnsSearch: ['.'],
      DnsOptions: ['timeout:1', 'attempts:1'],
      Init: true,
      ReadonlyRootfs: true,
      Privileged: false,
      AutoRemove: false,
      RestartPolicy: { Name: 'no' },
      LogConfig: { Type: 'none', Config: {} },
      CapDrop: ['ALL'],
      CapAdd: [...profile.capabilities],
      SecurityOpt: ['no-new-privileges', seccompOption],
      IpcMode: 'private',
      PidsLimit: profile.pids,
      Memory: profile.memoryBytes,
      MemorySwap: profile.memoryBytes,
      OomKillDisable: false,
      NanoCpus: cpusWithin(profile, identity.engineCpus) * 1e9,
      Ulimits: profile.ulimits.map(({ name, value }) => ({ Name: name, Soft: value, Hard: value })),
      Tmpfs: Object.fromEntries(profile.tmpfs.map((limit) => [limit.path, tmpfsOptions(limit)])),
      Devices: [],
      Binds: [],
    },
  };
}
