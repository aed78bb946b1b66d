export interface KernelHeartbeatOptions {
  /** One small question; settles with the answer, whatever it says, or with the end of the connection. */
  readonly ask: (ui: 'present' | 'unreachable', stalledMs: number) => Promise<unknown>;
  /** Told when the Kernel falls silent and when it answers again. */
  readonly onAnswering: (answering: boolean) => void;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  /** A question that waits longer for its answer says that the Kernel is silent. */
  readonly silentAfterMs: number;
}

/**
 * Says whether the Kernel answers. A connection that stays open proves nothing: a process that is stopped, or busy
 * without end, keeps its socket, and what it said last would stand in the window as if it were so now. The question is
 * the window's report of its own presence; one is under way at a time.
 */
export class KernelHeartbeat {
  readonly #options: KernelHeartbeatOptions;
  #askedAt: number | undefined;
  #answering = true;

  constructor(options: KernelHeartbeatOptions) {
    this.#options = options;
  }

  /** One beat of the presence: asks, or sees how long the last question has waited. */
  beat(ui: 'present' | 'unreachable', stalledMs: number): void {
    const { ask, monotonic, silentAfterMs } = this.#options;
    if (this.#askedAt !== undefined) {
      if (monotonic() - this.#askedAt >= silentAfterMs) this.#say(false);
      return;
    }
    this.#askedAt = monotonic();
    const answered = (): void => {
      this.#askedAt = undefined;
      this.#say(true);
    };
    // A refusal is an answer too.
    ask(ui, stalledMs).then(answered, answered);
  }

  #say(answering: boolean): void {
    if (this.#answering === answering) return;
    this.#answering = answering;
    this.#options.onAnswering(answering);
  }
}
