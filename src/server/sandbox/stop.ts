import { setTimeout as delay } from 'node:timers/promises';
import type { ContainerEngine, InspectedContainer } from './engine.ts';
import { EngineFault } from './engine-fault.ts';
import { isOurs } from './labels.ts';
import type { AbsenceObservation, StopObservation } from './port.ts';

/** A stop as the engine alone tells it. */
export type StopSeen =
  Omit<Extract<StopObservation, { kind: 'stopped' }>, 'oom'> | Exclude<StopObservation, { kind: 'stopped' }>;

/** Kill and wait take 90 ms (facts/feasibility); an engine that needs longer than this is not answering truly. */
export const confirmPatienceMs = 10_000;
const againMs = 100;

/** Who wants to know what a kill finds and does. */
export interface KillWitness {
  /** What was there before, and whether it is killed now. */
  found(before: InspectedContainer, kill: boolean): Promise<void>;
  /** The engine says that it has killed it. */
  acknowledged(before: InspectedContainer): void;
}

/**
 * Kills (no stop: a paused container would be thawed and run its handlers) and looks until it is seen stopped: not
 * running, no process, a final state. The engine's acknowledgement alone is not believed. Never throws.
 */
export async function killAndConfirm(
  engine: ContainerEngine,
  homeId: string,
  idOrName: string,
  patienceMs: number = confirmPatienceMs,
  witness?: KillWitness,
): Promise<StopSeen> {
  try {
    const before = await engine.inspect(idOrName);
    if (before === undefined) return { kind: 'absent' };
    if (!isOurs(before.labels, homeId)) return { kind: 'unconfirmed', reason: 'not ours: it was not touched' };
    const over = isStopped(before);
    await witness?.found(before, !over);
    if (over) return stopped(before);
    const deadline = performance.now() + patienceMs;
    try {
      await engine.kill(before.id);
      witness?.acknowledged(before);
      await engine.waitUntilStopped(before.id, patienceMs);
    } catch (error) {
      // 409: it stopped by itself in between. Anything else is told if it is not seen stopped all the same.
      return await lookUntilStopped(engine, before.id, deadline, error);
    }
    return await lookUntilStopped(engine, before.id, deadline);
  } catch (error) {
    return { kind: 'unconfirmed', reason: reasonOf(error) };
  }
}

async function lookUntilStopped(
  engine: ContainerEngine,
  id: string,
  deadline: number,
  refusal?: unknown,
): Promise<StopSeen> {
  for (;;) {
    const now = await engine.inspect(id);
    if (now === undefined) return { kind: 'absent' };
    if (isStopped(now)) return stopped(now);
    if (performance.now() > deadline) {
      const why = refusal === undefined ? '' : `; the kill: ${reasonOf(refusal)}`;
      return { kind: 'unconfirmed', reason: `still ${now.state}, process ${now.pid}${why}` };
    }
    await delay(againMs);
  }
}

/** Removes a stopped container of ours and reads its absence back. Never throws. */
export async function removeAndConfirm(
  engine: ContainerEngine,
  homeId: string,
  idOrName: string,
  patienceMs: number = confirmPatienceMs,
): Promise<AbsenceObservation> {
  try {
    const before = await engine.inspect(idOrName);
    if (before === undefined) return { kind: 'absent' };
    if (!isOurs(before.labels, homeId)) return { kind: 'present', reason: 'not ours: it was not touched' };
    if (!isStopped(before) && before.state !== 'created') {
      return { kind: 'present', reason: `it is ${before.state}; it has to be stopped first` };
    }
    const deadline = performance.now() + patienceMs;
    let refusal: unknown;
    for (;;) {
      try {
        await engine.remove(before.id);
      } catch (error) {
        // "Removal in progress" and the like: looked at below, tried again.
        refusal = error;
      }
      if ((await engine.inspect(before.id)) === undefined) return { kind: 'absent' };
      if (performance.now() > deadline) return { kind: 'present', reason: reasonOf(refusal) };
      await delay(againMs);
    }
  } catch (error) {
    return { kind: 'unknown', reason: reasonOf(error) };
  }
}

/** A container that was created and never started has no process either: nothing to stop. */
function isStopped(container: InspectedContainer): boolean {
  const final = container.state === 'exited' || container.state === 'dead' || container.state === 'created';
  return !container.running && container.pid === 0 && final;
}

function stopped(container: InspectedContainer): StopSeen {
  const started = container.state !== 'created';
  return {
    kind: 'stopped',
    exitCode: started ? container.exitCode : null,
    oomKilled: container.oomKilled,
    finishedAt: container.finishedAt,
  };
}

function reasonOf(error: unknown): string {
  if (EngineFault.is(error)) return `${error.kind}: ${error.message}`;
  return error instanceof Error ? error.message : 'no reason given';
}
