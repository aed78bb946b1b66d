import type { Result } from '../../protocol/methods.ts';
import type { WallTime } from '../../protocol/primitives.ts';
import type { SessionSummary } from '../../protocol/views.ts';
import type { Store } from '../store/port.ts';
import type { Sessions } from './sessions.ts';
import type { SessionState } from './state.ts';
import { isOpen } from './view.ts';

type Kept = Result<'kernel/retention'>['kept'];
type KeepReason = keyof Kept;

/** Why a session's bytes must stay, or null when they may go. Pure. */
export function keepReason(state: SessionState, before: WallTime): KeepReason | null {
  if (isOpen(state)) return 'open';
  if (state.candidates.some((c) => c.decision?.kind === 'accept')) return 'accepted';
  if (state.closed === null && state.candidates.some((c) => c.eligible && c.decision === null)) return 'undecided';
  return state.updatedAt >= before ? 'recent' : null;
}

export interface RetentionRequest {
  readonly before: WallTime;
  /** Who decided; undefined: a preview, nothing changes. */
  readonly by: { readonly name: string; readonly channel: 'window' | 'tty' | 'script' } | undefined;
}

/**
 * Lets go of the bytes (artefacts) of old sessions that nobody accepted: previewed, or recorded and done. The log keeps
 * every event. Whatever is open, accepted, undecided or newer stays.
 */
export async function applyRetention(
  sessions: Sessions,
  store: Store,
  request: RetentionRequest,
): Promise<Result<'kernel/retention'>> {
  const kept: Record<KeepReason, number> = { open: 0, accepted: 0, undecided: 0, recent: 0 };
  const go: SessionSummary[] = [];
  for (const summary of sessions.summaries({})) {
    // Cheap first: only what is old is folded.
    const reason =
      summary.updatedAt >= request.before ? 'recent' : keepReason(sessions.get(summary.id), request.before);
    if (reason === null) go.push(summary);
    else kept[reason] += 1;
  }
  const owners = go.map((s) => s.id);
  const { by, before } = request;
  const event =
    by === undefined || go.length === 0
      ? undefined
      : { type: 'retention.applied', data: { by: by.name, channel: by.channel, before, sessions: owners } };
  const { artefacts, bytes } = await store.letGo(owners, event);
  return {
    applied: event !== undefined,
    sessions: go.map(({ id, title, updatedAt, outcome, decision }) => ({ id, title, updatedAt, outcome, decision })),
    artefacts,
    bytes,
    kept,
  };
}
