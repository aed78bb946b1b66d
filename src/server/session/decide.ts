import type { ErrorCode } from '../../protocol/errors.ts';
import type { CheckResult } from '../../protocol/contract.ts';
import type {
  AttemptId,
  CandidateDigest,
  ClientId,
  FencingToken,
  IntegrationId,
  RelPath,
  RunId,
  Sha256,
  WallTime,
} from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type {
  ActivityItem,
  AttemptEngine,
  AttemptPhase,
  LimitReceipt,
  Receipt,
  SettlementStep,
  SettlementTrigger,
} from '../../protocol/views.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { ArtefactRef } from '../../protocol/primitives.ts';
import type { CandidateFile, DecisionView } from '../../protocol/views.ts';
import type { CollectionRecord, ControllerRecord, SessionEvent } from './events.ts';
import { outcomeOf } from './outcome.ts';
import { openAttempt, verdictOf, type AttemptState, type SessionState } from './state.ts';

/** What the decider is told of the world: handed in, never read. */
export interface Now {
  /** Monotonic milliseconds of this Kernel. */
  readonly mono: number;
  readonly epoch: number;
  /** Attempts counted and allowed for this contract and qualification key, over all sessions. */
  readonly ledger: { readonly spent: number; readonly allowed: number };
}

/** Extra lease beyond the contract's wall limit, in milliseconds: the loop ends by itself before; this bounds a stuck one. */
export const leaseSlackMs = 60_000;

export type Command =
  | {
      readonly kind: 'grant-control';
      readonly controller: ControllerRecord;
      readonly how: 'start' | 'attach' | 'take-over' | 'reload';
    }
  | { readonly kind: 'release-control'; readonly clientId: ClientId; readonly reason: string }
  | {
      readonly kind: 'queue';
      readonly attempt: AttemptId;
      readonly feedback: string | null;
      readonly token: FencingToken | null;
    }
  | { readonly kind: 'unqueue'; readonly reason: string }
  | { readonly kind: 'park'; readonly reason: string }
  | { readonly kind: 'unpark' }
  | { readonly kind: 'reserve'; readonly holder: string }
  | { readonly kind: 'provision'; readonly attempt: AttemptId; readonly container: string }
  | {
      readonly kind: 'container';
      readonly attempt: AttemptId;
      readonly state: 'created' | 'running';
      readonly engineId: string;
    }
  | { readonly kind: 'limits'; readonly attempt: AttemptId; readonly limits: readonly LimitReceipt[] }
  | { readonly kind: 'run'; readonly attempt: AttemptId; readonly files: number; readonly bytes: number }
  | { readonly kind: 'engine'; readonly attempt: AttemptId; readonly engine: AttemptEngine }
  | {
      readonly kind: 'count-request';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly boundTokens: number;
      readonly proven: boolean;
    }
  | {
      readonly kind: 'turn';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly receipt: Receipt;
      readonly request: ArtefactRef;
      readonly response: ArtefactRef;
    }
  | {
      readonly kind: 'failure';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly failure: { readonly kind: string; readonly code: string; readonly message: string };
      readonly receipt: Receipt | null;
      readonly request: ArtefactRef | null;
      readonly response: ArtefactRef | null;
    }
  | { readonly kind: 'activity'; readonly attempt: AttemptId; readonly item: Omit<ActivityItem, 'n' | 'at'> }
  | { readonly kind: 'witness'; readonly attempt: AttemptId; readonly entries: number; readonly head: Sha256 | null }
  | { readonly kind: 'end'; readonly attempt: AttemptId; readonly end: AgentEnd }
  | { readonly kind: 'settle'; readonly attempt: AttemptId; readonly trigger: SettlementTrigger }
  | {
      readonly kind: 'step';
      readonly attempt: AttemptId;
      readonly step: SettlementStep['step'];
      readonly observed: boolean;
      readonly facts: SettlementStep['facts'];
    }
  | { readonly kind: 'collected'; readonly attempt: AttemptId; readonly collection: CollectionRecord }
  | { readonly kind: 'pend'; readonly attempt: AttemptId; readonly waitingFor: string }
  | { readonly kind: 'unblock'; readonly attempt: AttemptId; readonly seen: string }
  | {
      readonly kind: 'reconcile';
      readonly attempt: AttemptId;
      /** When the wait began that the person looked at: another wait is another fact. */
      readonly since: WallTime;
      readonly by: string;
      readonly channel: 'window' | 'tty' | 'script';
      readonly why: string;
      readonly saw: string;
    }
  | {
      readonly kind: 'finish-settlement';
      readonly attempt: AttemptId;
      /** What the collected bytes amount to; null when nothing changed or nothing was collected. */
      readonly candidate: { readonly digest: CandidateDigest; readonly files: readonly CandidateFile[] } | null;
    }
  | { readonly kind: 'request-verification'; readonly run: RunId; readonly candidate: CandidateDigest }
  | { readonly kind: 'start-verification'; readonly run: RunId }
  | {
      readonly kind: 'finish-verification';
      readonly run: RunId;
      readonly result: 'passed' | 'failed' | 'incomplete';
      readonly reasons: readonly string[];
      readonly checks: readonly CheckResult[];
    }
  | { readonly kind: 'decide'; readonly decision: Omit<DecisionView, 'at'> }
  | {
      readonly kind: 'intend-integration';
      readonly id: IntegrationId;
      readonly candidate: CandidateDigest;
      readonly unsaved: 'none' | 'unknown';
    }
  | { readonly kind: 'intend-undo'; readonly id: IntegrationId }
  | {
      readonly kind: 'observe-integration';
      readonly id: IntegrationId;
      readonly state: 'integrated' | 'refused' | 'undone' | 'undo_refused' | 'partial';
      readonly reason: string | null;
      readonly moved: readonly RelPath[];
      readonly newFolders?: readonly string[];
    }
  | {
      readonly kind: 'extend-budget';
      readonly attempts: number;
      readonly by: string;
      readonly channel: 'window' | 'tty' | 'script';
    }
  | { readonly kind: 'close'; readonly reason: string };

export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly next: string;
}
export type Decision =
  { readonly ok: true; readonly events: readonly SessionEvent[] } | { readonly ok: false; readonly refusal: Refusal };

const accept = (...events: SessionEvent[]): Decision => ({ ok: true, events });
const refuse = (code: ErrorCode, message: string, next: string): Decision => ({
  ok: false,
  refusal: { code, message, next },
});
const wrong = (message: string): Decision =>
  refuse('WrongState', message, 'Look at the session as it is now and try again.');

const budgetSpent = (now: Now): Decision =>
  refuse(
    'BudgetSpent',
    `All ${now.ledger.allowed} attempts of this contract have been spent under this binding, over all sessions.`,
    'Extend the budget (a recorded decision), or change the contract and freeze it again.',
  );

const tokenRefusal = refuse(
  'StaleAuthority',
  'This request names a control token that is no longer valid: control passed on, or the attempt is being settled.',
  'Attach to the session as its controller, then repeat the request.',
);

/** Phases in which an agent may act. Everything later has been revoked. */
const acting: readonly AttemptPhase[] = ['running'];
const beforeSettling: readonly AttemptPhase[] = ['reserved', 'provisioning', 'running'];

/**
 * The lease and the epoch: work on an attempt is accepted right before the lease's end and refused at that instant and
 * after it; an attempt that another Kernel (a lower epoch) reserved can only be settled.
 */
function actorRefusal(attempt: AttemptState, now: Now): Decision | undefined {
  if (attempt.epoch !== now.epoch) {
    return refuse(
      'StaleAuthority',
      'This attempt belongs to an earlier Kernel; it can only be settled.',
      'Start another attempt.',
    );
  }
  if (now.mono >= attempt.leaseUntil) {
    return refuse('StaleAuthority', "The attempt's lease has expired.", 'Start another attempt.');
  }
  return undefined;
}

function withAttempt(
  state: SessionState,
  id: AttemptId,
  phases: readonly AttemptPhase[],
  what: string,
  then: (attempt: AttemptState) => Decision,
): Decision {
  const attempt = state.attempts.find((a) => a.id === id);
  if (attempt === undefined)
    return refuse('NotFound', `There is no attempt ${id} in this session.`, 'List the session again.');
  if (!phases.includes(attempt.phase)) return wrong(`${what} is not possible while the attempt is ${attempt.phase}.`);
  return then(attempt);
}

/** Decides one command against one session. Pure: the same arguments give the same answer. */
export function decide(state: SessionState, command: Command, now: Now): Decision {
  // A Kernel that was replaced changes nothing any more. The store refuses it too, inside each transaction.
  if (state.attempts.some((a) => a.epoch > now.epoch)) {
    return refuse('StaleAuthority', 'A later Kernel has taken over.', 'Connect to the Kernel that runs now.');
  }
  switch (command.kind) {
    case 'grant-control': {
      if (state.closed !== null) return wrong('The session is closed.');
      const held = state.controller;
      const same = held?.clientId === command.controller.clientId;
      if (held !== null && !same && command.how !== 'take-over') {
        return refuse(
          'NotController',
          `${held.name} controls this session.`,
          'Attach as observer, or take control over.',
        );
      }
      return accept({
        type: 'control.granted',
        data: {
          controller: command.controller,
          token: (state.token + 1) as FencingToken,
          how: same && command.how === 'attach' ? 'reload' : command.how,
        },
      });
    }
    case 'release-control': {
      if (state.controller?.clientId !== command.clientId) return accept();
      return accept({
        type: 'control.released',
        data: { token: (state.token + 1) as FencingToken, reason: command.reason },
      });
    }
    case 'queue': {
      if (state.closed !== null) return wrong('The session is closed.');
      if (command.token !== null && command.token !== state.token) return tokenRefusal;
      if (state.queued !== null) return wrong('An attempt is waiting already.');
      if (state.attempts.some((a) => a.id === command.attempt)) return wrong('This attempt has been counted already.');
      if (openAttempt(state) !== undefined) return wrong('An attempt is not settled yet.');
      if (state.candidates.some((c) => c.decision?.kind === 'accept'))
        return wrong('A candidate of this session has been accepted.');
      if (now.ledger.spent >= now.ledger.allowed) return budgetSpent(now);
      return accept({
        type: 'attempt.queued',
        data: { attempt: command.attempt, number: now.ledger.spent + 1, feedback: command.feedback },
      });
    }
    case 'unqueue':
      if (state.queued === null) return wrong('No attempt is waiting.');
      return accept({ type: 'attempt.unqueued', data: { attempt: state.queued.attempt, reason: command.reason } });
    case 'park':
      if (state.queued === null || state.queued.parked !== null) return accept();
      return accept({ type: 'attempt.parked', data: { attempt: state.queued.attempt, reason: command.reason } });
    case 'unpark':
      if (state.queued === null || state.queued.parked === null) return accept();
      return accept({ type: 'attempt.unparked', data: { attempt: state.queued.attempt } });
    case 'reserve': {
      if (state.closed !== null) return wrong('The session is closed.');
      if (state.queued === null) return wrong('No attempt is waiting.');
      if (state.queued.parked !== null) return wrong('The waiting attempt is parked.');
      if (openAttempt(state) !== undefined) return wrong('An attempt is not settled yet.');
      if (now.ledger.spent >= now.ledger.allowed) return budgetSpent(now);
      return accept({
        type: 'attempt.reserved',
        data: {
          attempt: state.queued.attempt,
          epoch: now.epoch,
          holder: command.holder,
          leaseUntil: now.mono + state.budget.wallS * 1000 + leaseSlackMs,
        },
      });
    }
    case 'provision':
      return withAttempt(state, command.attempt, ['reserved'], 'Provisioning', (a) => {
        return (
          actorRefusal(a, now) ??
          accept({ type: 'attempt.provisioning', data: { attempt: a.id, container: command.container } })
        );
      });
    case 'container':
      // Accepted in every unsettled phase: an observation is never thrown away.
      return withAttempt(state, command.attempt, unsettled, 'Recording a container', (a) =>
        a.container === null
          ? wrong('No container was intended.')
          : accept({
              type: 'attempt.container',
              data: { attempt: a.id, state: command.state, engineId: command.engineId },
            }),
      );
    case 'limits':
      return withAttempt(state, command.attempt, unsettled, 'Recording limits', (a) =>
        accept({ type: 'attempt.limits', data: { attempt: a.id, limits: command.limits } }),
      );
    case 'run':
      return withAttempt(state, command.attempt, ['provisioning'], 'Running', (a) => {
        if (a.limits.length === 0) return wrong('The limits have not been read back.');
        if (a.limits.some((l) => !l.inForce))
          return refuse('LimitNotInForce', 'A limit is not in force.', 'Run the doctor.');
        return (
          actorRefusal(a, now) ??
          accept({ type: 'attempt.running', data: { attempt: a.id, files: command.files, bytes: command.bytes } })
        );
      });
    case 'engine':
      return withAttempt(state, command.attempt, unsettled, 'What is seen of the engine', (a) =>
        accept({ type: 'attempt.engine', data: { attempt: a.id, engine: command.engine } }),
      );
    case 'count-request':
      return withAttempt(state, command.attempt, acting, 'A request', (a) => {
        const refusal = actorRefusal(a, now);
        if (refusal !== undefined) return refusal;
        if (a.requestOpen) return wrong('The outcome of the last request is unknown; it is never repeated.');
        if (command.n !== a.requests + 1) return wrong(`Request ${command.n} does not follow ${a.requests}.`);
        if (command.n > state.budget.requestsPerAttempt) {
          return refuse(
            'BudgetSpent',
            `All ${state.budget.requestsPerAttempt} requests of this attempt have been spent.`,
            'Start another attempt.',
          );
        }
        return accept({
          type: 'attempt.request',
          data: { attempt: a.id, n: command.n, boundTokens: command.boundTokens, proven: command.proven },
        });
      });
    case 'turn':
      return withAttempt(state, command.attempt, acting, 'A result', (a) => {
        if (!a.requestOpen || command.n !== a.requests) return wrong('No such request is open.');
        return (
          actorRefusal(a, now) ??
          accept({
            type: 'attempt.turn',
            data: {
              attempt: a.id,
              n: command.n,
              receipt: command.receipt,
              request: command.request,
              response: command.response,
            },
          })
        );
      });
    case 'failure':
      // A failure is evidence, also when settlement began meanwhile.
      return withAttempt(state, command.attempt, unsettled, 'A failure', (a) => {
        if (!a.requestOpen || command.n !== a.requests) return wrong('No such request is open.');
        return accept({
          type: 'attempt.failure',
          data: {
            attempt: a.id,
            n: command.n,
            ...command.failure,
            receipt: command.receipt,
            request: command.request,
            response: command.response,
          },
        });
      });
    case 'activity':
      return withAttempt(state, command.attempt, unsettled, 'Activity', (a) =>
        accept({ type: 'attempt.activity', data: { attempt: a.id, item: command.item } }),
      );
    case 'witness':
      return withAttempt(state, command.attempt, unsettled, 'Recording the audit', (a) => {
        const { entries, head } = command;
        if (entries < a.witness.entries) return wrong('An audit chain does not shrink.');
        if (entries === a.witness.entries) return accept();
        return accept({ type: 'attempt.witnessed', data: { attempt: a.id, entries, head } });
      });
    case 'end':
      return withAttempt(state, command.attempt, beforeSettling, 'An end', (a) => {
        const expired = actorRefusal(a, now) !== undefined;
        const trigger: SettlementTrigger = expired ? 'lease_expired' : triggerOf(command.end);
        const settling: SessionEvent = {
          type: 'attempt.settling',
          data: { attempt: a.id, trigger, token: (state.token + 1) as FencingToken, phase: a.phase },
        };
        return expired
          ? accept(settling)
          : accept({ type: 'attempt.ended', data: { attempt: a.id, end: command.end } }, settling);
      });
    case 'settle': {
      const attempt = state.attempts.find((a) => a.id === command.attempt);
      if (attempt === undefined)
        return refuse('NotFound', `There is no attempt ${command.attempt}.`, 'List the session again.');
      if (!beforeSettling.includes(attempt.phase)) return accept(); // the first trigger stands
      return accept({
        type: 'attempt.settling',
        data: {
          attempt: attempt.id,
          trigger: command.trigger,
          token: (state.token + 1) as FencingToken,
          phase: attempt.phase,
        },
      });
    }
    case 'step':
      return withAttempt(
        state,
        command.attempt,
        ['quiescing', 'collecting', 'stopping', 'releasing'],
        'A step',
        (a) => {
          const needs = phaseOfStep[command.step];
          if (needs !== null && a.phase !== needs) return wrong(`${command.step} is not a step of ${a.phase}.`);
          return accept({
            type: 'attempt.step',
            data: { attempt: a.id, step: command.step, observed: command.observed, facts: command.facts },
          });
        },
      );
    case 'collected':
      return withAttempt(state, command.attempt, ['collecting'], 'Collection', (a) =>
        accept({ type: 'attempt.collected', data: { attempt: a.id, collection: command.collection } }),
      );
    case 'pend':
      return withAttempt(state, command.attempt, ['quiescing', 'collecting', 'stopping', 'releasing'], 'Waiting', (a) =>
        accept({
          type: 'attempt.pending',
          data: { attempt: a.id, blockedIn: a.phase, waitingFor: command.waitingFor },
        }),
      );
    case 'unblock':
      return withAttempt(state, command.attempt, ['cancellation_pending'], 'Going on', (a) =>
        accept({ type: 'attempt.unblocked', data: { attempt: a.id, seen: command.seen } }),
      );
    case 'reconcile':
      return withAttempt(state, command.attempt, ['cancellation_pending'], 'A supervisor action', (a) => {
        const { pending } = a;
        if (pending === null || pending.since !== command.since) {
          return wrong('The attempt waits for something else than what was looked at.');
        }
        if (command.why.trim() === '') return wrong('A supervisor action needs a reason.');
        const { by, channel, why, saw } = command;
        const { blockedIn, waitingFor } = pending;
        return accept({
          type: 'attempt.reconciled',
          data: { attempt: a.id, by, channel, why, saw, blockedIn, waitingFor },
        });
      });
    case 'finish-settlement':
      return withAttempt(state, command.attempt, ['releasing', 'quiescing'], 'Settling', (a) => {
        const supervised = a.supervised !== null;
        const needsContainer = a.container !== null && !supervised;
        if (needsContainer && (!a.stopped || !a.released)) return wrong('The stop has not been confirmed.');
        if (needsContainer && a.collection === null) return wrong('Nothing has been said of the bytes yet.');
        if (command.candidate !== null && (a.collection === null || a.collection.state === 'none')) {
          return wrong('Without collected bytes there is no candidate.');
        }
        const outcome = outcomeOf(a, command.candidate !== null);
        const unknown = [
          ...(a.settling?.steps ?? []).filter((s) => !s.observed).map((s) => s.step as string),
          ...(a.requestOpen ? ['generation'] : []),
          ...(a.container !== null && a.collection?.state !== 'complete' ? ['bytes'] : []),
          ...(supervised && !a.stopped ? ['stop'] : []),
          ...(supervised && !a.released ? ['release'] : []),
        ];
        const eligible = outcome.kind === 'candidate' && a.collection?.state === 'complete';
        const created: SessionEvent[] =
          command.candidate === null
            ? []
            : [
                {
                  type: 'candidate.created',
                  data: {
                    digest: command.candidate.digest,
                    attempt: a.id,
                    author: state.binding.synthetic ? 'rehearsal' : 'model',
                    files: command.candidate.files,
                    eligible,
                  },
                },
              ];
        return accept(...created, {
          type: 'attempt.settled',
          data: { attempt: a.id, outcome, confirmed: !supervised, unknown: [...new Set(unknown)] },
        });
      });
    case 'request-verification': {
      const candidate = state.candidates.find((c) => c.digest === command.candidate);
      if (candidate === undefined) return noCandidate(command.candidate);
      if (!candidate.eligible) {
        return refuse(
          'IncompleteCollection',
          'These bytes are kept as a diagnostic: the attempt did not end as a candidate with complete collection.',
          'Start another attempt.',
        );
      }
      if (state.verifications.some((v) => v.candidate === command.candidate && v.state !== 'done')) {
        return wrong('A verification of this candidate is under way.');
      }
      return accept({ type: 'verification.requested', data: { run: command.run, candidate: command.candidate } });
    }
    case 'start-verification': {
      const run = state.verifications.find((v) => v.run === command.run);
      if (run === undefined || run.state !== 'queued') return wrong('This verification is not waiting.');
      return accept({ type: 'verification.started', data: { run: command.run } });
    }
    case 'finish-verification': {
      const run = state.verifications.find((v) => v.run === command.run);
      if (run === undefined || run.state === 'done') return wrong('This verification is not under way.');
      const { result, reasons, checks } = command;
      return accept({ type: 'verification.done', data: { run: command.run, result, reasons, checks } });
    }
    case 'decide':
      return decideDecision(state, command.decision);
    case 'intend-integration': {
      const candidate = state.candidates.find((c) => c.digest === command.candidate);
      if (candidate === undefined) return noCandidate(command.candidate);
      if (candidate.decision?.kind !== 'accept') {
        return refuse('WrongState', 'Only an accepted candidate can be integrated.', 'Accept the candidate first.');
      }
      const latest = candidate.integrations.at(-1);
      if (
        latest !== undefined &&
        (latest.state === 'integrated' || latest.state === 'intended' || latest.state === 'partial')
      ) {
        return wrong(`The last integration of this candidate is ${latest.state}.`);
      }
      return accept({
        type: 'integration.intended',
        data: {
          id: command.id,
          candidate: command.candidate,
          files: candidate.files.map((f) => f.path),
          unsaved: command.unsaved,
        },
      });
    }
    case 'intend-undo': {
      const candidate = state.candidates.find((c) => c.integrations.some((i) => i.id === command.id));
      const row = candidate?.integrations.find((i) => i.id === command.id);
      if (row === undefined)
        return refuse('NotFound', `There is no integration ${command.id}.`, 'List the session again.');
      if (row.state !== 'integrated' && row.state !== 'undo_refused') {
        return refuse(
          'NotIntegrated',
          `This integration is ${row.state}; there is nothing to undo.`,
          'Nothing needs to be done.',
        );
      }
      if (candidate?.undoing !== null) return wrong('An undo is under way.');
      return accept({ type: 'integration.undoing', data: { id: command.id } });
    }
    case 'observe-integration': {
      const row = state.candidates.flatMap((c) => c.integrations).find((i) => i.id === command.id);
      if (row === undefined)
        return refuse('NotFound', `There is no integration ${command.id}.`, 'List the session again.');
      const undoing = command.state === 'undone' || command.state === 'undo_refused';
      const possible = undoing
        ? row.state === 'integrated' || row.state === 'undo_refused'
        : row.state === 'intended' || row.state === 'partial';
      if (!possible) {
        return undoing
          ? refuse(
              'NotIntegrated',
              `This integration is ${row.state}; there is nothing to undo.`,
              'Nothing needs to be done.',
            )
          : wrong(`This integration is ${row.state}.`);
      }
      return accept({
        type: 'integration.observed',
        data: {
          id: command.id,
          state: command.state,
          reason: command.reason,
          moved: command.moved,
          newFolders: command.newFolders ?? [],
        },
      });
    }
    case 'extend-budget':
      if (state.closed !== null) return wrong('The session is closed.');
      return accept({
        type: 'budget.extended',
        data: { attempts: command.attempts, by: command.by, channel: command.channel },
      });
    case 'close':
      if (state.closed !== null) return accept();
      if (openAttempt(state) !== undefined) return wrong('An attempt is not settled yet.');
      return accept({ type: 'session.closed', data: { reason: command.reason } });
    default:
      return unreachable(command, 'command');
  }
}

const unsettled: readonly AttemptPhase[] = [
  'reserved',
  'provisioning',
  'running',
  'quiescing',
  'collecting',
  'stopping',
  'releasing',
  'cancellation_pending',
];

/** The phase that a step belongs to; null: may be recorded in any phase of settlement. */
const phaseOfStep: Readonly<Record<SettlementStep['step'], AttemptPhase | null>> = {
  revoke: null,
  abort_generation: null,
  quiesce: 'quiescing',
  collect: 'collecting',
  stop: 'stopping',
  release: 'releasing',
  engine_idle: null,
};

function triggerOf(end: AgentEnd): SettlementTrigger {
  switch (end.kind) {
    case 'finished':
      return 'finish';
    case 'limit':
      return 'limit';
    case 'cancelled':
      return 'cancel';
    case 'model_fault':
    case 'resource':
    case 'transport':
    case 'infrastructure':
      return 'fault';
    default:
      return unreachable(end, 'agent end');
  }
}

const noCandidate = (digest: CandidateDigest): Decision =>
  refuse(
    'NotFound',
    `There is no candidate ${digest} in this session.`,
    'Open the session again: a newer candidate may have come.',
  );

function decideDecision(state: SessionState, decision: Omit<DecisionView, 'at'>): Decision {
  const candidate = state.candidates.find((c) => c.digest === decision.candidate);
  if (candidate === undefined) return noCandidate(decision.candidate);
  if (candidate.decision !== null) {
    return refuse(
      'AlreadyDecided',
      `This candidate was ${candidate.decision.kind}ed by ${candidate.decision.reviewer}.`,
      'Start another attempt, or undo the integration.',
    );
  }
  if (decision.kind === 'reject')
    return accept({ type: 'decision.recorded', data: { ...decision, verification: null } });
  if (!candidate.eligible) {
    return refuse(
      'IncompleteCollection',
      'These bytes are a diagnostic, not a candidate: they cannot be accepted.',
      'Start another attempt.',
    );
  }
  if (state.candidates.some((c) => c.decision?.kind === 'accept'))
    return wrong('Another candidate of this session has been accepted.');
  const run = state.verifications.find((v) => v.run === decision.verification);
  if (run === undefined || run.candidate !== decision.candidate || run.state !== 'done') {
    return refuse(
      'NotVerified',
      'The acceptance names no finished verification of these bytes.',
      'Verify the candidate, then decide.',
    );
  }
  const verdict = verdictOf(state, decision.candidate);
  if (run.result !== 'passed' || verdict !== 'passed') {
    return refuse(
      'NotVerified',
      verdict === 'flaky'
        ? 'This candidate passed once and failed once: it is flaky.'
        : `Verification of these bytes: ${run.result ?? 'none'}.`,
      'Reject the candidate, or verify it again.',
    );
  }
  return accept({ type: 'decision.recorded', data: decision });
}
