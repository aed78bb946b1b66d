import type { AttemptView, LiveInference } from '../../protocol/attempt.ts';
import type {
  SessionSummary,
  SessionView,
  CandidateView,
  ControllerView,
  VerificationView,
} from '../../protocol/views.ts';
import type { CandidateDigest } from '../../protocol/primitives.ts';
import { recordedVerificationOf, verificationTable } from './recovery-table.ts';
import {
  lastAttempt,
  openAttempt,
  verdictOf,
  type AttemptState,
  type SessionState,
  type VerificationState,
} from './state.ts';

/** What a view needs beside the fold: facts that are not evidence. */
export interface ViewContext {
  readonly queuePosition: number | null;
  readonly controller: ControllerView | null;
  readonly observers: number;
  readonly ledger: { readonly spent: number; readonly allowed: number };
  readonly live: LiveInference | null;
}

/** One word for a session, from its state alone. */
export function sessionStateOf(state: SessionState): SessionView['state'] {
  if (state.closed !== null) return 'closed';
  const open = openAttempt(state);
  if (open !== undefined) return open.settling === null ? 'running' : 'settling';
  if (state.queued !== null) return state.queued.parked === null ? 'queued' : 'parked';
  return 'waiting';
}

/** True while something of this session must be carried on by a Kernel. */
export function isOpen(state: SessionState): boolean {
  return (
    openAttempt(state) !== undefined ||
    state.queued !== null ||
    state.candidates.some((c) => verificationTable[recordedVerificationOf(state, c)] !== 'nothing') ||
    state.candidates.some((c) => c.undoing !== null || c.integrations.some((i) => i.state === 'intended'))
  );
}

function attemptView(a: AttemptState): AttemptView {
  return {
    id: a.id,
    number: a.number,
    phase: a.phase,
    pending: a.pending === null ? null : { ...a.pending },
    outcome: a.settled === null ? null : { ...a.settled.outcome },
    collection: a.collection === null ? null : { state: a.collection.state, reason: a.collection.reason },
    reservedAt: a.reservedAt,
    firstToolAt: a.firstToolAt,
    settlement:
      a.settling === null
        ? null
        : {
            trigger: a.settling.trigger,
            requestedAt: a.settling.at,
            settledAt: a.settled?.at ?? null,
            steps: [...a.settling.steps],
            confirmed: a.settled?.confirmed ?? false,
            unknown: [...(a.settled?.unknown ?? [])],
            supervised: a.supervised,
          },
    requests: a.requests,
    promptTokens: a.promptTokens,
    outputTokens: a.outputTokens,
    metrics: {
      requests: a.requests,
      ...a.usage,
      wallMs: a.settled === null ? null : a.settled.at - a.reservedAt,
    },
    engine: a.engine,
    container: a.container,
    limits: [...a.limits],
    candidate: a.candidate,
    feedback: a.feedback,
    activity: [...a.activity],
  };
}

function verificationView(v: VerificationState): VerificationView {
  const { run, candidate, at, state } = v;
  const common = { runId: run, candidate, at, state };
  return v.state === 'done'
    ? { ...common, result: v.result, reasons: [...v.reasons], checks: [...v.checks], scope: [...v.scope] }
    : { ...common, result: null, reasons: [], checks: [], scope: [] };
}

/** The view of one candidate; undefined when the session has none with that digest. */
export function candidateView(state: SessionState, digest: CandidateDigest): CandidateView | undefined {
  const c = state.candidates.find((x) => x.digest === digest);
  if (c === undefined) return undefined;
  return {
    digest: c.digest,
    attempt: c.attempt,
    author: c.author,
    parent: null,
    files: [...c.files],
    eligible: c.eligible,
    verifications: state.verifications.filter((v) => v.candidate === c.digest).map(verificationView),
    verdict: verdictOf(state, c.digest),
    decision: c.decision,
    integrations: [...c.integrations],
  };
}

/** Everything a client shows of a session. */
export function sessionView(state: SessionState, context: ViewContext): SessionView {
  return {
    id: state.id,
    contractDigest: state.contractDigest,
    title: state.title,
    root: state.root,
    contractPath: state.contractPath,
    binding: state.binding,
    state: sessionStateOf(state),
    queuePosition: context.queuePosition,
    controller: context.controller,
    observers: context.observers,
    budget: { attempts: context.ledger.allowed, used: context.ledger.spent },
    live: context.live,
    attempts: state.attempts.map(attemptView),
    candidates: state.candidates.flatMap((c) => candidateView(state, c.digest) ?? []),
    createdAt: state.createdAt,
    updatedAt: state.updatedAt,
    seq: state.seq,
  };
}

/** The row of the session list: kept as a projection, so that listing never folds history. */
export function sessionSummary(state: SessionState): SessionSummary {
  const attempt = lastAttempt(state);
  const candidate = state.candidates.at(-1);
  return {
    id: state.id,
    contractDigest: state.contractDigest,
    title: state.title,
    root: state.root,
    model: state.binding.model.tag,
    synthetic: state.binding.synthetic,
    state: sessionStateOf(state),
    phase: attempt?.phase ?? null,
    outcome: attempt?.settled?.outcome.kind ?? null,
    candidate: candidate?.digest ?? null,
    verdict: candidate === undefined ? null : verdictOf(state, candidate.digest),
    decision: candidate?.decision?.kind ?? null,
    createdAt: state.createdAt,
    updatedAt: state.updatedAt,
  };
}
