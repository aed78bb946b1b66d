import type {
  AttemptId,
  CandidateDigest,
  FencingToken,
  IntegrationId,
  RunId,
  SessionId,
  Sha256,
  WallTime,
} from '../../protocol/primitives.ts';
import type { CheckResult, FileScope } from '../../protocol/contract.ts';
import type {
  ActivityItem,
  AttemptEngine,
  AttemptPhase,
  LimitReceipt,
  SettlementStep,
  SettlementTrigger,
} from '../../protocol/attempt.ts';
import type { CandidateFile, DecisionView, IntegrationView } from '../../protocol/views.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { CollectionRecord, ControllerRecord, SessionBasis } from './events.ts';
import type { Outcome } from './outcome.ts';
import type { Usage } from './usage.ts';

export interface ContainerState {
  readonly name: string;
  readonly engineId: string | null;
  readonly state: 'intended' | 'created' | 'running' | 'stopped' | 'absent' | 'unknown';
  readonly observedAt: WallTime | null;
}

export interface SupervisorAction {
  readonly at: WallTime;
  readonly by: string;
  readonly channel: 'window' | 'tty' | 'script';
  readonly why: string;
  readonly saw: string;
  readonly blockedIn: SettlingPhase;
  readonly waitingFor: string;
}

/** The agent may still act, or has not begun. */
export const workingPhases = ['reserved', 'provisioning', 'running'] as const satisfies readonly AttemptPhase[];
export type WorkingPhase = (typeof workingPhases)[number];
/** Steps of settlement, in their order. */
export const settlingPhases = [
  'quiescing',
  'collecting',
  'stopping',
  'releasing',
] as const satisfies readonly AttemptPhase[];
export type SettlingPhase = (typeof settlingPhases)[number];

/** What is recorded of an attempt whatever its phase. */
export interface AttemptFacts {
  readonly id: AttemptId;
  readonly number: number;
  readonly feedback: string | null;
  readonly reservedAt: WallTime;
  readonly epoch: number;
  readonly holder: string;
  readonly leaseUntil: number;
  readonly container: ContainerState | null;
  readonly limits: readonly LimitReceipt[];
  readonly firstToolAt: WallTime | null;
  readonly requests: number;
  /** A request was counted and neither a turn nor a failure has been recorded for it. */
  readonly requestOpen: boolean;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly usage: Usage;
  /** What was seen of the engine and of this machine's memory, newest. */
  readonly engine: AttemptEngine | null;
  readonly activityCount: number;
  readonly activity: readonly ActivityItem[];
  /** How far the Kernel's side of the audit chain is durable. */
  readonly witness: { readonly entries: number; readonly head: Sha256 | null };
  readonly end: AgentEnd | null;
  /** A person ended the wait for an observation: the attempt settles as not confirmed. */
  readonly supervised: SupervisorAction | null;
  readonly collection: CollectionRecord | null;
  readonly stopped: boolean;
  readonly released: boolean;
  readonly candidate: CandidateDigest | null;
}

export interface Settling {
  readonly trigger: SettlementTrigger;
  readonly at: WallTime;
  /** The phase in which settlement began: where the outcome arose. */
  readonly from: WorkingPhase;
  readonly steps: readonly SettlementStep[];
}
/** An observation that the next step needs and that could not be made. */
export interface Pending {
  readonly since: WallTime;
  readonly blockedIn: SettlingPhase;
  readonly waitingFor: string;
}
export interface Settled {
  readonly at: WallTime;
  readonly outcome: Outcome;
  readonly confirmed: boolean;
  readonly unknown: readonly string[];
}

/** The phase and what is known only in it: no settled attempt without its settlement, no wait without what for. */
export type AttemptStage =
  | { readonly phase: WorkingPhase; readonly settling: null; readonly pending: null; readonly settled: null }
  | { readonly phase: SettlingPhase; readonly settling: Settling; readonly pending: null; readonly settled: null }
  | {
      readonly phase: 'cancellation_pending';
      readonly settling: Settling;
      readonly pending: Pending;
      readonly settled: null;
    }
  | { readonly phase: 'settled'; readonly settling: Settling; readonly pending: null; readonly settled: Settled };

export type AttemptState = AttemptFacts & AttemptStage;
/** An attempt that is known to be in one of these phases. */
export type AttemptIn<P extends AttemptPhase> = AttemptState & { readonly phase: P };

export type VerificationState = {
  readonly run: RunId;
  readonly candidate: CandidateDigest;
  readonly at: WallTime;
} & (
  | { readonly state: 'queued' | 'running' }
  | {
      readonly state: 'done';
      readonly result: 'passed' | 'failed' | 'incomplete';
      readonly reasons: readonly string[];
      readonly checks: readonly CheckResult[];
      readonly scope: readonly FileScope[];
    }
);

export interface CandidateState {
  readonly digest: CandidateDigest;
  readonly attempt: AttemptId;
  readonly author: 'model' | 'rehearsal';
  readonly files: readonly CandidateFile[];
  readonly eligible: boolean;
  /** Held by an attempt, or its last verification was interrupted, and none was asked for since. */
  readonly unverified: boolean;
  readonly decision: DecisionView | null;
  readonly integrations: readonly IntegrationView[];
  /** An undo was begun and its end has not been seen. */
  readonly undoing: IntegrationId | null;
  /** Folders that the last integration made. */
  readonly newFolders: readonly string[];
}

export interface QueuedAttempt {
  readonly attempt: AttemptId;
  readonly number: number;
  readonly feedback: string | null;
  readonly parked: string | null;
  readonly seq: number;
}

/** The fold of a session's events; nothing else. */
export interface SessionState extends SessionBasis {
  readonly id: SessionId;
  /** Version of the stream: number of events folded. */
  readonly version: number;
  readonly seq: number;
  readonly token: FencingToken;
  readonly controller: ControllerRecord | null;
  readonly queued: QueuedAttempt | null;
  readonly attempts: readonly AttemptState[];
  readonly candidates: readonly CandidateState[];
  readonly verifications: readonly VerificationState[];
  /** Requests with stale authority that have been recorded. */
  readonly refusals: number;
  readonly closed: string | null;
  readonly createdAt: WallTime;
  readonly updatedAt: WallTime;
}

export function lastAttempt(state: SessionState): AttemptState | undefined {
  return state.attempts.at(-1);
}

/** The attempt that is not settled yet; there is at most one. */
export function openAttempt(state: SessionState): AttemptState | undefined {
  const last = state.attempts.at(-1);
  return last !== undefined && last.phase !== 'settled' ? last : undefined;
}

/** The reason in the record of a verification that its Kernel did not live to finish. */
export const interrupted = 'interrupted';

export type Verdict = 'unverified' | 'passed' | 'failed' | 'incomplete' | 'flaky';

/** What all verifications of a candidate say together. An incomplete run says nothing beside a complete one. */
export function verdictOf(state: SessionState, candidate: CandidateDigest): Verdict {
  const results = state.verifications.flatMap((v) =>
    v.candidate === candidate && v.state === 'done' ? [v.result] : [],
  );
  const passed = results.includes('passed');
  const failed = results.includes('failed');
  if (passed && failed) return 'flaky';
  if (passed) return 'passed';
  if (failed) return 'failed';
  return results.includes('incomplete') ? 'incomplete' : 'unverified';
}
