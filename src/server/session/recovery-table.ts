import type { AttemptPhase } from '../../protocol/attempt.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { ObservedContainer } from '../sandbox/port.ts';
import { interrupted, type AttemptStage, type CandidateState, type SessionState } from './state.ts';

/**
 * How far the record of an attempt's container has come. `no_record`: it carries this home's labels and nothing is
 * recorded of it (after a restored backup, say). `salvaged`: as that, and what could be read of it is on record.
 * `cancellation_pending` counts as the phase it is blocked in.
 */
export const recordedStates = [
  'no_record',
  'salvaged',
  'before_settlement',
  'quiescing',
  'collecting',
  'stopping',
  'releasing',
  'settled',
] as const;
export type RecordedState = (typeof recordedStates)[number];

/** What the container engine says of the container, looked up by engine id, else by name, among our own. */
export const engineStates = ['no_answer', 'absent', 'created', 'running', 'paused', 'stopped', 'unclear'] as const;
export type EngineState = (typeof engineStates)[number];

export const recoveryActions = [
  /** Begin settlement: the agent is never run again. */
  'settle',
  /** End the worker processes through the channel, taking it up again first. */
  'quiesce',
  /** Nothing runs in it: say so and go on. */
  'note_quiet',
  /** Not known to be quiet and not reachable: say so and go on. */
  'note_not_quiet',
  /** Read the bytes out, by the channel, else by the fixed reader. */
  'collect',
  /** Its memory is gone, or never was: record that nothing was collected. */
  'note_no_bytes',
  /** Kill, then look until it is seen stopped. */
  'stop',
  /** It is seen not there. */
  'note_absent',
  /** Remove, then look until it is seen absent. */
  'remove',
  /** Somebody started it again: stop it first. */
  'stop_and_remove',
  /** Nothing can be said: look again later (`cancellation_pending`). */
  'wait',
  /** A leftover that has nothing to give any more, ours by labels and identity: stop and remove it, and record that. */
  'sweep',
  /** Ours, and nothing is recorded of it: read out what was written in it, keep and record that; then it is swept. */
  'salvage',
  /** Listed as a stray; not touched. */
  'report',
  'nothing',
] as const;
export type RecoveryAction = (typeof recoveryActions)[number];

/**
 * Recorded state × engine state → the one action. The same table serves a live Kernel that carries a settlement out
 * and a restarted one that takes it over; docs/lifecycle.md shows it, a test keeps the two equal.
 */
export const recoveryTable: Readonly<Record<RecordedState, Readonly<Record<EngineState, RecoveryAction>>>> = {
  no_record: {
    no_answer: 'nothing',
    absent: 'nothing',
    // Nothing was ever in it.
    created: 'sweep',
    running: 'salvage',
    // Nobody inside can answer while it is frozen: tried for a while, in case somebody lets it go on.
    paused: 'salvage',
    // What it held was memory.
    stopped: 'sweep',
    unclear: 'report',
  },
  salvaged: {
    no_answer: 'nothing',
    absent: 'nothing',
    created: 'sweep',
    running: 'sweep',
    paused: 'sweep',
    stopped: 'sweep',
    unclear: 'sweep',
  },
  before_settlement: {
    no_answer: 'settle',
    absent: 'settle',
    created: 'settle',
    running: 'settle',
    paused: 'settle',
    stopped: 'settle',
    unclear: 'settle',
  },
  quiescing: {
    no_answer: 'wait',
    absent: 'note_quiet',
    created: 'note_quiet',
    running: 'quiesce',
    // Frozen from outside: its processes exist and nothing inside can answer.
    paused: 'note_not_quiet',
    stopped: 'note_quiet',
    unclear: 'wait',
  },
  collecting: {
    no_answer: 'wait',
    absent: 'note_no_bytes',
    created: 'note_no_bytes',
    running: 'collect',
    paused: 'note_no_bytes',
    // The workspace is memory of the container: gone with its processes.
    stopped: 'note_no_bytes',
    unclear: 'wait',
  },
  stopping: {
    no_answer: 'wait',
    absent: 'note_absent',
    created: 'stop',
    running: 'stop',
    paused: 'stop',
    stopped: 'stop',
    unclear: 'stop',
  },
  releasing: {
    no_answer: 'wait',
    absent: 'note_absent',
    created: 'remove',
    running: 'stop_and_remove',
    paused: 'stop_and_remove',
    stopped: 'remove',
    unclear: 'stop_and_remove',
  },
  settled: {
    no_answer: 'nothing',
    absent: 'nothing',
    created: 'sweep',
    running: 'sweep',
    paused: 'sweep',
    stopped: 'sweep',
    unclear: 'sweep',
  },
};

const ofPhase = (phase: Exclude<AttemptPhase, 'cancellation_pending'>): RecordedState => {
  switch (phase) {
    case 'reserved':
    case 'provisioning':
    case 'running':
      return 'before_settlement';
    case 'quiescing':
    case 'collecting':
    case 'stopping':
    case 'releasing':
    case 'settled':
      return phase;
    default:
      return unreachable(phase, 'phase');
  }
};

/** The row of an attempt; undefined: there is no record of it. */
export function recordedStateOf(attempt: AttemptStage | undefined): RecordedState {
  if (attempt === undefined) return 'no_record';
  return ofPhase(attempt.phase === 'cancellation_pending' ? attempt.pending.blockedIn : attempt.phase);
}

/** The column of what was listed; undefined: the engine answered and knows no such container. */
export function engineStateOf(container: Pick<ObservedContainer, 'state'> | undefined): EngineState {
  if (container === undefined) return 'absent';
  switch (container.state) {
    case 'created':
    case 'running':
    case 'paused':
      return container.state;
    case 'exited':
    case 'dead':
      return 'stopped';
    case 'other':
      return 'unclear';
    default:
      return unreachable(container.state, 'container state');
  }
}

/** What the record says of the verification of a candidate. */
export const recordedVerifications = ['owed', 'queued', 'running', 'given_up', 'done'] as const;
export type RecordedVerification = (typeof recordedVerifications)[number];

export type VerificationAction =
  /** A new verification, from the start: a record of its own. */
  | 'verify'
  /** Incomplete, because its Kernel did not live to finish it. That makes it owed, or given up. */
  | 'note_interrupted'
  | 'nothing';

/**
 * Recorded verification → what a Kernel does that is not running it. Its container is ended apart from that, by the
 * ledger of runs: killed, seen stopped, removed, seen absent.
 */
export const verificationTable: Readonly<Record<RecordedVerification, VerificationAction>> = {
  // Its attempt settled, or its last verification was interrupted, and nobody has asked for one since.
  owed: 'verify',
  queued: 'note_interrupted',
  running: 'note_interrupted',
  // One that ends its Kernel each time must not do so for ever: only a person asks again.
  given_up: 'nothing',
  done: 'nothing',
};

/** Verifications of the same bytes that may be interrupted one after the other before a Kernel leaves them alone. */
export const mostInterrupted = 3;

/** The row of a candidate. A closed session and one that is decided owe nothing. Pure. */
export function recordedVerificationOf(state: SessionState, candidate: CandidateState): RecordedVerification {
  const runs = state.verifications.filter((v) => v.candidate === candidate.digest);
  const unfinished = runs.find((v) => v.state !== 'done');
  if (unfinished !== undefined) return unfinished.state;
  if (!candidate.unverified || candidate.decision !== null || state.closed !== null) return 'done';
  const complete = runs.findLastIndex((v) => v.state === 'done' && !v.reasons.includes(interrupted));
  return runs.length - 1 - complete >= mostInterrupted ? 'given_up' : 'owed';
}

const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

/** The table of verifications as Markdown, for docs/lifecycle.md. */
export function verificationTableMarkdown(): string {
  return [
    line(['recorded', 'the next Kernel']),
    line(['---', '---']),
    ...recordedVerifications.map((row) => line([`\`${row}\``, verificationTable[row].replaceAll('_', ' ')])),
  ].join('\n');
}

/** The table as Markdown, for docs/lifecycle.md. */
export function recoveryTableMarkdown(): string {
  return [
    line(['recorded \\ engine says', ...engineStates.map((state) => `\`${state}\``)]),
    line(['---', ...engineStates.map(() => '---')]),
    ...recordedStates.map((row) =>
      line([`\`${row}\``, ...engineStates.map((column) => recoveryTable[row][column].replaceAll('_', ' '))]),
    ),
  ].join('\n');
}
