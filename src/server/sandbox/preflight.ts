import type { WallTime } from '../../protocol/primitives.ts';
import { EngineFault, type ContainerEngine, type EngineInfo, type EngineVersion } from './engine.ts';
import type { EngineHealth } from './port.ts';

type Finding = EngineHealth['findings'][number];

/** Asks the engine what it is and what of our profile it can enforce. Never throws. */
export async function preflightOf(engine: ContainerEngine | EngineFault, now: () => WallTime): Promise<EngineHealth> {
  let version: EngineVersion | undefined;
  try {
    if (engine instanceof EngineFault) throw engine;
    version = await engine.version();
    const info = await engine.info();
    return healthOf(version, findingsOf(version, info), now);
  } catch (error) {
    return healthOf(version, [unreachable(error)], now);
  }
}

function healthOf(version: EngineVersion | undefined, findings: readonly Finding[], now: () => WallTime): EngineHealth {
  const bad = findings.filter(({ ok }) => !ok);
  const first = bad[0];
  return {
    health: {
      state: first === undefined ? 'ok' : version === undefined ? 'unavailable' : 'degraded',
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

function findingsOf(version: EngineVersion, info: EngineInfo): readonly Finding[] {
  const has = (option: string) => info.securityOptions.some((text) => text.includes(`name=${option}`));
  const finding = (code: string, ok: boolean, detail: string, next: string): Finding => ({
    code,
    ok,
    detail,
    next: ok ? '' : next,
  });
  return [
    finding('engine_reachable', true, `${version.name} ${version.version}, API ${version.api}`, ''),
    finding(
      'seccomp',
      has('seccomp'),
      has('seccomp') ? 'system call filters are on' : 'the engine has no system call filter',
      'Use an engine built with seccomp: its absence would leave the kernel open.',
    ),
    finding(
      'cgroup_version',
      info.cgroupVersion !== '',
      info.cgroupVersion === '' ? 'the engine does not say its cgroup version' : `cgroup v${info.cgroupVersion}`,
      'Enable control groups for the engine: without them no memory limit holds.',
    ),
    finding(
      'pids_limit',
      info.pidsLimit,
      info.pidsLimit ? 'process limits hold' : 'the engine cannot limit processes',
      'Enable the pids controller for the engine (rootless engines need it delegated).',
    ),
    finding(
      'init',
      info.initBinary !== '',
      info.initBinary === '' ? 'the engine has no init program' : `init: ${info.initBinary}`,
      'Install tini, or docker-init of your engine’s package: it reaps what commands leave behind.',
    ),
    finding(
      'rootless',
      true,
      has('rootless') ? 'the engine runs without root: limits are read back at each start' : 'the engine runs as root',
      '',
    ),
    finding(
      'memory',
      info.memoryBytes >= 3 * 1024 ** 3,
      `${Math.round(info.memoryBytes / 1024 ** 2)} MiB for the engine`,
      'A sandbox may use 2 GiB: give the engine at least 3 GiB.',
    ),
  ];
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
        next: 'Use Docker 20.10 or newer, or Podman 4.3 or newer, on this machine.',
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
