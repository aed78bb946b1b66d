/** A whole line without its newline, or the fact that one was longer than the bound and was thrown away. */
export type BoundedLine = { readonly kind: 'line'; readonly bytes: Buffer } | { readonly kind: 'too-long' };

const newline = 0x0a;

/**
 * Cuts a byte stream into lines of at most `maxBytes` (newline not counted). Keeps no more than that in memory whatever
 * arrives, has no recursion, and after an oversized line goes on with the next one.
 */
export class BoundedLines {
  readonly #maxBytes: number;
  #parts: Buffer[] = [];
  #size = 0;
  #skipping = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes that wait for their newline. */
  get pending(): number {
    return this.#size;
  }

  push(chunk: Uint8Array): BoundedLine[] {
    const lines: BoundedLine[] = [];
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let start = 0;
    while (start < bytes.length) {
      const end = bytes.indexOf(newline, start);
      const part = bytes.subarray(start, end === -1 ? bytes.length : end);
      this.#add(part, lines);
      if (end === -1) break;
      if (!this.#skipping) lines.push({ kind: 'line', bytes: Buffer.concat(this.#parts, this.#size) });
      this.#reset();
      this.#skipping = false;
      start = end + 1;
    }
    return lines;
  }

  #add(part: Buffer, lines: BoundedLine[]): void {
    if (this.#skipping || part.length === 0) return;
    if (this.#size + part.length > this.#maxBytes) {
      this.#reset();
      this.#skipping = true;
      lines.push({ kind: 'too-long' });
      return;
    }
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
