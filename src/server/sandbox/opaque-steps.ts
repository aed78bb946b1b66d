import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { Demux } from './demux.ts';
import type { ContainerEngine, CreateOptions } from './engine.ts';
import { labelKeys, productLabel } from './labels.ts';
import { podmanHost, seccompFile } from './podman.ts';
import type { ImageWanted } from './port.ts';
import { stepSeccompOption } from './seccomp.ts';
import { engineDisk, lookAtWritten, watchWritten, type Excess, type WrittenLimit } from './written-disk.ts';

const mebibyte = 1024 * 1024;
/** Installing from a distribution's packages takes minutes; a step that needs longer hangs. */
const stepMs = 30 * 60_000;
const keptOutput = 64 * 1024;
/** Left free on the engine's disk whatever a step does: enough that the engine and other programs go on. */
const freeReserve = 1024 * mebibyte;

export interface OpaqueRun {
  readonly engine: ContainerEngine;
  /** A flat image: nothing of a base's configuration takes part. */
  readonly image: string;
  readonly steps: ImageWanted['steps'];
  /** Whose container it is: a dead Kernel's is found by it. */
  readonly preparer: string;
  /** For files that the engine reads while a step runs. */
  readonly folder: string;
  /** Bytes that all steps together may leave. */
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly onStep: (index: number) => void;
}

/**
 * Runs steps one after the other as root in containers without mounts, each in what the one before left, and gives the
 * images in their order; the last has everything. It is as hostile as a base: the caller flattens it and removes them
 * all. Throws EscrowError PreparationFailed with the end of the output (`reason: 'disk'` where more was written than may
 * be), Cancelled; EngineFault. Nothing of a failed run stays.
 */
export async function runOpaqueSteps(run: OpaqueRun): Promise<readonly string[]> {
  const made: string[] = [];
  const free = await engineDisk(run.engine);
  let left = run.maxBytes;
  try {
    for (const [index, step] of run.steps.entries()) {
      run.onStep(index);
      const { id, bytes } = await runStep(run, made.at(-1) ?? run.image, step, {
        bytes: left,
        reserve: freeReserve,
        free,
      });
      made.push(id);
      left -= bytes;
    }
  } catch (error) {
    await removeImages(run.engine, made);
    throw error;
  }
  return made;
}

/** Newest first, as each is built on the one before. Never throws. */
export async function removeImages(engine: ContainerEngine, ids: readonly string[]): Promise<void> {
  for (const id of ids.toReversed()) await engine.images.remove(id, true).catch(() => {});
}

async function runStep(
  run: OpaqueRun,
  image: string,
  step: ImageWanted['steps'][number],
  limit: WrittenLimit,
): Promise<{ readonly id: string; readonly bytes: number }> {
  const { engine, signal } = run;
  const id = await engine.create(await stepOptions(run, image, step, limit.bytes));
  const stop = new AbortController();
  const kill = (): void => void engine.kill(id).catch(() => {});
  signal.addEventListener('abort', kill, { once: true });
  let stream: Duplex | undefined;
  try {
    stream = await engine.attach(id);
    const demux = new Demux();
    let output = '';
    stream.on('error', () => {});
    stream.on('data', (chunk: Buffer) => {
      for (const part of demux.push(chunk)) output = `${output}${part.bytes.toString('utf8')}`.slice(-keptOutput);
    });
    const closed = once(stream, 'close').catch(() => {});
    await engine.start(id);
    if (signal.aborted) kill();
    const watching = watchWritten(engine, id, limit, stop.signal);
    // A fault of ours in watching ends the step, too: nobody would look any more.
    void watching.then((excess) => excess !== null && kill(), kill);
    await engine.waitUntilStopped(id, stepMs);
    await Promise.race([closed, delay(2_000, undefined, { signal: stop.signal }).catch(() => {})]);
    const seen = await engine.inspect(id);
    if (signal.aborted) {
      throw new EscrowError('Cancelled', 'The preparation was cancelled.', 'Prepare the image again when you want it.');
    }
    stop.abort();
    // What is kept is looked at once nobody writes any more.
    const look = (await watching) ?? (seen === undefined ? null : await lookAtWritten(engine, id, limit));
    if (look !== null && look.kind !== 'within') throw overDisk(step.argv, look, run.maxBytes, output);
    if (look === null || seen === undefined || seen.running || seen.exitCode !== 0) {
      const how =
        seen?.running === true ? 'did not end in time' : `ended with exit code ${seen?.exitCode ?? 'unknown'}`;
      throw new EscrowError(
        'PreparationFailed',
        `The step ${step.argv.join(' ').slice(0, 200)} ${how}.`,
        step.network
          ? 'See the details for its output; whether the container engine has a network, escrow doctor says.'
          : 'See the details for its output; a step that must reach the network says "network": true.',
        { argv: [...step.argv], output: output.slice(-8192) },
      );
    }
    const made = await engine.images.commit(id, null, {
      [labelKeys.product]: productLabel,
      [labelKeys.image]: 'steps',
      [labelKeys.owner]: run.preparer,
    });
    return { id: made, bytes: look.bytes };
  } finally {
    stop.abort();
    // Whatever came of it: an engine may wait for somebody to read what it was asked to attach.
    stream?.destroy();
    signal.removeEventListener('abort', kill);
    if ((await engine.inspect(id).catch(() => undefined))?.running === true) {
      await engine.kill(id).catch(() => {});
      await engine.waitUntilStopped(id, 20_000);
    }
    await engine.remove(id);
  }
}

function overDisk(argv: readonly string[], excess: Excess, maxBytes: number, output: string): EscrowError {
  const name = `The step ${argv.join(' ').slice(0, 200)}`;
  const details = { argv: [...argv], output: output.slice(-8192), reason: 'disk' };
  return excess.kind === 'written'
    ? new EscrowError(
        'PreparationFailed',
        `${name} was ended: the steps wrote more than ${Math.round(maxBytes / 1e6)} MB.`,
        'Let the steps write less, or use a base image that has what they make.',
        { ...details, written: excess.bytes, allowed: maxBytes },
      )
    : new EscrowError(
        'PreparationFailed',
        `${name} was ended: ${Math.round(excess.free / 1e6)} MB are free on the container engine’s disk.`,
        'Free space on that disk, then prepare again.',
        { ...details, free: excess.free },
      );
}

async function stepOptions(
  run: OpaqueRun,
  image: string,
  step: ImageWanted['steps'][number],
  mayWrite: number,
): Promise<CreateOptions> {
  const [program = '', ...args] = step.argv;
  const host: CreateOptions['HostConfig'] = {
    NetworkMode: step.network ? 'default' : 'none',
    Init: true,
    LogConfig: { Type: 'none', Config: {} },
    CapDrop: ['ALL'],
    // What package managers need to put files of other owners in place.
    CapAdd: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'SETGID', 'SETUID'],
    SecurityOpt: ['no-new-privileges', stepSeccompOption],
    IpcMode: 'private',
    Memory: 4096 * mebibyte,
    MemorySwap: 4096 * mebibyte,
    PidsLimit: 512,
    // Said, because Podman's defaults are more than it may set itself in some places, and then it starts nothing.
    Ulimits: [
      { Name: 'nofile', Soft: 4096, Hard: 4096 },
      { Name: 'nproc', Soft: 4096, Hard: 4096 },
      { Name: 'core', Soft: 0, Hard: 0 },
      // No single file is much more than all of them may be; one that reaches this is over the bound, and told so.
      { Name: 'fsize', Soft: mayWrite + mebibyte, Hard: mayWrite + mebibyte },
    ],
    Binds: [],
    Devices: [],
  };
  const podman = (await run.engine.flavour()) === 'podman';
  return {
    Image: image,
    Entrypoint: [program],
    Cmd: [...args],
    User: '0:0',
    WorkingDir: '/',
    Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root', 'LANG=C.UTF-8', 'CI=1'],
    Labels: {
      [labelKeys.product]: productLabel,
      [labelKeys.image]: 'preparation',
      [labelKeys.owner]: run.preparer,
    },
    AttachStdout: true,
    AttachStderr: true,
    NetworkDisabled: !step.network,
    HostConfig: podman ? podmanHost(host, await seccompFile(run.folder, stepSeccompOption)) : host,
  };
}
