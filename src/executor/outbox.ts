import type { Writable } from 'node:stream';

/**
 * What the supervisor says, without ever waiting for somebody to listen: lines are made only when the stream takes
 * them. A client that is attached and does not read leaves the queue standing while every timer goes on.
 */
export class Outbox {
  readonly #out: Writable;
  #jobs: Iterator<string>[] = [];
  #blocked = false;

  constructor(out: Writable) {
    this.#out = out;
    // A vanished reader must not end the supervisor.
    out.on('error', () => {});
    out.on('drain', () => {
      this.#blocked = false;
      this.#flush();
    });
  }

  /** Queues lines that are made one by one when there is room; jobs keep their order. */
  send(lines: Iterable<string>): void {
    this.#jobs.push(lines[Symbol.iterator]());
    this.#flush();
  }

  /** Says a line only if it can go out now: a heartbeat that waited would be a lie. */
  sendIfIdle(line: () => string): void {
    if (this.#blocked || this.#jobs.length > 0) return;
    this.send([line()]);
  }

  /** Forgets what was meant for a client that is gone. Each iterator is told, so that it can give back its bytes. */
  clear(): void {
    const jobs = this.#jobs;
    this.#jobs = [];
    for (const job of jobs) job.return?.();
  }

  #flush(): void {
    while (!this.#blocked) {
      const job = this.#jobs[0];
      if (job === undefined) return;
      const next = job.next();
      if (next.done === true) {
        this.#jobs.shift();
        continue;
      }
      this.#blocked = !this.#out.write(`${next.value}\n`);
    }
  }
}
