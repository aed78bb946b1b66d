import type { Writable } from 'node:stream';

/**
 * Bytes that may wait in the stream. A line is larger than a pipe takes at once: with only one in it, writer and reader
 * would take turns instead of working side by side.
 */
const waitingBytes = 512 * 1024;

/**
 * What the supervisor says, without ever waiting for somebody to listen: lines are made only when the stream takes
 * them. A client that is attached and does not read leaves the queue standing while every timer goes on.
 */
export class Outbox {
  readonly #out: Writable;
  #jobs: Iterator<string | Buffer>[] = [];

  constructor(out: Writable) {
    this.#out = out;
    // A vanished reader must not end the supervisor.
    out.on('error', () => {});
  }

  /** Queues lines that are made one by one when there is room; jobs keep their order. A buffer brings its newline. */
  send(lines: Iterator<string | Buffer>): void {
    this.#jobs.push(lines);
    this.#flush();
  }

  /** Says a line only if it can go out now: a heartbeat that waited would be a lie. */
  sendIfIdle(line: () => string): void {
    if (this.#out.writableLength > 0 || this.#jobs.length > 0) return;
    this.send([line()].values());
  }

  /** Forgets what was meant for a client that is gone. Each iterator is told, so that it can give back its bytes. */
  clear(): void {
    const jobs = this.#jobs;
    this.#jobs = [];
    for (const job of jobs) job.return?.();
  }

  readonly #flush = (): void => {
    while (this.#out.writableLength < waitingBytes) {
      const job = this.#jobs[0];
      if (job === undefined) return;
      const next = job.next();
      if (next.done === true) {
        this.#jobs.shift();
        continue;
      }
      // Called also for what can't be written any more: then there is nobody to write to.
      const line = typeof next.value === 'string' ? `${next.value}\n` : next.value;
      this.#out.write(line, this.#flush);
    }
  };
}
