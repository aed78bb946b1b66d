import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import {
  channelBounds,
  executorProtocol,
  resync,
  type ExecutorRequest,
  type ToExecutor,
} from '../../protocol/executor.ts';

const newline = Buffer.from('\n');
const noBytes = Buffer.alloc(0);
/** Below this, one copy is cheaper than a gathering write; what is sent must not change before it has gone. */
const copiedBytes = 32 * 1024;

/** Distributes over the union, so that each kind of frame keeps its own members. */
type Body<F> = F extends unknown ? Omit<F, 'v' | 'n' | 'e' | 'k'> : never;

export interface OutgoingOptions {
  readonly stream: Duplex;
  readonly nonce: string;
  readonly epoch: number;
  /** The secret of this client. */
  readonly key: string;
  /** Resolves once nothing can be said any more: who waits for room waits no longer. */
  readonly ended: Promise<unknown>;
  /** Called by name around the frames of requests. */
  readonly at?: ((point: string) => void) | undefined;
}

export interface Departure {
  readonly payload: Uint8Array;
  /** Whether its answer is still waited for: what was refused early is not sent to its end. */
  readonly wanted: () => boolean;
  /** Called once, when all of it is on its way or nothing can be sent any more. */
  readonly sent: () => void;
}

/** What one client says to a supervisor: frames in the order in which they were asked for, each with its bytes. */
export class Outgoing {
  readonly #options: OutgoingOptions;
  #ended = false;
  /** The last of what could not be written at once; undefined where nothing waits. Never rejects. */
  #sending: Promise<void> | undefined;

  constructor(options: OutgoingOptions) {
    this.#options = options;
  }

  /** From now on nothing is written. */
  end(): void {
    this.#ended = true;
  }

  /** Ends whatever a dead client has left half said. */
  resync(): void {
    if (!this.#ended) this.#options.stream.write(resync);
  }

  /** What each frame of this client begins with. */
  get envelope() {
    const { nonce, epoch, key } = this.#options;
    return { v: executorProtocol, n: nonce, e: epoch, k: key } as const;
  }

  /** Says something that nobody answers and that carries nothing; it may come between the parts of a request. */
  say(body: Body<Extract<ToExecutor, { t: 'hello' | 'beat' | 'cancel' }>>): void {
    this.#write({ ...this.envelope, ...body }, noBytes);
  }

  /** A request and its bytes. Parts must follow it before any other: what can't be written at once has others wait. */
  request(request: ExecutorRequest, { payload, wanted, sent }: Departure): void {
    const begin = (): Promise<void> | undefined => this.#begin(request, payload, wanted);
    const sending = this.#sending === undefined ? begin() : this.#sending.then(begin);
    if (sending === undefined) {
      sent();
      return;
    }
    const turn = sending.then(() => {
      if (this.#sending === turn) this.#sending = undefined;
      sent();
    });
    this.#sending = turn;
  }

  /** Undefined where all of it could be written at once. */
  #begin(request: ExecutorRequest, payload: Uint8Array, wanted: () => boolean): Promise<void> | undefined {
    if (this.#ended) return undefined;
    this.#options.at?.(`frame-before-${request.t}`);
    const whole = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
    const first = whole.subarray(0, channelBounds.upChunkBytes);
    const free = this.#write(request, first);
    this.#options.at?.(`frame-sent-${request.t}`);
    return free && first.length === whole.length
      ? undefined
      : this.#rest(request.id, whole.subarray(first.length), wanted, free);
  }

  async #rest(id: number, rest: Buffer, wanted: () => boolean, wasFree: boolean): Promise<void> {
    let free = wasFree;
    for (let offset = 0, seq = 0; ; seq += 1) {
      // What is long must not pile up in memory.
      if (!free && !this.#ended) {
        await Promise.race([once(this.#options.stream, 'drain').catch(() => {}), this.#options.ended]);
      }
      if (offset >= rest.length || !wanted()) return;
      const part = rest.subarray(offset, offset + channelBounds.upChunkBytes);
      free = this.#write({ ...this.envelope, t: 'data', id, seq, p: part.length }, part);
      offset += part.length;
    }
  }

  /**
   * A frame and the bytes that belong to it, in one write; whether there is room for more. It begins with a newline: what
   * came before it may be somebody else's half line. What a dead client left in the engine's buffers comes also after our
   * hello, up to some hundred KiB, between our writes: only those of more than a page of the pipe (4 KiB) can be broken
   * by it, and those carry a hash of their bytes.
   */
  #write(frame: ToExecutor, payload: Buffer): boolean {
    const line = `\n${JSON.stringify(frame)}\n`;
    const { stream } = this.#options;
    if (this.#ended || !stream.writable) return false;
    if (payload.length <= copiedBytes) {
      return stream.write(payload.length === 0 ? line : Buffer.concat([Buffer.from(line), payload, newline]));
    }
    stream.cork();
    stream.write(line);
    stream.write(payload);
    const free = stream.write(newline);
    stream.uncork();
    return free;
  }
}
