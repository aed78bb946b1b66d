import type { AttemptId, CandidateDigest, FencingToken, IntegrationId, SessionId } from '../../protocol/primitives.ts';
import type { IntegrationView } from '../../protocol/views.ts';
import { evolveAttempt, reservedAttempt } from './evolve-attempt.ts';
import type { RecordedEvent } from './events.ts';
import {
  interrupted,
  type AttemptState,
  type CandidateState,
  type SessionState,
  type VerificationState,
} from './state.ts';

/** Makes the state of a new stream from its first event. Throws on a stream that does not start with one. */
export function begin(id: SessionId, event: RecordedEvent): SessionState {
  if (event.type !== 'session.created') throw new Error(`stream of ${id} starts with ${event.type}`);
  return {
    ...event.data,
    id,
    version: 1,
    seq: event.seq,
    token: 0 as FencingToken,
    controller: null,
    queued: null,
    attempts: [],
    candidates: [],
    verifications: [],
    refusals: 0,
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
      return { ...state, refusals: state.refusals + 1 };
    case 'attempt.queued':
      return { ...state, queued: { ...event.data, parked: null, seq: event.seq } };
    case 'attempt.unqueued':
      return { ...state, queued: null };
    case 'attempt.parked':
      return { ...state, queued: state.queued === null ? null : { ...state.queued, parked: event.data.reason } };
    case 'attempt.unparked':
      return { ...state, queued: state.queued === null ? null : { ...state.queued, parked: null, seq: event.seq } };
    case 'attempt.reserved': {
      const attempt = reservedAttempt(event, state.queued, state.attempts.length);
      return { ...state, queued: null, attempts: [...state.attempts, attempt] };
    }
    case 'candidate.created': {
      const { digest, attempt, author, files, eligible } = event.data;
      const linked = withAttempt(state, attempt, (a) => ({ ...a, candidate: digest }));
      // The same bytes from a later attempt are the same candidate: its decision and verifications stand.
      if (linked.candidates.some((c) => c.digest === digest))
        return withCandidate(linked, digest, (c) => ({
          ...c,
          eligible: c.eligible || eligible,
          unverified: c.unverified || eligible,
        }));
      const created: CandidateState = {
        digest,
        attempt,
        author,
        files,
        eligible,
        unverified: eligible,
        decision: null,
        integrations: [],
        undoing: null,
        newFolders: [],
      };
      return { ...linked, candidates: [...linked.candidates, created] };
    }
    case 'verification.requested': {
      const { run, candidate } = event.data;
      return {
        ...withCandidate(state, candidate, (c) => ({ ...c, unverified: false })),
        verifications: [...state.verifications, { run, candidate, at, state: 'queued' }],
      };
    }
    case 'verification.started':
      return withVerification(state, event.data.run, ({ run, candidate }) => ({
        run,
        candidate,
        at,
        state: 'running',
      }));
    case 'verification.done': {
      const { run, result, reasons, checks, scope = [] } = event.data;
      const found = state.verifications.find((v) => v.run === run);
      if (found === undefined) return state;
      const { candidate } = found;
      const done = withVerification(state, run, () => ({
        run,
        candidate,
        at,
        state: 'done',
        result,
        reasons,
        checks,
        scope,
      }));
      return reasons.includes(interrupted) ? withCandidate(done, candidate, (c) => ({ ...c, unverified: true })) : done;
    }
    case 'decision.recorded':
      return withCandidate(state, event.data.candidate, (c) => ({ ...c, decision: { ...event.data, at } }));
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
      return withCandidate(state, candidate, (c) => ({ ...c, integrations: [...c.integrations, row] }));
    }
    case 'integration.undoing':
      return withIntegration(state, event.data.id, (c) => ({ ...c, undoing: event.data.id }));
    case 'integration.observed': {
      const { id, state: seen, reason, moved, newFolders } = event.data;
      return withIntegration(state, id, (c) => ({
        ...c,
        undoing: c.undoing === id ? null : c.undoing,
        newFolders: seen === 'integrated' ? newFolders : c.newFolders,
        integrations: c.integrations.map((i) =>
          i.id === id ? { ...i, state: seen, reason, moved: [...moved], at } : i,
        ),
      }));
    }
    case 'budget.extended':
      return state; // counted in the ledger, which is shared by sessions
    case 'session.closed':
      return { ...state, closed: event.data.reason };
    case 'attempt.settling':
      return {
        ...withAttempt(state, event.data.attempt, (a) => evolveAttempt(a, event)),
        token: event.data.token,
      };
    default:
      return withAttempt(state, event.data.attempt, (a) => evolveAttempt(a, event));
  }
}

/** Folds a whole stream. Throws when it is empty. */
export function fold(id: SessionId, events: readonly RecordedEvent[]): SessionState {
  const [first, ...rest] = events;
  if (first === undefined) throw new Error(`no events of ${id}`);
  return rest.reduce(evolve, begin(id, first));
}

const withAttempt = (
  state: SessionState,
  id: AttemptId,
  change: (attempt: AttemptState) => AttemptState,
): SessionState => ({ ...state, attempts: state.attempts.map((a) => (a.id === id ? change(a) : a)) });

const withCandidate = (
  state: SessionState,
  digest: CandidateDigest,
  change: (candidate: CandidateState) => CandidateState,
): SessionState => ({ ...state, candidates: state.candidates.map((c) => (c.digest === digest ? change(c) : c)) });

const withIntegration = (
  state: SessionState,
  id: IntegrationId,
  change: (candidate: CandidateState) => CandidateState,
): SessionState => ({
  ...state,
  candidates: state.candidates.map((c) => (c.integrations.some((i) => i.id === id) ? change(c) : c)),
});

const withVerification = (
  state: SessionState,
  run: VerificationState['run'],
  change: (verification: VerificationState) => VerificationState,
): SessionState => ({ ...state, verifications: state.verifications.map((v) => (v.run === run ? change(v) : v)) });
