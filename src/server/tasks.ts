import { setTimeout as wait } from 'node:timers/promises';
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

  /** Waits until everything has ended, also what began meanwhile, at most `ms`. True when it has. */
  async settled(ms: number): Promise<boolean> {
    const timeout = new AbortController();
    const deadline = wait(ms, undefined, { signal: timeout.signal, ref: false }).catch(() => undefined);
    const all = async (): Promise<void> => {
      while (this.#running.size > 0) await Promise.all(this.#running);
    };
    await Promise.race([all(), deadline]);
    timeout.abort();
    return this.#running.size === 0;
  }
}
