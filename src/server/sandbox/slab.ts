/**
 * Memory for what comes one after the other, taken in one piece: each piece of many MiB that is taken by itself has the
 * garbage collector look through the whole heap. What is beyond the size gets memory of its own. Nothing is taken before
 * the first need, and only what is filled is touched.
 */
export class Slab {
  #size: number;
  #left: Buffer | undefined;

  /** `size`: bytes that are expected in all. */
  constructor(size: number) {
    this.#size = size;
  }

  take(bytes: number): Buffer {
    if (bytes > this.#size) return Buffer.allocUnsafe(bytes);
    const from = this.#left ?? Buffer.allocUnsafeSlow(this.#size);
    this.#left = from.subarray(bytes);
    this.#size -= bytes;
    return from.subarray(0, bytes);
  }
}
