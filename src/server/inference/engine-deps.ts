import { EscrowError } from '../../protocol/errors.ts';
import type { WallTime } from '../../protocol/primitives.ts';
import { messageOf } from '../message-of.ts';
import { parseHost } from './host.ts';
import type { InferenceHost } from './host.ts';

/** Waits on an engine, in milliseconds. */
export interface EngineTiming {
  /** Longest pause between two lines once the answer has begun. */
  readonly stallMs: number;
  /** Longest wait for the first line: loading and reading the prompt, while the engine goes on answering probes. */
  readonly loadMs: number;
  /** Interval of the probes during that wait. */
  readonly probeMs: number;
  /** Wait for a small answer (version, list of models, what is loaded). */
  readonly answerMs: number;
  /** Wait for an engine to let go of a request that was given up, before the next one is refused. */
  readonly idleMs: number;
}

/** Big models load in minutes; 120 s without a token is far beyond any model that is of use. */
const usualTiming: EngineTiming = {
  stallMs: 120_000,
  loadMs: 600_000,
  probeMs: 2000,
  answerMs: 10_000,
  idleMs: 30_000,
};

/** What an adapter is given, whatever its wire. Waits that are not named are the usual ones. */
export interface EngineDeps extends Partial<EngineTiming> {
  readonly now: () => WallTime;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  readonly log: (
    level: 'debug' | 'info' | 'warn' | 'error',
    message: string,
    data?: Readonly<Record<string, unknown>>,
  ) => void;
}

export function timingOf(deps: Partial<EngineTiming>): EngineTiming {
  return {
    stallMs: deps.stallMs ?? usualTiming.stallMs,
    loadMs: deps.loadMs ?? usualTiming.loadMs,
    probeMs: deps.probeMs ?? usualTiming.probeMs,
    answerMs: deps.answerMs ?? usualTiming.answerMs,
    idleMs: deps.idleMs ?? usualTiming.idleMs,
  };
}

/** The host that an adapter speaks to. Throws EscrowError InferenceUnavailable where it may not be spoken to. */
export function usableHost(
  given: string,
  rules: { readonly allowRemote: boolean; readonly port: number; readonly next: string },
): InferenceHost {
  try {
    return parseHost(given, rules.allowRemote, rules.port);
  } catch (error) {
    throw new EscrowError(
      'InferenceUnavailable',
      `The inference host cannot be used: ${messageOf(error)}.`,
      rules.next,
      { host: given },
    );
  }
}

/** The refusal of a tag that is, or is named like, a model that does not run on this machine. */
export function cloudRefusal(tag: string): EscrowError {
  return new EscrowError(
    'CloudModelRefused',
    `"${tag}" is a cloud model, or is named like one: its prompts could leave this machine.`,
    'Choose a model that runs on this machine.',
    { tag },
  );
}
