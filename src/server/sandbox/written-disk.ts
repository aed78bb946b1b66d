import { statfs } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { ContainerEngine } from './engine.ts';
import { EngineFault } from './engine-fault.ts';

/** How much a container may write to the engine's disk. */
export interface WrittenLimit {
  /** Bytes that its own layer may hold. */
  readonly bytes: number;
  /** Bytes that must stay free on the engine's disk, also for what no listing of files shows (files that were deleted while they are open). */
  readonly reserve: number;
  /** Bytes free on the engine's disk; null where this machine does not see it. */
  readonly free: () => Promise<number | null>;
}

export type Excess =
  | { readonly kind: 'written'; readonly bytes: number }
  /** Whatever fills it: with less than the reserve nothing else on the machine is safe. */
  | { readonly kind: 'disk'; readonly free: number };

/** Between two looks. An engine walks all files that are new: it is given time to do something else. */
const betweenMs = 500;

/** Looks once. Throws EngineFault where the engine does not say. */
export async function excessOf(engine: ContainerEngine, id: string, limit: WrittenLimit): Promise<Excess | null> {
  const free = await limit.free();
  if (free !== null && free < limit.reserve) return { kind: 'disk', free };
  const bytes = await engine.writtenBytes(id);
  return bytes > limit.bytes ? { kind: 'written', bytes } : null;
}

/**
 * Looks at what a container writes until it is over its limit or `signal` is aborted (null). No engine that Escrow
 * supports has a quota on every file system, so this is after the fact: what was written between two looks is there. An
 * engine that does not answer once is asked again: what is kept is looked at when the container has stopped.
 */
export async function watchWritten(
  engine: ContainerEngine,
  id: string,
  limit: WrittenLimit,
  signal: AbortSignal,
): Promise<Excess | null> {
  while (!signal.aborted) {
    try {
      const excess = await excessOf(engine, id, limit);
      if (excess !== null) return excess;
    } catch (error) {
      if (!EngineFault.is(error)) throw error;
    }
    await delay(betweenMs, undefined, { signal }).catch(() => undefined);
  }
  return null;
}

/** Asks once where an engine keeps its files; then bytes free there, or null where that is not a folder of this machine. */
export async function engineDisk(engine: ContainerEngine): Promise<() => Promise<number | null>> {
  const { storageRoot } = await engine.info();
  return async () => {
    if (storageRoot === '') return null;
    return statfs(storageRoot).then(
      ({ bavail, bsize }) => bavail * bsize,
      () => null,
    );
  };
}
