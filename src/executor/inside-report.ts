import { readdirSync, readFileSync, statfsSync, statSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { insidePaths } from '../protocol/executor.ts';
import type { InsideReport, ProcessReport } from '../protocol/executor-answers.ts';
import { cgroupReader, readText } from './cgroup.ts';
import { sweepWorkers } from './process-table.ts';
import { probeInput, probeOutput } from './syscall-probe.ts';
import { launch } from './worker-command.ts';

/** The probe makes some hundred system calls: milliseconds. */
const probeMs = 5_000;

/** Reads the cage from inside: what the kernel says about mounts, groups, limits, rights, and what it really refuses. */
export async function insideReport(): Promise<InsideReport> {
  const { worker, syscalls } = await probeAsWorker();
  const cgroup = cgroupReader();
  return {
    cgroup: {
      version: cgroup?.version ?? null,
      ...(cgroup?.limits() ?? { memory: null, memoryAndSwap: null, pids: null, cpu: null }),
      hostSwap: /^SwapTotal:\s+(\d+)/m.exec(readText('/proc/meminfo') ?? '')?.[1] ?? null,
    },
    mounts: mounts(),
    interfaces: list('/sys/class/net'),
    devices: list('/dev'),
    environment: Object.keys(process.env).toSorted(),
    supervisor: processReport('self'),
    worker,
    syscalls,
  };
}

async function probeAsWorker(): Promise<{ worker: ProcessReport | null; syscalls: Record<string, number> | null }> {
  const { child, ended } = launch({ argv: [insidePaths.syscallProbe], env: {} }, 'pipe');
  if (child?.pid === undefined) return { worker: null, syscalls: null };
  const deadline = setTimeout(() => void sweepWorkers(), probeMs);
  const output: Buffer[] = [];
  child.stdout?.on('data', (part: Buffer) => output.push(part));
  // Descriptor 3 closes with the exec: from then on it is the program itself that waits for its input.
  const marker = child.stdio[3] as Readable | null | undefined;
  if (marker !== null && marker !== undefined && !marker.closed) {
    await Promise.race([new Promise((done) => marker.once('close', done)), ended]);
  }
  let worker: ProcessReport | null = null;
  try {
    worker = processReport(String(child.pid));
  } catch {
    // It is gone already: null says so.
  }
  child.stdin?.end(probeInput());
  await ended;
  clearTimeout(deadline);
  if (child.stdout !== null && !child.stdout.closed) {
    await Promise.race([
      new Promise((done) => child.stdout?.once('close', done)),
      new Promise((done) => setTimeout(done, probeMs).unref()),
    ]);
  }
  return { worker, syscalls: probeOutput(Buffer.concat(output)) };
}

function processReport(pid: string): ProcessReport {
  const status = readFileSync(`/proc/${pid}/status`, 'latin1');
  const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? '';
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  // After the name, which may hold anything but ends with the last parenthesis: state is field 3, nice field 19.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return {
    uid: field('Uid'),
    gid: field('Gid'),
    groups: field('Groups'),
    noNewPrivileges: field('NoNewPrivs') === '1',
    seccomp: field('Seccomp'),
    capabilities: {
      effective: field('CapEff'),
      permitted: field('CapPrm'),
      bounding: field('CapBnd'),
      ambient: field('CapAmb'),
    },
    ulimits: ulimits(pid),
    oomScoreAdj: Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'latin1')),
    nice: Number(fields[16]),
  };
}

/** Rows are `Max name   soft   hard   unit`, in columns of fixed width. */
function ulimits(pid: string): Record<string, { soft: string; hard: string }> {
  const limits: Record<string, { soft: string; hard: string }> = {};
  for (const line of readFileSync(`/proc/${pid}/limits`, 'latin1').split('\n').slice(1)) {
    const match = /^Max (.{21})\s*(\S+)\s+(\S+)/.exec(line);
    const [, name, soft, hard] = match ?? [];
    if (name !== undefined && soft !== undefined && hard !== undefined) limits[name.trim()] = { soft, hard };
  }
  return limits;
}

function mounts(): InsideReport['mounts'] {
  const text = readText('/proc/self/mountinfo') ?? '';
  return text.split('\n').flatMap((line) => {
    const [before, after] = line.split(' - ');
    const target = before?.split(' ')[4];
    const options = before?.split(' ')[5]?.split(',') ?? [];
    const [type, , superOptions] = after?.split(' ') ?? [];
    if (target === undefined || type === undefined) return [];
    const own = type === 'tmpfs' ? room(target) : { size: null, inodes: null, mode: null, owner: null };
    return [{ target, type, options: [...options, ...(superOptions?.split(',') ?? [])], ...own }];
  });
}

function room(path: string): Pick<InsideReport['mounts'][number], 'size' | 'inodes' | 'mode' | 'owner'> {
  try {
    const { blocks, bsize, files } = statfsSync(path);
    const { mode, uid } = statSync(path);
    return { size: blocks * bsize, inodes: files, mode: (mode & 0o7777).toString(8), owner: uid };
  } catch {
    return { size: null, inodes: null, mode: null, owner: null };
  }
}

function list(path: string): string[] | null {
  try {
    return readdirSync(path).toSorted();
  } catch {
    return null;
  }
}
