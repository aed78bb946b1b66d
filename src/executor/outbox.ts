import { writeSync } from 'node:fs';
import type { Writable } from 'node:stream';

/**
 * Bytes that may wait in the stream: two full frames, so that the next one is read and hashed while the last is taken.
 * With one, writer and reader would take turns.
 */
const waitingBytes = 512 * 1024;
/** Below this, one copy is cheaper than a gathering write. */
const copiedBytes = 32 * 1024;
const newline = Buffer.from('\n');

/** What goes out as one: a line, and the raw bytes that belong to it. */
export interface OutgoingFrame {
  readonly line: string;
  readonly payload?: Buffer;
  /** Called once, when nobody looks at the payload any more: its memory may be used again. */
  readonly taken?: () => void;
}

interface Job {
  readonly frames: Iterator<OutgoingFrame>;
  readonly over: () => void;
}

/**
 * What the supervisor says, without ever waiting for somebody to listen: frames are made only when the stream takes
 * them. A client that is attached and does not read leaves the queue standing while every timer goes on.
 */
export class Outbox {
  readonly #out: Writable;
  readonly #descriptor: number;
  #jobs: Job[] = [];
  #flushing = false;

  /** `descriptor` is the stream's own, which does not block: libuv opened it. */
  constructor(out: Writable, descriptor: number) {
    this.#out = out;
    this.#descriptor = descriptor;
    // A vanished reader must not end the supervisor.
    out.on('error', () => {});
  }

  /**
   * Queues frames that are made one by one when there is room; jobs keep their order, and one that makes its last frame
   * may queue another. `over` is called once: when all were made, or forgotten.
   */
  send(frames: Iterable<OutgoingFrame>, over: () => void = () => {}): void {
    this.#jobs.push({ frames: frames[Symbol.iterator](), over });
    this.#flush();
  }

  /** Says a line only if it can go out now: a heartbeat that waited would be a lie. */
  sendIfIdle(line: () => string): void {
    if (this.#out.writableLength > 0 || this.#jobs.length > 0) return;
    this.send([{ line: line() }]);
  }

  /** Forgets what was meant for a client that is gone. */
  clear(): void {
    const jobs = this.#jobs;
    this.#jobs = [];
    for (const { frames, over } of jobs) {
      frames.return?.();
      over();
    }
  }

  readonly #flush = (): void => {
    if (this.#flushing) return;
    this.#flushing = true;
    try {
      while (this.#out.writableLength < waitingBytes) {
        const job = this.#jobs[0];
        if (job === undefined) return;
        const next = job.frames.next();
        if (next.done !== true) {
          this.#write(next.value);
          continue;
        }
        // It may have been forgotten while it made its last frame.
        if (this.#jobs[0] !== job) continue;
        this.#jobs.shift();
        job.over();
      }
    } finally {
      this.#flushing = false;
    }
  };

  /** The callback comes also for what can't be written any more: then there is nobody to write to. */
  #write({ line, payload, taken }: OutgoingFrame): void {
    const head = Buffer.from(`${line}\n`);
    if (payload !== undefined && payload.length > copiedBytes) {
      this.#out.cork();
      this.#out.write(head);
      this.#out.write(payload);
      this.#out.write(newline, () => {
        taken?.();
        this.#flush();
      });
      this.#out.uncork();
      return;
    }
    const bytes = payload === undefined ? head : Buffer.concat([head, payload, newline]);
    taken?.();
    const gone = this.#out.writableLength === 0 ? this.#writeNow(bytes) : 0;
    if (gone < bytes.length) this.#out.write(bytes.subarray(gone), this.#flush);
  }

  /** How many bytes the pipe takes at once: an answer to a tool call seldom has to wait, and a stream costs it a tenth. */
  #writeNow(bytes: Buffer): number {
    try {
      return writeSync(this.#descriptor, bytes);
    } catch {
      // It is full, or nobody is there: the stream waits, or says so.
      return 0;
    }
  }
}
