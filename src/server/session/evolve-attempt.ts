import { unreachable } from '../../protocol/primitives.ts';
import type { SettlementStep } from '../../protocol/attempt.ts';
import type { UsePeaks } from '../sandbox/monitor.ts';
import type { RecordedEvent } from './events.ts';
import type {
  AttemptFacts,
  AttemptStage,
  AttemptState,
  ContainerState,
  QueuedAttempt,
  Settling,
  SettlingPhase,
} from './state.ts';
import { noUsage, used } from './usage.ts';

/** Activity kept in a view; the whole is in the event log. */
export const activityKept = 200;

/** Events of an attempt that exists: each names it. */
export type AttemptEvent = Exclude<
  Extract<RecordedEvent, { type: `attempt.${string}` }>,
  { type: `attempt.${'queued' | 'unqueued' | 'parked' | 'unparked' | 'reserved'}` }
>;
type Reserved = Extract<RecordedEvent, { type: 'attempt.reserved' }>;

/** An attempt as it is when it has been counted and nothing else happened. */
export function reservedAttempt(event: Reserved, queued: QueuedAttempt | null, counted: number): AttemptState {
  return {
    id: event.data.attempt,
    number: queued?.number ?? counted + 1,
    feedback: queued?.feedback ?? null,
    reservedAt: event.at,
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
    supervised: null,
    collection: null,
    stopped: false,
    released: false,
    candidate: null,
    phase: 'reserved',
    settling: null,
    pending: null,
    settled: null,
  };
}

/**
 * Folds one event into its attempt. Total: what a decider of this version would not have allowed (a damaged or foreign
 * log) leaves the stage as it is, so that every session opens.
 */
export function evolveAttempt(a: AttemptState, event: AttemptEvent): AttemptState {
  const at = event.at;
  switch (event.type) {
    case 'attempt.provisioning':
      return know(working(a, 'provisioning'), {
        container: { name: event.data.container, engineId: null, state: 'intended', observedAt: null },
      });
    case 'attempt.container':
      return know(a, seen(a, { engineId: event.data.engineId, state: event.data.state, observedAt: at }));
    case 'attempt.limits':
      return know(a, { limits: event.data.limits });
    case 'attempt.running':
      return working(a, 'running');
    case 'attempt.engine':
      return know(a, { engine: event.data.engine });
    case 'attempt.request':
      return know(a, { requests: event.data.n, requestOpen: true });
    case 'attempt.turn':
      return know(a, {
        requestOpen: false,
        promptTokens: a.promptTokens + (event.data.receipt.promptTokens ?? 0),
        outputTokens: a.outputTokens + (event.data.receipt.outputTokens ?? 0),
        usage: used(a.usage, event.data.receipt, false),
      });
    case 'attempt.failure':
      return know(a, { requestOpen: false, usage: used(a.usage, event.data.receipt, true) });
    case 'attempt.activity':
      return know(a, {
        activityCount: a.activityCount + 1,
        firstToolAt: a.firstToolAt ?? (event.data.item.kind === 'tool' ? at : null),
        activity: [...a.activity.slice(-(activityKept - 1)), { ...event.data.item, n: a.activityCount + 1, at }],
      });
    case 'attempt.witnessed':
      return know(a, { witness: { entries: event.data.entries, head: event.data.head } });
    case 'attempt.ended':
      return know(a, { end: event.data.end });
    case 'attempt.settling': {
      if (a.settling !== null) return a;
      const settling: Settling = { trigger: event.data.trigger, at, from: a.phase, steps: [] };
      return enter(a, { phase: 'quiescing', settling, pending: null, settled: null });
    }
    case 'attempt.step': {
      const { step, observed, facts } = event.data;
      const after = carried(a, { step, at, observed, facts });
      if (step === 'stop' && observed)
        return know(after, { stopped: true, ...seen(a, { state: 'stopped', observedAt: at }) });
      if (step === 'release' && observed)
        return know(after, { released: true, ...seen(a, { state: 'absent', observedAt: at }) });
      return after;
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
      return know(carried(a, { step: 'collect', at, observed: kept !== 'none', facts }), { collection });
    }
    case 'attempt.pending': {
      const { blockedIn, waitingFor } = event.data;
      const container = seen(a, { state: 'unknown', observedAt: at });
      if (!isSettling(a)) return know(a, container);
      const pending = { since: at, blockedIn, waitingFor };
      return know(enter(a, { phase: 'cancellation_pending', settling: a.settling, pending, settled: null }), container);
    }
    case 'attempt.unblocked':
      if (a.phase !== 'cancellation_pending') return a;
      return enter(a, { phase: a.pending.blockedIn, settling: a.settling, pending: null, settled: null });
    case 'attempt.reconciled': {
      const { attempt: _, ...action } = event.data;
      const supervised = { at, ...action };
      if (a.phase !== 'cancellation_pending') return know(a, { supervised });
      return know(enter(a, { phase: 'releasing', settling: a.settling, pending: null, settled: null }), { supervised });
    }
    case 'attempt.settled': {
      if (a.settling === null) return a;
      const { outcome, confirmed, unknown } = event.data;
      const settled = { at, outcome, confirmed, unknown };
      return enter(a, { phase: 'settled', settling: a.settling, pending: null, settled });
    }
    default:
      return unreachable(event, 'attempt event');
  }
}

const know = (a: AttemptState, facts: Partial<AttemptFacts>): AttemptState => ({ ...a, ...facts });
const enter = (a: AttemptState, stage: AttemptStage): AttemptState => ({ ...a, ...stage });

const working = (a: AttemptState, phase: 'provisioning' | 'running'): AttemptState =>
  a.settling === null ? enter(a, { phase, settling: null, pending: null, settled: null }) : a;

const isSettling = (a: AttemptState): a is AttemptState & { readonly phase: SettlingPhase } =>
  a.settling !== null && a.pending === null && a.settled === null;

const seen = (a: AttemptState, patch: Partial<ContainerState>): { readonly container: ContainerState | null } => ({
  container: a.container === null ? null : { ...a.container, ...patch },
});

/** A step of settlement was carried out, seen or not. */
function carried(a: AttemptState, done: SettlementStep): AttemptState {
  if (!isSettling(a)) return a;
  const settling = { ...a.settling, steps: [...a.settling.steps, done] };
  return enter(a, { phase: afterStep(done, a.phase), settling, pending: null, settled: null });
}

/** The phase that follows a step: quiescing and collecting are left whatever was seen, a stop only when it was. */
function afterStep({ step, observed }: SettlementStep, phase: SettlingPhase): SettlingPhase {
  if (step === 'quiesce' && phase === 'quiescing') return 'collecting';
  if (step === 'collect') return 'stopping';
  if (step === 'stop' && observed && phase === 'stopping') return 'releasing';
  return phase;
}

/** What a sandbox used, as facts of the step that observed it; null is "unavailable". */
function usedFacts(peaks: UsePeaks | undefined): Readonly<Record<string, number | null>> {
  if (peaks === undefined) return {};
  const { memory, pids, cpuUs, oomKills } = peaks;
  return { memoryPeak: memory, pidsPeak: pids, cpuMs: cpuUs === null ? null : Math.round(cpuUs / 1000), oomKills };
}
