import type { FencingToken } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { Command, SessionCommand } from './commands.ts';
import { decideAttempt } from './decide-attempt.ts';
import { decideCandidate } from './decide-candidate.ts';
import { accept, refuse, wrong, type Decision, type Now } from './decision.ts';
import { openAttempt, type SessionState } from './state.ts';

/** Extra lease beyond the contract's wall limit, in milliseconds: the loop ends by itself before; this bounds a stuck one. */
export const leaseSlackMs = 60_000;

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

/** Decides one command against one session. Pure: the same arguments give the same answer. */
export function decide(state: SessionState, command: Command, now: Now): Decision {
  // A Kernel that was replaced changes nothing any more. The store refuses it too, inside each transaction.
  if (state.attempts.some((a) => a.epoch > now.epoch)) {
    return refuse('StaleAuthority', 'A later Kernel has taken over.', 'Connect to the Kernel that runs now.');
  }
  switch (command.kind) {
    case 'grant-control':
    case 'release-control':
    case 'queue':
    case 'unqueue':
    case 'park':
    case 'unpark':
    case 'reserve':
    case 'extend-budget':
    case 'close':
      return decideSession(state, command, now);
    case 'request-verification':
    case 'start-verification':
    case 'finish-verification':
    case 'decide':
    case 'intend-integration':
    case 'intend-undo':
    case 'observe-integration':
      return decideCandidate(state, command);
    default:
      return decideAttempt(state, command, now);
  }
}

function decideSession(state: SessionState, command: SessionCommand, now: Now): Decision {
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
      return unreachable(command, 'session command');
  }
}
