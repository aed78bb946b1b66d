import { unreachable } from '../../protocol/primitives.ts';
import type { AttemptState } from './state.ts';

/** What to do next for an attempt, chosen from its state alone: the same function serves a live Kernel and recovery. */
export type Effect =
  | { readonly kind: 'provision' }
  | { readonly kind: 'work' }
  | { readonly kind: 'quiesce' }
  | { readonly kind: 'collect' }
  | { readonly kind: 'stop' }
  | { readonly kind: 'release' }
  | { readonly kind: 'finish' }
  | { readonly kind: 'observe'; readonly waitingFor: string }
  | { readonly kind: 'none' };

/** Pure. An attempt that never intended a container goes from quiescing straight to its end. */
export function next(attempt: AttemptState): Effect {
  switch (attempt.phase) {
    case 'reserved':
    case 'provisioning':
      return { kind: 'provision' };
    case 'running':
      return { kind: 'work' };
    case 'quiescing':
      return attempt.container === null ? { kind: 'finish' } : { kind: 'quiesce' };
    case 'collecting':
      return { kind: 'collect' };
    case 'stopping':
      return { kind: 'stop' };
    case 'releasing':
      return attempt.released || attempt.supervised !== null ? { kind: 'finish' } : { kind: 'release' };
    case 'cancellation_pending':
      return { kind: 'observe', waitingFor: attempt.pending.waitingFor };
    case 'settled':
      return { kind: 'none' };
    default:
      return unreachable(attempt, 'phase');
  }
}
