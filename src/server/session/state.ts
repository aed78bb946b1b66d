import type {
  AttemptId,
  CandidateDigest,
  ContractDigest,
  FencingToken,
  IntegrationId,
  RunId,
  SessionId,
  Sha256,
  WallTime,
} from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { CheckResult, FrozenContract } from '../../protocol/contract.ts';
import type {
  ActivityItem,
  AttemptEngine,
  AttemptOutcome,
  AttemptPhase,
  Binding,
  CandidateFile,
  DecisionView,
  IntegrationView,
  LimitReceipt,
  SettlementStep,
  SettlementTrigger,
} from '../../protocol/views.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { CollectionRecord, ControllerRecord, RecordedEvent } from './events.ts';
import { noUsage, used, type Usage } from './usage.ts';
import type { UsePeaks } from '../sandbox/monitor.ts';

/** Activity kept in a view; the whole is in the event log. */
export const activityKept = 200;

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
  readonly blockedIn: AttemptPhase;
  readonly waitingFor: string;
}

export interface AttemptState {
  readonly id: AttemptId;
  readonly number: number;
  readonly phase: AttemptPhase;
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
  readonly settling: {
    readonly trigger: SettlementTrigger;
    readonly at: WallTime;
    /** The phase in which settlement began: where the outcome arose. */
    readonly from: AttemptPhase;
    readonly steps: readonly SettlementStep[];
  } | null;
  readonly pending: { readonly since: WallTime; readonly blockedIn: AttemptPhase; readonly waitingFor: string } | null;
  /** A person ended the wait for an observation: the attempt settles as not confirmed. */
  readonly supervised: SupervisorAction | null;
  readonly collection: CollectionRecord | null;
  readonly stopped: boolean;
  readonly released: boolean;
  readonly settled: {
    readonly at: WallTime;
    readonly outcome: {
      readonly kind: AttemptOutcome;
      readonly phase: AttemptPhase;
      readonly reason: string;
      readonly detail: string;
    };
    readonly confirmed: boolean;
    readonly unknown: readonly string[];
  } | null;
  readonly candidate: CandidateDigest | null;
}

export interface VerificationState {
  readonly run: RunId;
  readonly candidate: CandidateDigest;
  readonly at: WallTime;
  readonly state: 'queued' | 'running' | 'done';
  readonly result: 'passed' | 'failed' | 'incomplete' | null;
  readonly reasons: readonly string[];
  readonly checks: readonly CheckResult[];
}

export interface CandidateState {
  readonly digest: CandidateDigest;
  readonly attempt: AttemptId;
  readonly author: 'model' | 'rehearsal';
  readonly files: readonly CandidateFile[];
  readonly eligible: boolean;
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
export interface SessionState {
  readonly id: SessionId;
  /** Version of the stream: number of events folded. */
  readonly version: number;
  readonly seq: number;
  readonly contractDigest: ContractDigest;
  readonly root: string;
  readonly contractPath: string;
  readonly title: string;
  readonly binding: Binding;
  readonly budget: FrozenContract['budget'];
  readonly qualificationKey: Sha256;
  readonly token: FencingToken;
  readonly controller: ControllerRecord | null;
  readonly queued: QueuedAttempt | null;
  readonly attempts: readonly AttemptState[];
  readonly candidates: readonly CandidateState[];
  readonly verifications: readonly VerificationState[];
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

export type Verdict = 'unverified' | 'passed' | 'failed' | 'incomplete' | 'flaky';

/** What all verifications of a candidate say together. An incomplete run says nothing beside a complete one. */
export function verdictOf(state: SessionState, candidate: CandidateDigest): Verdict {
  const results = state.verifications
    .filter((v) => v.candidate === candidate && v.state === 'done')
    .map((v) => v.result);
  const passed = results.includes('passed');
  const failed = results.includes('failed');
  if (passed && failed) return 'flaky';
  if (passed) return 'passed';
  if (failed) return 'failed';
  return results.includes('incomplete') ? 'incomplete' : 'unverified';
}

const patchAttempt = (
  state: SessionState,
  id: AttemptId,
  patch: (attempt: AttemptState) => Partial<AttemptState>,
): SessionState => ({
  ...state,
  attempts: state.attempts.map((a) => (a.id === id ? { ...a, ...patch(a) } : a)),
});

const patchVerification = (state: SessionState, run: RunId, patch: Partial<VerificationState>): SessionState => ({
  ...state,
  verifications: state.verifications.map((v) => (v.run === run ? { ...v, ...patch } : v)),
});

const withContainer = (
  a: AttemptState,
  patch: Partial<ContainerState>,
): { readonly container: ContainerState | null } => ({
  container: a.container === null ? null : { ...a.container, ...patch },
});

/** Phase that follows a settlement step that was carried out (whether or not it was observed). */
function afterStep(step: SettlementStep['step'], observed: boolean, phase: AttemptPhase): AttemptPhase {
  if (step === 'quiesce' && phase === 'quiescing') return 'collecting';
  if (step === 'stop' && observed && phase === 'stopping') return 'releasing';
  return phase;
}

/** Makes the state of a new stream from its first event. Throws on a stream that does not start with one. */
export function begin(id: SessionId, event: RecordedEvent): SessionState {
  if (event.type !== 'session.created') throw new Error(`stream of ${id} starts with ${event.type}`);
  const d = event.data;
  return {
    id,
    version: 1,
    seq: event.seq,
    contractDigest: d.contractDigest,
    root: d.root,
    contractPath: d.contractPath,
    title: d.title,
    binding: d.binding,
    budget: d.budget,
    qualificationKey: d.qualificationKey,
    token: 0 as FencingToken,
    controller: null,
    queued: null,
    attempts: [],
    candidates: [],
    verifications: [],
    closed: null,
    createdAt: event.at,
    updatedAt: event.at,
  };
}

/** Folds one event. Pure and total: an event that was stored is never refused. */
export function evolve(before: SessionState, event: RecordedEvent): SessionState {
  const state: SessionState = { ...before, version: before.version + 1, seq: event.seq, updatedAt: event.at };
  const at = event.at;
  switch (event.type) {
    case 'session.created':
      throw new Error('a session is created once');
    case 'control.granted':
      return { ...state, controller: event.data.controller, token: event.data.token };
    case 'control.released':
      return { ...state, controller: null, token: event.data.token };
    case 'request.refused':
      return state;
    case 'attempt.queued':
      return { ...state, queued: { ...event.data, parked: null, seq: event.seq } };
    case 'attempt.unqueued':
      return { ...state, queued: null };
    case 'attempt.parked':
      return { ...state, queued: state.queued === null ? null : { ...state.queued, parked: event.data.reason } };
    case 'attempt.unparked':
      return { ...state, queued: state.queued === null ? null : { ...state.queued, parked: null, seq: event.seq } };
    case 'attempt.reserved': {
      const queued = state.queued;
      const attempt: AttemptState = {
        id: event.data.attempt,
        number: queued?.number ?? state.attempts.length + 1,
        phase: 'reserved',
        feedback: queued?.feedback ?? null,
        reservedAt: at,
        epoch: event.data.epoch,
        holder: event.data.holder,
        leaseUntil: event.data.leaseUntil,
        container: null,
        limits: [],
        firstToolAt: null,
        requests: 0,
        requestOpen: false,
        promptTokens: 0,
        outputTokens: 0,
        usage: noUsage,
        engine: null,
        activityCount: 0,
        activity: [],
        witness: { entries: 0, head: null },
        end: null,
        settling: null,
        pending: null,
        supervised: null,
        collection: null,
        stopped: false,
        released: false,
        settled: null,
        candidate: null,
      };
      return { ...state, queued: null, attempts: [...state.attempts, attempt] };
    }
    case 'attempt.provisioning':
      return patchAttempt(state, event.data.attempt, () => ({
        phase: 'provisioning',
        container: { name: event.data.container, engineId: null, state: 'intended', observedAt: null },
      }));
    case 'attempt.container':
      return patchAttempt(state, event.data.attempt, (a) =>
        withContainer(a, { engineId: event.data.engineId, state: event.data.state, observedAt: at }),
      );
    case 'attempt.limits':
      return patchAttempt(state, event.data.attempt, () => ({ limits: event.data.limits }));
    case 'attempt.running':
      return patchAttempt(state, event.data.attempt, () => ({ phase: 'running' }));
    case 'attempt.engine':
      return patchAttempt(state, event.data.attempt, () => ({ engine: event.data.engine }));
    case 'attempt.request':
      return patchAttempt(state, event.data.attempt, () => ({ requests: event.data.n, requestOpen: true }));
    case 'attempt.turn':
      return patchAttempt(state, event.data.attempt, (a) => ({
        requestOpen: false,
        promptTokens: a.promptTokens + (event.data.receipt.promptTokens ?? 0),
        outputTokens: a.outputTokens + (event.data.receipt.outputTokens ?? 0),
        usage: used(a.usage, event.data.receipt, false),
      }));
    case 'attempt.failure':
      return patchAttempt(state, event.data.attempt, (a) => ({
        requestOpen: false,
        usage: used(a.usage, event.data.receipt, true),
      }));
    case 'attempt.activity':
      return patchAttempt(state, event.data.attempt, (a) => ({
        activityCount: a.activityCount + 1,
        firstToolAt: a.firstToolAt ?? (event.data.item.kind === 'tool' ? at : null),
        activity: [...a.activity.slice(-(activityKept - 1)), { ...event.data.item, n: a.activityCount + 1, at }],
      }));
    case 'attempt.witnessed': {
      const { entries, head } = event.data;
      return patchAttempt(state, event.data.attempt, () => ({ witness: { entries, head } }));
    }
    case 'attempt.ended':
      return patchAttempt(state, event.data.attempt, () => ({ end: event.data.end }));
    case 'attempt.settling':
      return {
        ...patchAttempt(state, event.data.attempt, (a) => ({
          settling: { trigger: event.data.trigger, at, from: a.phase, steps: [] },
          phase: 'quiescing',
        })),
        token: event.data.token,
      };
    case 'attempt.step': {
      const { step, observed, facts } = event.data;
      return patchAttempt(state, event.data.attempt, (a) => {
        const phase = afterStep(step, observed, a.phase);
        return {
          phase,
          ...(a.settling === null
            ? {}
            : { settling: { ...a.settling, steps: [...a.settling.steps, { step, at, observed, facts }] } }),
          ...(step === 'stop' && observed
            ? { stopped: true, ...withContainer(a, { state: 'stopped', observedAt: at }) }
            : {}),
          ...(step === 'release' && observed
            ? { released: true, ...withContainer(a, { state: 'absent', observedAt: at }) }
            : {}),
        };
      });
    }
    case 'attempt.collected': {
      const { collection } = event.data;
      const { state: kept, via, reason } = collection;
      const facts = {
        state: kept,
        via,
        files: collection.files.length,
        ...(reason === null ? {} : { reason }),
        ...usedFacts(collection.monitor?.peaks),
      };
      return patchAttempt(state, event.data.attempt, (a) => ({
        collection,
        phase: 'stopping',
        ...(a.settling === null
          ? {}
          : {
              settling: {
                ...a.settling,
                steps: [...a.settling.steps, { step: 'collect', at, observed: kept !== 'none', facts }],
              },
            }),
      }));
    }
    case 'attempt.pending':
      return patchAttempt(state, event.data.attempt, (a) => ({
        phase: 'cancellation_pending',
        pending: { since: at, blockedIn: event.data.blockedIn, waitingFor: event.data.waitingFor },
        ...withContainer(a, { state: 'unknown', observedAt: at }),
      }));
    case 'attempt.unblocked':
      return patchAttempt(state, event.data.attempt, (a) => ({
        phase: a.pending?.blockedIn ?? a.phase,
        pending: null,
      }));
    case 'attempt.reconciled': {
      const { attempt, ...action } = event.data;
      return patchAttempt(state, attempt, () => ({
        phase: 'releasing',
        pending: null,
        supervised: { at, ...action },
      }));
    }
    case 'attempt.settled':
      return patchAttempt(state, event.data.attempt, () => ({
        phase: 'settled',
        pending: null,
        settled: {
          at,
          outcome: event.data.outcome,
          confirmed: event.data.confirmed,
          unknown: event.data.unknown,
        },
      }));
    case 'candidate.created': {
      const { digest, attempt, author, files, eligible } = event.data;
      const withLink = patchAttempt(state, attempt, () => ({ candidate: digest }));
      // The same bytes from a later attempt are the same candidate: its decision and verifications stand.
      if (withLink.candidates.some((c) => c.digest === digest)) {
        return {
          ...withLink,
          candidates: withLink.candidates.map((c) =>
            c.digest === digest ? { ...c, eligible: c.eligible || eligible } : c,
          ),
        };
      }
      return {
        ...withLink,
        candidates: [
          ...withLink.candidates,
          { digest, attempt, author, files, eligible, decision: null, integrations: [], undoing: null, newFolders: [] },
        ],
      };
    }
    case 'verification.requested':
      return {
        ...state,
        verifications: [
          ...state.verifications,
          {
            run: event.data.run,
            candidate: event.data.candidate,
            at,
            state: 'queued',
            result: null,
            reasons: [],
            checks: [],
          },
        ],
      };
    case 'verification.started':
      return patchVerification(state, event.data.run, { state: 'running', at });
    case 'verification.done':
      return patchVerification(state, event.data.run, {
        state: 'done',
        at,
        result: event.data.result,
        reasons: event.data.reasons,
        checks: event.data.checks,
      });
    case 'decision.recorded':
      return {
        ...state,
        candidates: state.candidates.map((c) =>
          c.digest === event.data.candidate ? { ...c, decision: { ...event.data, at } } : c,
        ),
      };
    case 'integration.intended': {
      const { id, candidate, files, unsaved } = event.data;
      const row: IntegrationView = {
        id,
        candidate,
        state: 'intended',
        reason: null,
        files: [...files],
        unsaved,
        moved: [],
        at,
      };
      return {
        ...state,
        candidates: state.candidates.map((c) =>
          c.digest === candidate ? { ...c, integrations: [...c.integrations, row] } : c,
        ),
      };
    }
    case 'integration.undoing':
      return {
        ...state,
        candidates: state.candidates.map((c) =>
          c.integrations.some((i) => i.id === event.data.id) ? { ...c, undoing: event.data.id } : c,
        ),
      };
    case 'integration.observed': {
      const { id, state: seen, reason, moved } = event.data;
      return {
        ...state,
        candidates: state.candidates.map((c) => ({
          ...c,
          undoing: c.undoing === id ? null : c.undoing,
          newFolders:
            seen === 'integrated' && c.integrations.some((i) => i.id === id) ? event.data.newFolders : c.newFolders,
          integrations: c.integrations.map((i) =>
            i.id === id ? { ...i, state: seen, reason, moved: [...moved], at } : i,
          ),
        })),
      };
    }
    case 'budget.extended':
      return state; // counted in the ledger, which is shared by sessions
    case 'session.closed':
      return { ...state, closed: event.data.reason };
    default:
      return unreachable(event, 'session event');
  }
}

/** Folds a whole stream. Throws when it is empty. */
export function fold(id: SessionId, events: readonly RecordedEvent[]): SessionState {
  const [first, ...rest] = events;
  if (first === undefined) throw new Error(`no events of ${id}`);
  return rest.reduce(evolve, begin(id, first));
}

/** What a sandbox used, as facts of the step that observed it; null is "unavailable". */
function usedFacts(peaks: UsePeaks | undefined): Readonly<Record<string, number | null>> {
  if (peaks === undefined) return {};
  const { memory, pids, cpuUs, oomKills } = peaks;
  return { memoryPeak: memory, pidsPeak: pids, cpuMs: cpuUs === null ? null : Math.round(cpuUs / 1000), oomKills };
}
