import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createToolbox } from '../../src/server/agent/toolbox.ts';
import { unlimited } from '../../src/server/scope/scope-guard.ts';
import { defaultSwitches } from '../../src/server/agent/defaults.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import { Demux } from '../../src/server/sandbox/demux.ts';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { openStore } from '../../src/server/store/open-store.ts';
import type { ArtefactStore } from '../../src/server/store/port.ts';
import { frozenContract } from '../fixtures/frozen-contract.ts';
import { bytesOf, pathOf, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';
import { median, ratio, time, timed, type Figure, type Suite } from './figures.ts';

/** Each kind of call in a row, the kinds taking turns, so that a machine that grows slower does so for all of them. */
const rows = 12;
const callsInARow = 300;
/** Few: an exec takes a hundred times as long. */
const execsInARow = 4;
/** Each call alone, between others: what it costs when both processes have done something else meanwhile. */
const turns = 200;
const startSamples = 10;
const collectSamples = 9;
const mebibyte = 1024 * 1024;

/** The value below which the given share of the samples lies. Throws for none. */
function percentile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  if (value === undefined) throw new Error('a percentile of nothing');
  return value;
}

const plain = (bench: SandboxBench, argv: readonly string[]): Promise<string> =>
  bench.engine.create({
    Image: bench.image.digest,
    Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId, 'escrow.purpose': 'attempt' },
    Entrypoint: [argv[0] ?? ''],
    Cmd: argv.slice(1),
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    OpenStdin: true,
    StdinOnce: false,
    HostConfig: { NetworkMode: 'none', Init: true, LogConfig: { Type: 'none', Config: {} } },
  });

async function gone(bench: SandboxBench, id: string): Promise<void> {
  await bench.engine.kill(id);
  await bench.engine.waitUntilStopped(id, 30_000);
  await bench.engine.remove(id);
}

/** Resolves when so many bytes of output have come. */
function received(stream: Duplex, bytes: number): Promise<void> {
  return new Promise((resolve) => {
    const demux = new Demux();
    let left = bytes;
    const take = (chunk: Buffer): void => {
      for (const part of demux.push(chunk)) left -= part.bytes.length;
      if (left > 0) return;
      stream.off('data', take);
      resolve();
    };
    stream.on('data', take);
  });
}

/** A program that gives back what it is sent, over an attached stream, and what one round trip of so many bytes takes. */
async function echoOf(
  bench: SandboxBench,
  argv: readonly string[],
  line: Buffer,
): Promise<{ readonly once: () => Promise<void>; readonly end: () => Promise<void> }> {
  const id = await plain(bench, argv);
  const stream = await bench.engine.attach(id);
  await bench.engine.start(id);
  return {
    once: async () => {
      const back = received(stream, line.length);
      stream.write(line);
      await back;
    },
    end: async () => {
      stream.destroy();
      await gone(bench, id);
    },
  };
}

async function inARow(calls: number, call: () => Promise<void>): Promise<number[]> {
  const took: number[] = [];
  for (let n = 0; n < calls; n += 1) took.push(await timed(call));
  return took;
}

async function toolCalls(bench: SandboxBench): Promise<readonly Figure[]> {
  const text = '"""Usage."""\n' + 'value = 1\n'.repeat(100);
  const file = { path: pathOf('src/usage.py'), mode: 0o644, bytes: bytesOf(text) };
  const sandbox = await bench.provision({ files: [file], readable: [file.path], writable: [file.path] });
  const toolbox = createToolbox(frozenContract({ readable: ['src/usage.py'] }), defaultSwitches, sandbox, unlimited);
  const view = { tool: 'file_editor', command: 'view', path: '/workspace/src/usage.py', range: null } as const;
  const never = new AbortController().signal;
  // As long as the answer that a tool call carries: the file and its envelope.
  const line = Buffer.from(`${'x'.repeat(text.length + 400)}\n`);
  const echo = await echoOf(bench, ['/bin/cat'], line);
  const program = "process.stdin.on('data', (chunk) => process.stdout.write(chunk))";
  const nodeEcho = await echoOf(bench, ['/opt/escrow/node', '--v8-pool-size=1', '-e', program], line);
  const callTool = async (): Promise<void> => {
    const outcome = await toolbox.act(view, never);
    if (!outcome.ok) throw new Error(outcome.text);
  };
  const callExec = async (): Promise<void> => {
    const { output } = await bench.engine.exec(sandbox.engineId, ['cat', '/workspace/src/usage.py']);
    if (!(await buffer(output)).includes('Usage')) throw new Error('the exec did not read the file');
  };
  const row = { tool: [] as number[], echo: [] as number[], nodeEcho: [] as number[], exec: [] as number[] };
  // The first rows warm all of them up.
  for (let n = -2; n < rows; n += 1) {
    const took = {
      tool: await inARow(callsInARow, callTool),
      echo: await inARow(callsInARow, echo.once),
      nodeEcho: await inARow(callsInARow, nodeEcho.once),
      exec: await inARow(execsInARow, callExec),
    };
    if (n < 0) continue;
    row.tool.push(...took.tool);
    row.echo.push(...took.echo);
    row.nodeEcho.push(...took.nodeEcho);
    row.exec.push(...took.exec);
  }
  const turn = { tool: [] as number[], echo: [] as number[] };
  for (let n = 0; n < turns; n += 1) {
    turn.tool.push(await timed(callTool));
    turn.echo.push(await timed(echo.once));
    if (n % 10 === 0) await callExec();
  }
  await echo.end();
  await nodeEcho.end();
  const against = (many: readonly number[], one: readonly number[]): readonly number[] => many.map(() => median(one));
  return [
    time('tool_call_p50', row.tool),
    time('tool_call_p95', [percentile(row.tool, 0.95)]),
    time('bare_echo_p50', row.echo),
    time('bare_echo_p95', [percentile(row.echo, 0.95)]),
    time('node_echo_p50', row.nodeEcho),
    time('engine_exec_p50', row.exec),
    time('engine_exec_p95', [percentile(row.exec, 0.95)]),
    ratio('engine_exec_to_tool_call', row.exec, against(row.exec, row.tool), '> 100'),
    ratio('tool_call_to_bare_echo', row.tool, row.echo, '< 2'),
    // Of what a peer in the executor's own runtime costs before it does anything.
    ratio('tool_call_to_node_echo', row.tool, row.nodeEcho, null),
    time('tool_call_in_turns_p50', turn.tool),
    time('bare_echo_in_turns_p50', turn.echo),
    ratio('engine_exec_to_tool_call_in_turns', row.exec, against(row.exec, turn.tool), null),
    ratio('tool_call_to_bare_echo_in_turns', turn.tool, turn.echo, null),
  ];
}

async function starts(bench: SandboxBench): Promise<readonly Figure[]> {
  const file = { path: pathOf('src/a.py'), mode: 0o644, bytes: bytesOf('a = 1\n') };
  const ours: number[] = [];
  const ready: number[] = [];
  const bare: number[] = [];
  for (let n = -1; n < startSamples; n += 1) {
    let attachedAt = 0;
    const began = performance.now();
    const sandbox = await bench.service.provision(
      bench.spec({ files: [file], readable: [file.path] }),
      async (fact) => {
        if (fact.kind === 'attached') attachedAt = performance.now() - began;
      },
    );
    await sandbox.read(file.path, 'agent');
    const took = performance.now() - began;
    sandbox.detach();
    await gone(bench, sandbox.engineId);
    let id = '';
    const plainly = await timed(async () => {
      id = await plain(bench, [
        '/opt/escrow/node',
        '--v8-pool-size=1',
        '-e',
        'console.log("up"); setInterval(() => {}, 1e6)',
      ]);
      const stream = await bench.engine.attach(id);
      const up = received(stream, 3);
      await bench.engine.start(id);
      await up;
      stream.destroy();
    });
    await gone(bench, id);
    if (n < 0) continue;
    ours.push(took);
    ready.push(took - attachedAt);
    bare.push(plainly);
  }
  return [
    time('start_to_first_tool', ours),
    time('bare_start_to_first_byte', bare),
    ratio('start_to_bare_start', ours, bare, '< 1.3'),
    // What is left of a start when a container stands by with its channel open: probing, placing, reading.
    time('start_with_standby', ready),
    ratio('standby_to_start', ready, ours, '< 1'),
  ];
}

/**
 * A file as a tool without a channel reads it: the engine's exec of a `cat`, its output taken apart from stderr and put
 * together, the exit code asked for (a reader that was ended early looks like a short file), and the bytes hashed, since
 * they are going to be named by their hash.
 */
async function readByExec(bench: SandboxBench, engineId: string, path: string, size: number): Promise<void> {
  const { output, exitCode } = await bench.engine.exec(engineId, ['cat', `/workspace/${path}`]);
  const demux = new Demux();
  const bytes = Buffer.concat(demux.push(await buffer(output)).map((part) => part.bytes));
  const code = await exitCode();
  if (code !== 0 || bytes.length !== size) throw new Error(`not all was read: ${code}, ${bytes.length} bytes`);
  sha256(bytes);
}

/** A stream that gives so many bytes for each line that it is told: what attaching alone can carry. */
async function bareSource(bench: SandboxBench, bytes: number): Promise<{ id: string; stream: Duplex }> {
  const id = await plain(bench, [
    '/bin/sh',
    '-c',
    `head -c ${bytes} /dev/zero > /tmp/f; while read x; do cat /tmp/f; done`,
  ]);
  const stream = await bench.engine.attach(id);
  await bench.engine.start(id);
  return { id, stream };
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** As `timed`, without the garbage of what was measured before: a way of reading pays for its own only. */
async function timedAlone(work: () => Promise<void>): Promise<number> {
  collectGarbage();
  return timed(work);
}

async function collections(bench: SandboxBench, artefacts: ArtefactStore): Promise<readonly Figure[]> {
  const figures: Figure[] = [];
  for (const size of [1, 16, 60]) {
    const parts = Math.ceil(size / 15);
    const paths = Array.from({ length: parts }, (_, index) => pathOf(`part-${index}.bin`));
    const bytes = randomBytes((size * mebibyte) / parts);
    const ours: number[] = [];
    const byFile: number[] = [];
    const atOnce: number[] = [];
    const streamed: number[] = [];
    const source = await bareSource(bench, size * mebibyte);
    for (let n = -1; n < collectSamples; n += 1) {
      const sandbox = await bench.provision({
        files: paths.map((path) => ({ path, mode: 0o644, bytes })),
        writable: paths,
      });
      const exec = await timedAlone(async () => {
        for (const path of paths) await readByExec(bench, sandbox.engineId, path, bytes.length);
      });
      const one = await timedAlone(async () => {
        const { output } = await bench.engine.exec(sandbox.engineId, [
          'cat',
          ...paths.map((path) => `/workspace/${path}`),
        ]);
        if ((await buffer(output)).length < size * mebibyte) throw new Error('not all was read');
      });
      await sandbox.quiesce();
      // Into the store, as a Kernel collects; what makes it durable comes after any way of reading.
      const intake = artefacts.intake('session');
      const collected = await timedAlone(async () => {
        const { state, reason, files } = await sandbox.collect(intake);
        if (state !== 'complete' || files.some((file) => intake.refusal(file.sha256) !== undefined)) {
          throw new Error(reason ?? 'incomplete');
        }
      });
      intake.drop();
      const bare = await timedAlone(async () => {
        const all = received(source.stream, size * mebibyte);
        source.stream.write('\n');
        await all;
      });
      sandbox.detach();
      await gone(bench, sandbox.engineId);
      // The first round warms all of them up.
      if (n < 0) continue;
      ours.push(collected);
      byFile.push(exec);
      atOnce.push(one);
      streamed.push(bare);
    }
    source.stream.destroy();
    await gone(bench, source.id);
    const speed = (name: string, times: readonly number[]): Figure => ({
      name: `${name}_${size}MiB_MiB_per_second`,
      value: Number((size / (median(times) / 1000)).toPrecision(4)),
      unit: 'per second',
      aim: null,
      samples: times.map((ms) => size / (ms / 1000)),
    });
    figures.push(
      speed('collect', ours),
      speed('exec_read', byFile),
      speed('exec_cat', atOnce),
      speed('bare_stream', streamed),
      // Times the other way round: how many times as fast as the engine's own way.
      ratio(`collect_${size}MiB_to_exec_read`, byFile, ours, '> 2'),
      // Without the files told apart, without hashes, without an exit code: a lower bound of that way.
      ratio(`collect_${size}MiB_to_exec_cat`, atOnce, ours, null),
      // How near to what the attached stream carries when a `cat` writes to it and nobody looks at the bytes.
      ratio(`collect_${size}MiB_to_bare_stream`, streamed, ours, null),
    );
  }
  return figures;
}

async function settlements(bench: SandboxBench, artefacts: ArtefactStore): Promise<readonly Figure[]> {
  const ours: number[] = [];
  const bare: number[] = [];
  const file = { path: pathOf('src/a.py'), mode: 0o644, bytes: bytesOf('a = 1\n') };
  for (let n = -1; n < startSamples; n += 1) {
    const sandbox = await bench.provision({ files: [file], writable: [file.path] });
    const intake = artefacts.intake('session');
    const settled = await timed(async () => {
      await sandbox.quiesce();
      if ((await sandbox.collect(intake)).state !== 'complete') throw new Error('incomplete');
      sandbox.detach();
      if ((await bench.service.kill(sandbox.engineId)).kind !== 'stopped') throw new Error('not stopped');
      if ((await bench.service.remove(sandbox.engineId)).kind !== 'absent') throw new Error('not absent');
    });
    intake.drop();
    const id = await plain(bench, ['/opt/escrow/node', '-e', 'setInterval(() => {}, 1e6)']);
    await bench.engine.start(id);
    const killed = await timed(() => gone(bench, id));
    if (n < 0) continue;
    ours.push(settled);
    bare.push(killed);
  }
  return [
    time('settlement', ours),
    time('bare_kill_wait_remove', bare),
    ratio('settlement_to_bare', ours, bare, '< 1.5'),
  ];
}

async function supervisorMemory(bench: SandboxBench): Promise<readonly Figure[]> {
  const sandbox: Sandbox = await bench.provision();
  const code = `for (const p of fs.readdirSync('/proc')) if (/^\\d+$/.test(p) && +p !== process.pid) { const c = fs.readFileSync('/proc/' + p + '/cmdline', 'utf8'); if (c.includes('executor.cjs') && !c.includes('/sbin/')) { const s = fs.readFileSync('/proc/' + p + '/status', 'utf8'); console.log(/VmHWM:\\s+(\\d+)/.exec(s)[1]) } }`;
  const { output } = await bench.engine.exec(sandbox.engineId, ['/opt/escrow/node', '-e', code]);
  const demux = new Demux();
  const text = demux
    .push(await buffer(output))
    .map(({ bytes }) => bytes.toString('utf8'))
    .join('');
  const peaks = text
    .split('\n')
    .filter((line) => /^\d+$/.test(line))
    .map((line) => Number(line) / 1024);
  const peak = Math.max(...peaks);
  return [
    { name: 'supervisor_peak_memory', value: Number(peak.toPrecision(4)), unit: 'MiB', aim: null, samples: peaks },
    {
      name: 'supervisor_share_of_budget',
      value: Number((peak / 2048).toPrecision(3)),
      unit: 'ratio',
      aim: '< 0.05',
      samples: [peak / 2048],
    },
  ];
}

/**
 * Garbage is collected by force between samples. After that V8 allows the heap so little growth that 16 MiB which come
 * have it mark all of it again, this file's own data with it, in the middle of a sample. Nobody forces one in a Kernel.
 */
const roomyHeap = '--initial-heap-size=256';

export const sandboxSuite: Suite = {
  name: 'sandbox',
  nodeFlags: [roomyHeap],
  async run(say) {
    const bench = await sandboxBench();
    const home = await mkdtemp(join(tmpdir(), 'escrow-bench-'));
    const store = openStore({ home, now: Date.now });
    try {
      const figures: Figure[] = [];
      say(`tool calls against a bare echo on the stream and the engine's exec, ${rows} rows of ${callsInARow} each`);
      figures.push(...(await toolCalls(bench)));
      say(`starts against a bare start of the same image, ${startSamples} pairs`);
      figures.push(...(await starts(bench)));
      say('collections of 1, 16 and 60 MiB against an exec for each file, one for all, and the bare stream');
      figures.push(...(await collections(bench, store.artefacts)));
      say(`settlements against a bare kill, wait and remove, ${startSamples} pairs`);
      figures.push(...(await settlements(bench, store.artefacts)));
      figures.push(...(await supervisorMemory(bench)));
      return figures;
    } finally {
      store.close();
      await rm(home, { recursive: true, force: true });
      await bench.dispose();
    }
  },
};
