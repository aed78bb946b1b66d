import type { AttemptId, FencingToken } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { AttemptPhase, SettlementTrigger } from '../../protocol/attempt.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { AttemptCommand } from './commands.ts';
import { accept, refuse, wrong, type Decision, type Now } from './decision.ts';
import type { SessionEvent } from './events.ts';
import { outcomeOf } from './outcome.ts';
import {
  settlingPhases,
  workingPhases,
  type AttemptIn,
  type AttemptState,
  type SessionState,
  type SettlingPhase,
} from './state.ts';

/** Everything before the end: what was observed may be recorded in each. */
const unsettled = [...workingPhases, ...settlingPhases, 'cancellation_pending'] as const;

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

function withAttempt<P extends AttemptPhase>(
  state: SessionState,
  id: AttemptId,
  phases: readonly P[],
  what: string,
  then: (attempt: AttemptIn<P>) => Decision,
): Decision {
  const attempt = state.attempts.find((a) => a.id === id);
  if (attempt === undefined)
    return refuse('NotFound', `There is no attempt ${id} in this session.`, 'List the session again.');
  if (!isIn(attempt, phases)) return wrong(`${what} is not possible while the attempt is ${attempt.phase}.`);
  return then(attempt);
}

const isIn = <P extends AttemptPhase>(attempt: AttemptState, phases: readonly P[]): attempt is AttemptIn<P> =>
  (phases as readonly AttemptPhase[]).includes(attempt.phase);

/** Decides one command to one attempt of a session. Pure. */
export function decideAttempt(state: SessionState, command: AttemptCommand, now: Now): Decision {
  switch (command.kind) {
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
      return withAttempt(state, command.attempt, ['running'], 'A request', (a) => {
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
      return withAttempt(state, command.attempt, ['running'], 'A result', (a) => {
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
      return withAttempt(state, command.attempt, workingPhases, 'An end', (a) => {
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
      if (!isIn(attempt, workingPhases)) return accept(); // the first trigger stands
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
      return withAttempt(state, command.attempt, settlingPhases, 'A step', (a) => {
        const needs = phaseOfStep[command.step];
        if (needs !== null && a.phase !== needs) return wrong(`${command.step} is not a step of ${a.phase}.`);
        return accept({
          type: 'attempt.step',
          data: { attempt: a.id, step: command.step, observed: command.observed, facts: command.facts },
        });
      });
    case 'collected':
      return withAttempt(state, command.attempt, ['collecting'], 'Collection', (a) =>
        accept({ type: 'attempt.collected', data: { attempt: a.id, collection: command.collection } }),
      );
    case 'pend':
      return withAttempt(state, command.attempt, settlingPhases, 'Waiting', (a) =>
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
        if (pending.since !== command.since) {
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
        if (command.candidate !== null && a.settling.from !== 'running') {
          return wrong('An attempt whose files were never all in place has no candidate.');
        }
        const outcome = outcomeOf(a, command.candidate !== null);
        const unknown = [
          ...a.settling.steps.filter((s) => !s.observed).map((s) => s.step as string),
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
    default:
      return unreachable(command, 'attempt command');
  }
}

/** The phase that a step belongs to; null: may be recorded in any phase of settlement. */
const phaseOfStep: Readonly<Record<Extract<AttemptCommand, { kind: 'step' }>['step'], SettlingPhase | null>> = {
  revoke: null,
  abort_generation: null,
  quiesce: 'quiescing',
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
