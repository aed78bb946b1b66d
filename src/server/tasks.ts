import type { Logger } from './log.ts';

/** Owner of work that goes on after the request that began it: nothing floats, a failure is logged, drain can wait. */
export class Tasks {
  readonly #log: Logger;
  readonly #running = new Set<Promise<void>>();

  constructor(log: Logger) {
    this.#log = log;
  }

  own(what: string, work: Promise<unknown>): void {
    const task: Promise<void> = work
      .then(
        () => undefined,
        (error: unknown) => {
          this.#log('error', 'a background task failed', {
            what,
            error: error instanceof Error ? (error.stack ?? error.message) : String(error),
          });
        },
      )
      .finally(() => this.#running.delete(task));
    this.#running.add(task);
  }

  get count(): number {
    return this.#running.size;
  }

  /** Waits until everything has ended, at most `ms`. True when it has. */
  async settled(ms: number): Promise<boolean> {
    const deadline = new Promise<void>((resolve) => {
      setTimeout(resolve, ms).unref();
    });
    let over = false;
    const timeout = deadline.then(() => {
      over = true;
    });
    while (this.#running.size > 0 && !over) await Promise.race([Promise.all(this.#running), timeout]);
    return this.#running.size === 0;
  }
}
