import type { InsideReport, ProcessReport } from '../../protocol/executor-answers.ts';
import { workerId } from '../../protocol/executor.ts';
import type { LimitReceipt } from '../../protocol/attempt.ts';
import type { InspectedContainer } from './engine.ts';
import { capabilityMask, cpusWithin, tmpfsOptions, type SandboxProfile, type TmpfsLimit } from './profile.ts';
import { seccompOption } from './seccomp.ts';

type Outside = Pick<InspectedContainer, 'hostConfig' | 'mounts' | 'networks'>;

/** Address families that may be opened: UNIX, IPv4, IPv6; and of netlink (16) only its routing part. */
const openFamilies = [1, 2, 10, 16];
const eperm = -1;
const enosys = -38;
/** What engines mount besides: kernel interfaces that are guarded by capabilities, read-only flags and masks. */
const kernelMounts = new Set(['proc', 'sysfs', 'devpts', 'mqueue', 'cgroup', 'cgroup2']);
/** Devices that every container has; none reaches hardware. */
const plainDevices = new Set(
  'console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero'.split(' '),
);
/** In a fresh network namespace some kernels put the end points of tunnels that are not configured. */
const idleInterfaces = /^(?:lo|tunl0|sit0|ip6tnl0|gre0|gretap0|erspan0|ip_vti0|ip6_vti0|ip6gre0)$/;
// TERM and container: Podman says what it is. None of them reaches a command.
const environmentNames = new Set(['PATH', 'UV_THREADPOOL_SIZE', 'HOME', 'LANG', 'HOSTNAME', 'TERM', 'container']);

/**
 * Compares what was wanted with what is in force, read from inside (the kernel's own words) and from outside (the
 * engine's). Where one of the two can't be read it is null and the other decides; where neither can, the limit counts as
 * not in force.
 */
export function readBack(
  profile: SandboxProfile,
  engineCpus: number,
  inside: InsideReport,
  outside: Outside,
): readonly LimitReceipt[] {
  return [
    ...resources(profile, engineCpus, inside, outside),
    ...profile.ulimits.map((limit) => ulimit(limit, inside, outside)),
    ...profile.tmpfs.map((limit) => tmpfs(limit, inside, outside)),
    ...fileSystems(inside, outside),
    ...rights(profile, inside, outside),
    ...network(inside, outside),
    ...environment(inside, outside),
  ];
}

function resources(
  profile: SandboxProfile,
  engineCpus: number,
  inside: InsideReport,
  { hostConfig }: Outside,
): LimitReceipt[] {
  const { cgroup } = inside;
  const memory = String(profile.memoryBytes);
  const cpus = cpusWithin(profile, engineCpus);
  const [quota, period] = cgroup.cpu?.split(' ').map(Number) ?? [];
  const insideCpus = quota === undefined || period === undefined ? null : String(quota / period);
  // v1 counts memory and swap together, v2 swap alone; a kernel without swap accounting is fine where there is no swap.
  const noSwap = cgroup.version === 2 ? '0' : memory;
  // Such a kernel's engine does not say what was asked for: there is nothing to be limited.
  const nothingToSwap = cgroup.memoryAndSwap === null && cgroup.hostSwap === '0';
  const swapInside = nothingToSwap ? noSwap : cgroup.memoryAndSwap;
  return [
    receipt('memory', memory, cgroup.memory, text(hostConfig.Memory)),
    receiptOf('swap', 'none', {
      inside: swapInside === null ? null : swapInside === noSwap ? 'none' : swapInside,
      outside: nothingToSwap || hostConfig.MemorySwap === hostConfig.Memory ? 'none' : text(hostConfig.MemorySwap),
    }),
    receipt('pids', String(profile.pids), cgroup.pids, text(hostConfig.PidsLimit)),
    receipt('cpus', String(cpus), insideCpus, text((hostConfig.NanoCpus ?? 0) / 1e9)),
    receipt('oom-killer', 'on', null, hostConfig.OomKillDisable === true ? 'off' : 'on'),
  ];
}

function ulimit(
  { name, shown, value }: SandboxProfile['ulimits'][number],
  inside: InsideReport,
  { hostConfig }: Outside,
): LimitReceipt {
  const both = (process: ProcessReport | null) => {
    const found = process?.ulimits[shown];
    return found === undefined ? null : found.soft === found.hard ? found.soft : `${found.soft}:${found.hard}`;
  };
  const worker = both(inside.worker);
  const supervisor = both(inside.supervisor);
  const stated = hostConfig.Ulimits?.find((limit) => limit.Name === name);
  return receipt(
    `ulimit ${name}`,
    String(value),
    worker === supervisor ? worker : `worker ${worker}, supervisor ${supervisor}`,
    stated === undefined
      ? 'not set'
      : stated.Soft === stated.Hard
        ? text(stated.Soft)
        : `${stated.Soft}:${stated.Hard}`,
  );
}

function tmpfs(limit: TmpfsLimit, inside: InsideReport, { hostConfig }: Outside): LimitReceipt {
  const wanted = `${limit.bytes} bytes, ${limit.inodes} inodes, ${limit.mode} of ${limit.owner}, nodev nosuid ${limit.exec ? 'exec' : 'noexec'}`;
  // The last mount on a folder is the one that is seen.
  const found = inside.mounts.findLast(({ target }) => target === limit.path);
  const has = (option: string) => found?.options.includes(option) === true;
  const flags = ['nodev', 'nosuid', 'noexec'].filter(has).join(' ');
  const insideText =
    found === undefined
      ? 'not mounted'
      : `${found.type === 'tmpfs' ? '' : `${found.type}, `}${found.size} bytes, ${found.inodes} inodes, ${found.mode} of ${found.owner}, ${flags}${has('noexec') ? '' : ' exec'}`;
  const stated = hostConfig.Tmpfs?.[limit.path];
  const asAsked = stated === tmpfsOptions(limit);
  return receiptOf(`tmpfs ${limit.path}`, wanted, {
    inside: insideText,
    outside: asAsked ? wanted : (stated ?? 'not stated'),
  });
}

function fileSystems(inside: InsideReport, { hostConfig, mounts }: Outside): LimitReceipt[] {
  const root = inside.mounts.findLast(({ target }) => target === '/');
  const ours = new Set(Object.keys(hostConfig.Tmpfs ?? {}));
  const others = inside.mounts.filter(
    (mount) =>
      !ours.has(mount.target) &&
      mount.target !== '/' &&
      !kernelMounts.has(mount.type) &&
      !mount.options.includes('ro') &&
      !isGuarded(mount),
  );
  const strange = inside.devices?.filter((device) => !plainDevices.has(device)) ?? null;
  return [
    receiptOf('root file system', 'read-only', {
      inside: root === undefined ? null : root.options.includes('ro') ? 'read-only' : 'writable',
      outside: hostConfig.ReadonlyRootfs === true ? 'read-only' : 'writable',
    }),
    receiptOf('other writable mounts', 'none', {
      inside: others.length === 0 ? 'none' : others.map(({ target }) => target).join(' '),
      outside: mounts === 0 && (hostConfig.Binds ?? []).length === 0 ? 'none' : `${mounts} mounts`,
    }),
    receiptOf('devices', 'none', {
      inside: strange === null ? null : strange.length === 0 ? 'none' : strange.join(' '),
      outside: ((hostConfig.Devices ?? []) as unknown[]).length === 0 ? 'none' : 'some',
    }),
  ];
}

/**
 * The engine's own small mounts: masks over kernel files, folders in which only root could write, and, where the engine
 * runs without root and so can't make devices, the plain devices of its host, one by one.
 */
function isGuarded({ target, type, mode, owner }: InsideReport['mounts'][number]): boolean {
  if (type === 'devtmpfs') {
    return plainDevices.has(target.replace(/^\/dev\//, '')) || /^\/(?:proc|sys)\//.test(target);
  }
  if (type !== 'tmpfs') return false;
  const onlyRoot = owner === 0 && mode !== null && (Number.parseInt(mode, 8) & 0o022) === 0;
  return onlyRoot || /^\/(?:proc|sys)\//.test(target);
}

function rights(profile: SandboxProfile, inside: InsideReport, { hostConfig }: Outside): LimitReceipt[] {
  const { supervisor, worker } = inside;
  const options = (hostConfig.SecurityOpt ?? []) as string[];
  const added = ((hostConfig.CapAdd ?? []) as string[])
    .map((name) => name.replace(/^CAP_/, ''))
    .toSorted()
    .join(' ');
  const dropped = ((hostConfig.CapDrop ?? []) as string[]).map((name) => name.replace(/^CAP_/, ''));
  const wanted = profile.capabilities.toSorted().join(' ');
  const none = '0'.repeat(16);
  const { effective, permitted, bounding, ambient } = supervisor.capabilities;
  const supervisorHas = effective === permitted && effective === bounding && ambient === none ? effective : 'uneven';
  const workerHas = worker === null ? null : `${worker.capabilities.effective} ${worker.capabilities.permitted}`;
  const identity = `uid and gid ${workerId}, no groups, nice 19, oom 1000`;
  const isWorker =
    worker !== null &&
    [worker.uid, worker.gid].every((ids) => ids.split(/\s+/).every((id) => id === String(workerId))) &&
    (worker.groups === '' || worker.groups === String(workerId)) &&
    worker.nice === 19 &&
    worker.oomScoreAdj === 1000;
  const filtered = (process: ProcessReport | null) => process?.seccomp === '2';
  return [
    receiptOf('capabilities of the supervisor', wanted, {
      inside: supervisorHas === capabilityMask ? wanted : supervisorHas,
      // Null: the engine does not tell what is left (Podman).
      outside: hostConfig.CapDrop === null ? null : dropped.includes('ALL') ? added : `not all dropped; ${added}`,
    }),
    receiptOf('capabilities of commands', 'none', {
      inside: workerHas === `${none} ${none}` ? 'none' : workerHas,
      outside: null,
    }),
    receiptOf('identity of commands', identity, {
      inside: isWorker ? identity : worker === null ? null : JSON.stringify({ ...worker, ulimits: undefined }),
      outside: null,
    }),
    receiptOf('supervisor survives first', 'oom 0 or less', {
      inside: supervisor.oomScoreAdj <= 0 ? 'oom 0 or less' : `oom ${supervisor.oomScoreAdj}`,
      outside: null,
    }),
    receiptOf('no new privileges', 'on', {
      inside: supervisor.noNewPrivileges && worker?.noNewPrivileges === true ? 'on' : 'off',
      outside: options.some((option) => /^no-new-privileges(?:[:=]true)?$/.test(option)) ? 'on' : 'off',
    }),
    receiptOf('seccomp', 'filter', {
      inside:
        filtered(supervisor) && filtered(worker) ? 'filter' : `modes ${supervisor.seccomp} and ${worker?.seccomp}`,
      outside: options.includes(seccompOption) ? 'filter' : 'another profile',
    }),
    systemCalls(inside),
    receiptOf('privileged', 'no', { inside: null, outside: hostConfig.Privileged === true ? 'yes' : 'no' }),
    receiptOf('process namespace', 'own', {
      inside: null,
      outside: (hostConfig.PidMode ?? '') === '' ? 'own' : 'shared',
    }),
    receiptOf('IPC namespace', 'private', { inside: null, outside: hostConfig.IpcMode ?? 'not stated' }),
    receiptOf('init', 'on', { inside: null, outside: hostConfig.Init === true ? 'on' : 'off' }),
    receiptOf('engine log', 'none', { inside: null, outside: hostConfig.LogConfig?.Type ?? 'not stated' }),
    receiptOf('restart', 'no', { inside: null, outside: hostConfig.RestartPolicy?.Name || 'no' }),
  ];
}

/** Whether the filter really refuses: null inside where the image has no probe for its architecture. */
function systemCalls({ syscalls, worker }: InsideReport): LimitReceipt {
  const wanted = 'refused: dangerous calls and every socket family but UNIX, IPv4, IPv6, routing';
  if (syscalls === null)
    return receiptOf('system calls', wanted, { inside: null, outside: null, unless: worker?.seccomp === '2' });
  const wrong = Object.entries(syscalls).filter(([name, value]) => {
    const [kind, family] = name.split(':');
    if (name === 'getpid') return value <= 0;
    if (name === 'clone3') return value !== enosys;
    if (kind !== 'socket') return value !== eperm;
    if (!openFamilies.includes(Number(family))) return value !== eperm;
    // The positive control: what is allowed works, raw sockets apart, which need a capability.
    return name.endsWith(':dgram') && value < 0;
  });
  return receiptOf('system calls', wanted, {
    inside: wrong.length === 0 ? wanted : wrong.map(([name, value]) => `${name}=${value}`).join(' '),
    outside: null,
  });
}

function network(inside: InsideReport, { hostConfig, networks }: Outside): LimitReceipt[] {
  const found = inside.interfaces?.filter((name) => !idleInterfaces.test(name)) ?? null;
  const attached = networks.filter((name) => name !== 'none');
  return [
    receiptOf('network', 'none', {
      inside: found === null ? null : found.length === 0 ? 'none' : found.join(' '),
      outside:
        hostConfig.NetworkMode === 'none' && attached.length === 0
          ? 'none'
          : `${hostConfig.NetworkMode} ${attached.join(' ')}`,
    }),
  ];
}

function environment(inside: InsideReport, _outside: Outside): LimitReceipt[] {
  const extra = inside.environment.filter((name) => !environmentNames.has(name));
  return [
    receiptOf('environment', 'the fixed list', {
      inside: extra.length === 0 ? 'the fixed list' : `also ${extra.join(' ')}`,
      outside: null,
    }),
  ];
}

function receipt(name: string, wanted: string, inside: string | null, outside: string | null): LimitReceipt {
  return receiptOf(name, wanted, { inside, outside });
}

function receiptOf(
  name: string,
  wanted: string,
  found: { readonly inside: string | null; readonly outside: string | null; readonly unless?: boolean },
): LimitReceipt {
  const { inside, outside } = found;
  const known = inside !== null || outside !== null;
  const inForce = known ? (inside ?? wanted) === wanted && (outside ?? wanted) === wanted : found.unless === true;
  return { name, wanted, inside, outside, inForce };
}

function text(value: number | null | undefined): string | null {
  return value === null || value === undefined ? null : String(value);
}
