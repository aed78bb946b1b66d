import type { WallTime } from '../../protocol/primitives.ts';
import type { ContainerEngine } from './engine.ts';
import type { EngineInfo, EngineVersion } from './engine-connection.ts';
import { EngineFault } from './engine-fault.ts';
import type { EngineHealth } from './port.ts';

type Finding = EngineHealth['findings'][number];

/** Where Podman looks for the init program of a container (its compatible API knows no other place). */
const podmanInits = [
  '/usr/libexec/podman/catatonit',
  '/usr/local/libexec/podman/catatonit',
  '/usr/lib/podman/catatonit',
];

/** Asks the engine what it is and what of our profile it can enforce. Never throws. `exists` looks at this machine. */
export async function preflightOf(
  engine: ContainerEngine | EngineFault,
  now: () => WallTime,
  exists: (path: string) => boolean,
): Promise<EngineHealth> {
  let version: EngineVersion | undefined;
  try {
    if (engine instanceof EngineFault) throw engine;
    version = await engine.version();
    const info = await engine.info();
    return healthOf(version, findingsOf(version, info, exists), now);
  } catch (error) {
    return healthOf(version, [unreachable(error)], now);
  }
}

/** Without these every attempt is refused when its limits are read back; what is left of the list only makes it narrower. */
const needed: ReadonlySet<string> = new Set(['seccomp', 'rootless', 'memory_limit', 'cpu_limit', 'pids_limit', 'init']);

/** One state out of the findings; what stops every attempt comes before what does not. Pure. */
export function healthOf(
  version: EngineVersion | undefined,
  findings: readonly Finding[],
  now: () => WallTime,
): EngineHealth {
  const bad = findings.filter(({ ok }) => !ok);
  const stopping = version === undefined ? bad[0] : bad.find(({ code }) => needed.has(code));
  const first = stopping ?? bad[0];
  return {
    health: {
      state: stopping !== undefined ? 'unavailable' : first !== undefined ? 'degraded' : 'ok',
      code: first?.code ?? null,
      detail: first?.detail ?? `${version?.name} ${version?.version}`,
      next: first?.next ?? '',
      observedAt: now(),
    },
    name: version?.name ?? null,
    version: version?.version ?? null,
    findings,
  };
}

/** What an engine says of itself, as findings, each with its mend. Pure. */
export function findingsOf(
  version: EngineVersion,
  info: EngineInfo,
  exists: (path: string) => boolean,
): readonly Finding[] {
  const finding = (code: string, ok: boolean, detail: string, next: string): Finding => ({
    code,
    ok,
    detail,
    next: ok ? '' : next,
  });
  const unified =
    'Boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1), or use an engine that runs as root.';
  const rootlessOn1 = info.rootless && info.cgroupVersion !== '2';
  const limit = (code: string, what: string, claimed: boolean): Finding => {
    // Podman 4.3 says yes to all four there, and leaves the limits out without a word.
    const ok = claimed && !rootlessOn1;
    return finding(
      code,
      ok,
      ok ? `${what} can be limited` : `the engine cannot limit ${what}`,
      rootlessOn1
        ? unified
        : info.rootless
          ? 'Delegate the controllers to your user (systemd: Delegate=yes for user@.service), or use an engine that runs as root.'
          : 'Enable this controller in the kernel’s control groups (boot option cgroup_enable=memory swapaccount=1 for memory and swap).',
    );
  };
  const seccomp = info.securityOptions.some((text) => text.includes('name=seccomp'));
  return [
    finding('engine_reachable', true, `${version.name} ${version.version}`, ''),
    finding('api_version', true, `API ${version.api}`, ''),
    finding(
      'seccomp',
      seccomp,
      seccomp ? 'system call filters are on' : 'the engine has no system call filter',
      'Use an engine built with seccomp: its absence would leave the kernel open.',
    ),
    finding(
      'cgroup_version',
      info.cgroupVersion !== '',
      info.cgroupVersion === '' ? 'the engine does not say its cgroup version' : `cgroup v${info.cgroupVersion}`,
      'Enable control groups for the engine: without them no memory limit holds.',
    ),
    finding(
      'rootless',
      !rootlessOn1,
      !info.rootless
        ? 'the engine runs as root'
        : rootlessOn1
          ? 'the engine runs without root on control groups v1: it cannot set limits'
          : 'the engine runs without root: its limits are read back at each start',
      unified,
    ),
    limit('memory_limit', 'memory', info.memoryLimit),
    limit('swap_limit', 'swap', info.swapLimit),
    limit('cpu_limit', 'processor time', info.cpuLimit),
    limit('pids_limit', 'processes', info.pidsLimit),
    initFinding(version, info, exists, finding),
    finding(
      'memory',
      info.memoryBytes >= 3 * 1024 ** 3,
      `${Math.round(info.memoryBytes / 1024 ** 2)} MiB for the engine`,
      'A sandbox may use 2 GiB: give the engine at least 3 GiB.',
    ),
  ];
}

function initFinding(
  version: EngineVersion,
  info: EngineInfo,
  exists: (path: string) => boolean,
  finding: (code: string, ok: boolean, detail: string, next: string) => Finding,
): Finding {
  if (info.initBinary !== '') return finding('init', true, `init: ${info.initBinary}`, '');
  // Podman names none; it looks in fixed places when a container is made.
  const found = version.flavour === 'podman' ? podmanInits.find(exists) : undefined;
  return finding(
    'init',
    found !== undefined,
    found === undefined ? 'the engine has no init program' : `init: ${found}`,
    version.flavour === 'podman'
      ? 'Install catatonit (apt-get install catatonit): it reaps what commands leave behind.'
      : 'Install tini, or docker-init of your engine’s package: it reaps what commands leave behind.',
  );
}

function unreachable(error: unknown): Finding {
  const detail = error instanceof Error ? error.message : String(error);
  const kind = EngineFault.is(error) ? error.kind : undefined;
  switch (kind) {
    case 'permission':
      return {
        code: 'engine_permission',
        ok: false,
        detail,
        next: 'Let your user use the container engine (for Docker on Linux: add it to the group docker and log in again).',
      };
    case 'unsupported':
      return {
        code: 'engine_unsupported',
        ok: false,
        detail,
        next: 'Use Docker 20.10 or newer, or Podman 4.3 or newer, on this machine; another machine’s engine only by escrow.engine.host.',
      };
    case 'timeout':
      return { code: 'engine_stalled', ok: false, detail, next: 'The container engine hangs: restart it.' };
    default:
      return {
        code: 'engine_not_reachable',
        ok: false,
        detail,
        next: 'Install and start Docker or Podman; npm run setup says how on this machine.',
      };
  }
}
