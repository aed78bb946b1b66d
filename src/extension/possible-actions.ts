import { candidateActions } from './review/candidate-actions.ts';
import { contextKeys } from './ids.ts';
import { isSessionCurrent, type WindowState } from './window-state.ts';

/** Context keys that say for which commands there is something to act on: the palette lists no other. */
export type PossibleKey = Extract<(typeof contextKeys)[keyof typeof contextKeys], `escrow.can.${string}`>;

/** What a person may do from this window now, over all its sessions. Nothing, when what is shown is not current. */
export function possibleActions(state: WindowState): Readonly<Record<PossibleKey, boolean>> {
  const sessions = [...state.sessions.values()]
    .map(({ value }) => value)
    .filter((session) => isSessionCurrent(state, session));
  const open = sessions.filter((session) => session.state !== 'closed');
  const mine = open.filter(({ id }) => state.controls.has(id));
  const active = (session: (typeof open)[number]): boolean =>
    session.state === 'running' || session.state === 'settling' || session.state === 'queued';
  const candidates = sessions.flatMap((session) => session.candidates);
  const actions = candidates.map(candidateActions);
  return {
    [contextKeys.canCancel]: mine.some(active),
    [contextKeys.canAttempt]: mine.some((session) => !active(session) && session.budget.used < session.budget.attempts),
    [contextKeys.canAttach]: open.length > 0,
    [contextKeys.canDetach]: mine.length > 0,
    [contextKeys.canExtend]: open.some((session) => !active(session) && session.budget.used >= session.budget.attempts),
    [contextKeys.canClose]: mine.some((session) => !active(session)),
    [contextKeys.canOpenCandidate]: candidates.length > 0,
    [contextKeys.canAccept]: actions.some(({ accept }) => accept),
    [contextKeys.canReject]: actions.some(({ reject }) => reject),
    [contextKeys.canVerify]: actions.some(({ verify }) => verify),
    [contextKeys.canIntegrate]: actions.some(({ integrate }) => integrate),
    [contextKeys.canUndo]: actions.some(({ undo }) => undo),
  };
}
