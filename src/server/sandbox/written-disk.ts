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

/** What one look says: within the limit, or not. `free`: as the limit's. */
export type Look = { readonly kind: 'within'; readonly bytes: number; readonly free: number | null } | Excess;

/** Between two looks. An engine walks all files that are new: it is given time to do something else. */
const betweenMs = 500;
/** How long what is free on the disk may fall unnoticed; to ask for it costs a call. */
const glanceMs = 50;

/** Looks once. Throws EngineFault where the engine does not say. */
export async function lookAtWritten(engine: ContainerEngine, id: string, limit: WrittenLimit): Promise<Look> {
  const free = await limit.free();
  if (free !== null && free < limit.reserve) return { kind: 'disk', free };
  const bytes = await engine.writtenBytes(id);
  return bytes > limit.bytes ? { kind: 'written', bytes } : { kind: 'within', bytes, free };
}

/**
 * Looks at what a container writes until it is over its limit or `signal` is aborted (null). No engine that Escrow
 * supports has a quota on every file system, so this is after the fact: what was written between two looks is there. Where
 * this machine sees the disk, a look is made early once so much less is free that the limit could be passed. An engine
 * that does not answer once is asked again: what is kept is looked at when the container has stopped.
 */
export async function watchWritten(
  engine: ContainerEngine,
  id: string,
  limit: WrittenLimit,
  signal: AbortSignal,
): Promise<Excess | null> {
  while (!signal.aborted) {
    try {
      const look = await lookAtWritten(engine, id, limit);
      if (look.kind !== 'within') return look;
      await untilLess(limit, look.free === null ? null : look.free - (limit.bytes - look.bytes), signal);
    } catch (error) {
      if (!EngineFault.is(error)) throw error;
      await pause(betweenMs, signal);
    }
  }
  return null;
}

/** Waits for the next look, or until less than this is free. */
async function untilLess(limit: WrittenLimit, least: number | null, signal: AbortSignal): Promise<void> {
  for (let waited = 0; waited < betweenMs && !signal.aborted; waited += glanceMs) {
    await pause(glanceMs, signal);
    const free = least === null ? null : await limit.free();
    if (free !== null && least !== null && (free < least || free < limit.reserve)) return;
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
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
