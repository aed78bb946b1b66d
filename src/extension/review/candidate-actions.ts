import type { RunId } from '../../protocol/primitives.ts';
import type { CandidateView, IntegrationView } from '../../protocol/views.ts';

/** What a person may do with a candidate as the Kernel last showed it. The Kernel checks again, and it decides. */
export interface CandidateActions {
  readonly accept: boolean;
  readonly reject: boolean;
  readonly verify: boolean;
  readonly integrate: boolean;
  readonly undo: boolean;
  /** The verification that an acceptance names. */
  readonly passedVerification: RunId | null;
  /** The integration that can be undone. */
  readonly integrated: IntegrationView | null;
}

export function candidateActions(candidate: CandidateView): CandidateActions {
  const passed = candidate.verifications.findLast((run) => run.state === 'done' && run.result === 'passed');
  const running = candidate.verifications.some((run) => run.state !== 'done');
  const undecided = candidate.decision === null;
  const latest = candidate.integrations.at(-1) ?? null;
  const integrated = latest?.state === 'integrated' || latest?.state === 'undo_refused' ? latest : null;
  return {
    accept: undecided && candidate.eligible && candidate.verdict === 'passed' && passed !== undefined,
    reject: undecided,
    verify: undecided && candidate.eligible && !running,
    integrate: candidate.decision?.kind === 'accept' && integrated === null && latest?.state !== 'intended',
    undo: integrated !== null,
    passedVerification: passed?.runId ?? null,
    integrated,
  };
}
