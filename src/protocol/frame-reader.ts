const newline = 0x0a;

/** What is done with what a stream brings. None of it may throw. */
export interface FrameSink {
  /**
   * A line without its newline; the bytes may be a view of the chunk and are valid during the call only. Returns how
   * many raw bytes belong to it, which come next: 0 for none. Who returns more than 0 has checked who said so.
   */
  line(bytes: Buffer): number;
  /** Some of the announced bytes, in order; `left` are still to come. Valid during the call only. */
  payload(bytes: Buffer, left: number): void;
  /** A line was longer than the bound and is thrown away up to its newline. */
  tooLong(): void;
}

/**
 * Cuts a byte stream into lines of at most `maxBytes` (newline not counted) and the raw bytes that belong to them. Keeps
 * no more than one unfinished line in memory whatever arrives, has no recursion, and after an oversized line goes on
 * with the next one.
 */
export class FrameReader {
  readonly #maxBytes: number;
  readonly #sink: FrameSink;
  #parts: Buffer[] = [];
  #size = 0;
  #skipping = false;
  #left = 0;

  constructor(maxBytes: number, sink: FrameSink) {
    this.#maxBytes = maxBytes;
    this.#sink = sink;
  }

  /** Bytes that wait for their newline. */
  get pending(): number {
    return this.#size;
  }

  push(chunk: Uint8Array): void {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let start = 0; start < bytes.length;) {
      if (this.#left > 0) {
        const part = bytes.subarray(start, start + this.#left);
        start += part.length;
        this.#left -= part.length;
        this.#sink.payload(part, this.#left);
        continue;
      }
      const end = bytes.indexOf(newline, start);
      this.#add(bytes.subarray(start, end === -1 ? bytes.length : end), end !== -1);
      if (end === -1) return;
      start = end + 1;
    }
  }

  #add(part: Buffer, ends: boolean): void {
    if (!this.#skipping && this.#size + part.length > this.#maxBytes) {
      this.#reset();
      this.#skipping = true;
      this.#sink.tooLong();
    }
    if (this.#skipping) {
      this.#skipping = !ends;
      return;
    }
    if (ends) {
      const line = this.#size === 0 ? part : Buffer.concat([...this.#parts, part], this.#size + part.length);
      this.#reset();
      this.#left = this.#sink.line(line);
      return;
    }
    if (part.length === 0) return;
    // A copy: the caller may reuse its buffer, and a small part must not keep a large chunk alive.
    this.#parts.push(Buffer.from(part));
    this.#size += part.length;
    // Many one-byte parts would cost a hundred bytes each.
    if (this.#parts.length > 1024) this.#parts = [Buffer.concat(this.#parts, this.#size)];
  }

  #reset(): void {
    this.#parts = [];
    this.#size = 0;
  }
}
