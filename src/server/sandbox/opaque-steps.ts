import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { EscrowError } from '../../protocol/errors.ts';
import { Demux } from './demux.ts';
import type { ContainerEngine, CreateOptions } from './engine.ts';
import { labelKeys, productLabel } from './labels.ts';
import { podmanHost, seccompFile } from './podman.ts';
import type { ImageWanted } from './port.ts';
import { seccompOption } from './seccomp.ts';

const mebibyte = 1024 * 1024;
/** Installing from a distribution's packages takes minutes; a step that needs longer hangs. */
const stepMs = 30 * 60_000;
const keptOutput = 64 * 1024;

export interface OpaqueRun {
  readonly engine: ContainerEngine;
  /** A flat image: nothing of a base's configuration takes part. */
  readonly image: string;
  readonly steps: ImageWanted['steps'];
  /** Whose container it is: a dead Kernel's is found by it. */
  readonly preparer: string;
  /** For files that the engine reads while a step runs. */
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly onStep: (index: number) => void;
}

/**
 * Runs steps one after the other as root in containers without mounts, each in what the one before left, and gives the
 * images in their order; the last has everything. It is as hostile as a base: the caller flattens it and removes them
 * all. Throws EscrowError PreparationFailed with the end of the output, Cancelled; EngineFault. Nothing of a failed run
 * stays.
 */
export async function runOpaqueSteps(run: OpaqueRun): Promise<readonly string[]> {
  const made: string[] = [];
  try {
    for (const [index, step] of run.steps.entries()) {
      run.onStep(index);
      made.push(await runStep(run, made.at(-1) ?? run.image, step));
    }
  } catch (error) {
    await removeImages(run.engine, made);
    throw error;
  }
  return made;
}

/** Newest first, as each is built on the one before. Never throws. */
export async function removeImages(engine: ContainerEngine, ids: readonly string[]): Promise<void> {
  for (const id of ids.toReversed()) await engine.removeImage(id, true).catch(() => {});
}

async function runStep(run: OpaqueRun, image: string, step: ImageWanted['steps'][number]): Promise<string> {
  const { engine, signal } = run;
  const id = await engine.create(await stepOptions(run, image, step));
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
    await engine.waitUntilStopped(id, stepMs);
    await Promise.race([closed, delay(2_000, undefined, { signal: stop.signal }).catch(() => {})]);
    const seen = await engine.inspect(id);
    if (signal.aborted) {
      throw new EscrowError('Cancelled', 'The preparation was cancelled.', 'Prepare the image again when you want it.');
    }
    if (seen === undefined || seen.running || seen.exitCode !== 0) {
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
    return await engine.commit(id, null, {
      [labelKeys.product]: productLabel,
      [labelKeys.image]: 'steps',
      [labelKeys.owner]: run.preparer,
    });
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

async function stepOptions(run: OpaqueRun, image: string, step: ImageWanted['steps'][number]): Promise<CreateOptions> {
  const [program = '', ...args] = step.argv;
  const host: CreateOptions['HostConfig'] = {
    NetworkMode: step.network ? 'default' : 'none',
    Init: true,
    LogConfig: { Type: 'none', Config: {} },
    CapDrop: ['ALL'],
    // What package managers need to put files of other owners in place.
    CapAdd: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'SETGID', 'SETUID'],
    SecurityOpt: ['no-new-privileges', seccompOption],
    IpcMode: 'private',
    Memory: 4096 * mebibyte,
    MemorySwap: 4096 * mebibyte,
    PidsLimit: 512,
    // Said, because Podman's defaults are more than it may set itself in some places, and then it starts nothing.
    Ulimits: [
      { Name: 'nofile', Soft: 4096, Hard: 4096 },
      { Name: 'nproc', Soft: 4096, Hard: 4096 },
      { Name: 'core', Soft: 0, Hard: 0 },
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
    HostConfig: podman ? podmanHost(host, await seccompFile(run.folder)) : host,
  };
}
