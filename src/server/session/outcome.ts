import { unreachable } from '../../protocol/primitives.ts';
import type { AttemptOutcome, AttemptPhase, SettlementTrigger } from '../../protocol/attempt.ts';
import type { AttemptIn, SettlingPhase } from './state.ts';

export interface Outcome {
  readonly kind: AttemptOutcome;
  /** The phase in which it arose. */
  readonly phase: AttemptPhase;
  /** A code for programs. */
  readonly reason: string;
  /** Plain facts for people; may hold hostile text. */
  readonly detail: string;
}

/** Ends that the outside brought about, whatever the agent was doing. */
const forced: Readonly<Partial<Record<SettlementTrigger, AttemptOutcome>>> = {
  cancel: 'cancelled',
  window_close: 'cancelled',
  ui_unreachable: 'cancelled',
  controller_lost: 'cancelled',
  kernel_drain: 'interrupted',
  kernel_restart: 'interrupted',
  lease_expired: 'interrupted',
};

/**
 * The one outcome of an attempt (table in design 10), from what is recorded of it. `changed`: the collected bytes differ
 * from the snapshot. Security findings come first, then bytes that are gone, then the forced ends, then the agent's own.
 */
export function outcomeOf(attempt: AttemptIn<SettlingPhase>, changed: boolean): Outcome {
  const phase = attempt.settling.from;
  const outcome = (kind: AttemptOutcome, reason: string, detail = ''): Outcome => ({ kind, phase, reason, detail });
  const { collection, end, settling } = attempt;

  const broken = attempt.limits.find((l) => !l.inForce);
  if (broken !== undefined) return outcome('incident', 'limit_not_in_force', broken.name);
  // Before the attempt ran, its files were not all in place: what is missing then says nothing.
  const worked = phase === 'running';
  if (worked && collection !== null && collection.violations.length > 0) {
    return outcome('incident', 'files_changed_outside_scope', collection.violations.slice(0, 8).join(', '));
  }
  if (worked && collection?.equalsAudit === false) return outcome('incident', 'bytes_differ_from_audit');

  const { trigger } = settling;
  const forcedKind = forced[trigger];
  const gone = worked && (collection === null || collection.state === 'none') && forcedKind !== 'cancelled';
  if (gone) {
    const stop = settling.steps.find((step) => step.step === 'stop');
    if (stop?.facts['endedByOom'] === true) return outcome('resource', 'oom_killed', collection?.reason ?? '');
    // The channel's end alone is no fault of the engine: the container and its memory went.
    if (end?.kind !== 'infrastructure' || end.code.startsWith('channel_')) {
      // What had ended the work, as far as it is known: a full disk, mostly.
      return outcome(
        'lost',
        collection?.reason ?? 'nothing_collected',
        end !== null && 'detail' in end ? end.detail : '',
      );
    }
  }
  if (forcedKind !== undefined) return outcome(forcedKind, trigger);
  if (end === null) return outcome('infrastructure', 'no_end_recorded');

  switch (end.kind) {
    case 'finished':
      if (collection === null || collection.state !== 'complete' || !collection.auditAgrees) {
        return outcome('incomplete', collection?.reason ?? 'not_collected');
      }
      return changed ? outcome('candidate', 'finished', end.message) : outcome('no_change', 'finished', end.message);
    case 'limit':
      return outcome('limit', end.which, end.detail);
    case 'model_fault':
      return outcome('model_fault', end.code, end.detail);
    case 'resource':
      return outcome('resource', end.code, end.detail);
    case 'transport':
      return outcome('transport', end.code, end.detail);
    case 'infrastructure':
      return outcome('infrastructure', end.code, end.detail);
    case 'cancelled':
      return outcome('cancelled', 'cancel');
    default:
      return unreachable(end, 'agent end');
  }
}
