import { open } from 'node:fs/promises';
import { watch } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { processStart, processState } from '../../protocol/process-identity.ts';
import type { KernelStatus } from '../../protocol/status.ts';
import { count, given, type Command } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { healthLines, time, type Lines } from '../format.ts';
import type { KernelAccess, KernelLink } from '../kernel-access.ts';
import { styled, type Output } from '../output.ts';
import { visibleLine } from '../visible.ts';

/** What `kernel status` and `doctor` show of the Kernel itself. */
export function statusLines(status: KernelStatus): Lines {
  return [
    [`Kernel ${status.version} · process ${status.pid} · epoch ${status.epoch} · since ${time(status.startedAt)}`],
    [`state folder ${status.home}`],
    ...(status.executionEnabled ? [] : [['execution is turned off: sessions, evidence and review can be read']]),
    ...(status.draining ? [['draining: it settles what runs, then exits']] : []),
    ...status.clients.map((client) => [`client      ${client.name} (${client.kind})`]),
    ...status.active.map((item) => [`active      ${item.what} ${item.id} · ${item.label}`]),
    ...status.queue.map((item, i) => [`queue ${i + 1}     ${item.what} ${item.id} · ${item.label}`]),
    ...status.pending.flatMap((item) => [
      [`pending     ${item.session} ${item.attempt}: waits for ${item.waitingFor}`],
      [`            looked, and it will not come: escrow session reconcile ${item.session} --why TEXT --reviewer NAME`],
    ]),
    ...status.strays.map((item) => [
      `stray       container ${item.name} carries Escrow's labels but no record knows it`,
    ]),
    ...status.salvaged.map(({ name, at, files, fault }) => [
      `salvaged    container ${name}, ${time(at)}: ${files} files kept${fault === null ? '' : `, not all: ${visibleLine(fault)}`}`,
    ]),
    ...(status.salvaged.length === 0 ? [] : [['            see what was read out with: escrow salvage']]),
  ];
}

/** The health of each part, in the order in which they depend on each other. */
/** Every finding about the container engine, each that is not well with its mend. For `doctor`. */
export function findingLines(status: KernelStatus): Lines {
  return (status.engine.findings ?? []).flatMap((finding): Lines => [
    [
      styled('dim', '            '),
      finding.ok ? styled('green', 'ok') : styled('red', 'missing'),
      ` · ${finding.code.replaceAll('_', ' ')}: ${finding.detail}`,
    ],
    ...(finding.next === '' ? [] : ([[styled('dim', '              → '), finding.next]] as Lines)),
  ]);
}

export function partsLines(status: KernelStatus): Lines {
  return [
    ...healthLines('storage', status.storage),
    ...healthLines(
      'engine',
      status.engine,
      [status.engine.name, status.engine.version].filter((part) => part !== null).join(' '),
    ),
    ...healthLines('image', status.image, status.image.digest ?? ''),
    ...healthLines(
      'inference',
      status.inference,
      [status.inference.host, status.inference.version].filter((part) => part !== null).join(' '),
    ),
  ];
}

function show(out: Output, status: KernelStatus): void {
  for (const line of [...statusLines(status), ...partsLines(status)]) out.line(...line);
  out.value(status);
}

async function running(kernel: KernelAccess): Promise<KernelLink> {
  const link = await kernel.find();
  if (link === undefined) {
    throw new EscrowError('NoKernel', 'no Kernel is running', 'Start one with: escrow kernel start', {
      home: kernel.home,
    });
  }
  return link;
}

const start: Command = {
  path: ['kernel', 'start'],
  summary: 'Start the Kernel, or find the one that runs.',
  args: '',
  options: {},
  details: ['Any command that needs the Kernel starts it; this one does nothing else. It exits by itself when idle.'],
  exits: {},
  async run({ kernel, out }) {
    const link = await kernel.connect();
    show(out, await link.call('kernel/status', {}));
    return exitCodes.ok;
  },
};

const status: Command = {
  path: ['kernel', 'status'],
  summary: 'Show the running Kernel; start none.',
  args: '',
  options: { probe: { type: 'boolean', help: 'Ask the container engine and the inference engine anew first.' } },
  details: [],
  exits: { 3: 'no Kernel is running' },
  async run(invocation) {
    const link = await running(invocation.kernel);
    show(invocation.out, await link.call(given(invocation, 'probe') ? 'kernel/probe' : 'kernel/status', {}));
    return exitCodes.ok;
  },
};

/** Milliseconds from the end of the connection to that of the process: closing the store and the log. */
const exitMs = 15_000;

/** Waits until that process is gone; nothing announces it to one who is not its parent. Throws EscrowError. */
async function untilDead(pid: number, started: string | null): Promise<void> {
  const deadline = performance.now() + exitMs;
  while ((await processState(pid, started)) === 'alive') {
    if (performance.now() > deadline) {
      throw new EscrowError(
        'KernelDraining',
        `the Kernel (process ${pid}) has not ended yet`,
        'See: escrow kernel log',
      );
    }
    await delay(20);
  }
}

const stop: Command = {
  path: ['kernel', 'stop'],
  summary: 'Stop the Kernel.',
  args: '',
  options: {
    settle: { type: 'boolean', help: 'Settle what runs first. Without it a Kernel with unsettled work refuses.' },
  },
  details: ['Returns when its process is gone.'],
  exits: { 0: 'it stopped, or none was running', 4: 'something is unsettled and --settle was not given' },
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.find();
    if (link === undefined) {
      out.line('No Kernel is running.');
      out.value({ stopped: false, running: false });
      return exitCodes.ok;
    }
    const { pid } = await link.call('kernel/status', {});
    const started = (await processStart(pid)) ?? null;
    const { stopping } = await link.call('kernel/stop', { settle: given(invocation, 'settle') });
    if (!stopping) {
      throw new EscrowError(
        'WrongState',
        'the Kernel did not stop: something is unsettled',
        'Settle it first with: escrow kernel stop --settle',
      );
    }
    await link.ended;
    await untilDead(pid, started);
    out.line(`Kernel ${pid} stopped.`);
    out.value({ stopped: true, running: false, pid });
    return exitCodes.ok;
  },
};

/** The most that is read of a log at once; older lines stay in the file. */
const tailBytes = 1_048_576;

async function tail(file: string, lines: number): Promise<{ readonly text: string[]; readonly size: number }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const from = Math.max(0, size - tailBytes);
    const buffer = Buffer.alloc(size - from);
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, from);
    const all = buffer.toString('utf8', 0, bytesRead).split('\n');
    if (from > 0) all.shift();
    if (all.at(-1) === '') all.pop();
    return { text: all.slice(-lines), size: from + bytesRead };
  } finally {
    await handle.close();
  }
}

const log: Command = {
  path: ['kernel', 'log'],
  summary: "Print the end of the Kernel's log.",
  args: '',
  options: {
    lines: { type: 'string', value: 'N', help: 'How many lines. Default: 50.' },
    follow: { type: 'boolean', help: 'Go on printing what is added, until Ctrl-C.' },
  },
  details: ['Reads the file in the state folder; needs no Kernel.'],
  exits: { 2: 'there is no log yet' },
  async run(invocation) {
    const { out, kernel } = invocation;
    const file = kernel.logFile;
    const first = await tail(file, count(invocation, 'lines') ?? 50).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') {
        throw new UsageError(`there is no log yet at ${file}`, 'A Kernel writes it: escrow kernel start');
      }
      throw error;
    });
    for (const line of first.text) out.line(line);
    if (given(invocation, 'follow')) {
      if (out.json) throw new UsageError('--follow and --json do not go together');
      await follow(file, first.size, out, invocation.interrupted);
      return exitCodes.interrupted;
    }
    out.value({ file, lines: first.text });
    return exitCodes.ok;
  },
};

async function follow(file: string, from: number, out: Output, end: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let at = from;
  let rest = '';
  let reading: Promise<void> = Promise.resolve();
  const more = async (): Promise<void> => {
    const handle = await open(file, 'r');
    try {
      const { size } = await handle.stat();
      if (size < at) at = 0;
      const buffer = Buffer.alloc(Math.min(size - at, tailBytes));
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, at);
      at += bytesRead;
      const lines = (rest + buffer.toString('utf8', 0, bytesRead)).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) out.line(line);
    } finally {
      await handle.close();
    }
  };
  const watcher = watch(file, () => {
    reading = reading.then(more).catch((error: unknown) => {
      out.note(`the log can no longer be read: ${String(error)}`);
      resolve();
    });
  });
  end.addEventListener('abort', () => resolve(), { once: true });
  if (end.aborted) resolve();
  await promise;
  watcher.close();
  await reading;
}

export const kernelCommands: readonly Command[] = [start, status, stop, log];
