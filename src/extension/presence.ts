/**
 * Proves that the window is there: a round trip to the renderer, again and again. Only a fulfilled round trip counts
 * (once termination begins, calls reject at once). One is in flight at a time: a renderer that is frozen answers all of
 * them late and at once. Gaps of our own timer, as in sleep, do not count as silence.
 */
export interface PresenceOptions {
  /** Resolves when the renderer has answered. */
  readonly roundTrip: () => Promise<unknown>;
  readonly report: (ui: 'present' | 'unreachable', stalledMs: number) => void;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  readonly intervalMs: number;
  /** Silence longer than this is reported as `unreachable`. */
  readonly unreachableAfterMs: number;
}

export class Presence {
  readonly #options: PresenceOptions;
  #inFlight = false;
  #stalledMs = 0;
  #lastTick: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: PresenceOptions) {
    this.#options = options;
    this.#lastTick = options.monotonic();
  }

  start(): void {
    this.tick();
    this.#timer = setInterval(() => this.tick(), this.#options.intervalMs);
    this.#timer.unref();
  }

  dispose(): void {
    clearInterval(this.#timer);
  }

  /** One beat of the timer. */
  tick(): void {
    const { monotonic, intervalMs, unreachableAfterMs, report, roundTrip } = this.#options;
    const now = monotonic();
    const elapsed = now - this.#lastTick;
    this.#lastTick = now;
    if (this.#inFlight) {
      // A beat that came much too late says that this process slept, not that the window did.
      this.#stalledMs += Math.min(elapsed, intervalMs * 2);
      if (this.#stalledMs >= unreachableAfterMs) report('unreachable', this.#stalledMs);
      return;
    }
    this.#inFlight = true;
    roundTrip().then(
      () => {
        this.#inFlight = false;
        this.#stalledMs = 0;
        report('present', 0);
      },
      () => {
        // Not fulfilled: nothing was proved. The next beat asks again, and the silence goes on.
        this.#inFlight = false;
        this.#stalledMs += intervalMs;
        if (this.#stalledMs >= unreachableAfterMs) report('unreachable', this.#stalledMs);
      },
    );
  }
}
