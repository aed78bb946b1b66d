import type { ErrorCode } from '../../protocol/errors.ts';
import type { SessionEvent } from './events.ts';

/** What the decider is told of the world: handed in, never read. */
export interface Now {
  /** Monotonic milliseconds of this Kernel. */
  readonly mono: number;
  readonly epoch: number;
  /** Attempts counted and allowed for this contract and qualification key, over all sessions. */
  readonly ledger: { readonly spent: number; readonly allowed: number };
}

export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly next: string;
}
/** The events that a command leads to, none where it is done already; or why it may not be. */
export type Decision =
  { readonly ok: true; readonly events: readonly SessionEvent[] } | { readonly ok: false; readonly refusal: Refusal };

export const accept = (...events: SessionEvent[]): Decision => ({ ok: true, events });
export const refuse = (code: ErrorCode, message: string, next: string): Decision => ({
  ok: false,
  refusal: { code, message, next },
});
/** Refused because of the state alone: another one may allow it. */
export const wrong = (message: string): Decision =>
  refuse('WrongState', message, 'Look at the session as it is now and try again.');
