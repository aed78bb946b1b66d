import type { SessionId } from '../../protocol/primitives.ts';
import type { LiveInference } from '../../protocol/attempt.ts';

/** Milliseconds between two tellings of the same request: what an eye can follow. */
const tellEveryMs = 200;

/**
 * What running requests do at this moment, per session. Shown and forgotten: nothing of it is evidence. Tells at most a
 * few times a second, and the end at once.
 */
export class LiveBoard {
  readonly #tell: (session: SessionId, live: LiveInference | null) => void;
  readonly #now = new Map<SessionId, LiveInference>();
  readonly #told = new Map<SessionId, LiveInference>();
  readonly #timers = new Map<SessionId, NodeJS.Timeout>();

  constructor(tell: (session: SessionId, live: LiveInference | null) => void) {
    this.#tell = tell;
  }

  get(session: SessionId): LiveInference | null {
    return this.#now.get(session) ?? null;
  }

  put(session: SessionId, live: LiveInference | null): void {
    if (live === null) {
      clearTimeout(this.#timers.get(session));
      this.#timers.delete(session);
      this.#told.delete(session);
      if (this.#now.delete(session)) this.#tell(session, null);
      return;
    }
    this.#now.set(session, live);
    // A new state at once; more of the same state when it is its turn.
    if (this.#told.get(session)?.state !== live.state || !this.#timers.has(session)) this.#tellNow(session, live);
  }

  #tellNow(session: SessionId, live: LiveInference): void {
    this.#told.set(session, live);
    this.#tell(session, live);
    clearTimeout(this.#timers.get(session));
    const timer = setTimeout(() => {
      this.#timers.delete(session);
      const newest = this.#now.get(session);
      if (newest !== undefined && newest !== this.#told.get(session)) this.#tellNow(session, newest);
    }, tellEveryMs);
    timer.unref();
    this.#timers.set(session, timer);
  }
}
