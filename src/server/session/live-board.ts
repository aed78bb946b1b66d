import type { SessionId } from '../../protocol/primitives.ts';
import type { LiveInference } from '../../protocol/views.ts';

/** Milliseconds between two tellings of the same request: what an eye can follow. */
const tellEveryMs = 200;

/**
 * What running requests do at this moment, per session. Shown and forgotten: nothing of it is evidence. Tells at most a
 * few times a second, and the end at once.
 */
export class LiveBoard {
  readonly #tell: (session: SessionId, live: LiveInference | null) => void;
  readonly #now = new Map<SessionId, LiveInference>();
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
      if (this.#now.delete(session)) this.#tell(session, null);
      return;
    }
    const fresh = this.#now.get(session)?.state !== live.state;
    this.#now.set(session, live);
    if (fresh) this.#tell(session, live);
    if (this.#timers.has(session)) return;
    const timer = setTimeout(() => {
      this.#timers.delete(session);
      const newest = this.#now.get(session);
      if (newest !== undefined && newest !== live) this.#tell(session, newest);
    }, tellEveryMs);
    timer.unref();
    this.#timers.set(session, timer);
  }
}
