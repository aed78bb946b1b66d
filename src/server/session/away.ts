import type { WallTime } from '../../protocol/primitives.ts';
import type { SettlementTrigger } from '../../protocol/attempt.ts';
import type { AwaySummary } from '../../protocol/views.ts';
import type { Sessions } from './sessions.ts';
import { lastAttempt } from './state.ts';

/** Ends that happened because nobody was there, or while nobody was. */
const unattended: readonly SettlementTrigger[] = [
  'window_close',
  'ui_unreachable',
  'controller_lost',
  'kernel_drain',
  'kernel_restart',
  'lease_expired',
];

/** Sessions looked at: newer ones than this many are what a person can take in. */
const most = 50;

/** What happened since a window was last there: settlements without it, and what is still pending. Pure reading. */
export function awaySummary(sessions: Sessions, since: WallTime | null): AwaySummary {
  const items = sessions.summaries({ limit: most }).flatMap((summary) => {
    if (since === null || summary.updatedAt <= since) return [];
    const attempt = lastAttempt(sessions.get(summary.id));
    if (attempt === undefined || attempt.settling === null) return [];
    const pending = attempt.phase === 'cancellation_pending';
    const told = unattended.includes(attempt.settling.trigger) && (attempt.settled?.at ?? Infinity) > since;
    if (!pending && !told) return [];
    return [
      {
        session: summary.id,
        title: summary.title,
        outcome: attempt.settled?.outcome.kind ?? null,
        trigger: attempt.settling.trigger,
        confirmed: attempt.settled?.confirmed ?? false,
        pending,
      },
    ];
  });
  return { since, items };
}
