import { createHash, type Hash } from 'node:crypto';
import { sha256 } from '../../protocol/hash.ts';
import type { RelPath, Sha256 } from '../../protocol/primitives.ts';

/** Up to here, hashing all of it at its end is cheaper than a hash that goes along. */
const hashedAtOnce = 64 * 1024;

/**
 * Bytes that were announced, put in place and hashed as they come. The memory is taken at once, but only what has come
 * is touched: a peer that announces much and sends little costs little.
 */
export class Incoming {
  readonly file: { readonly path: RelPath; readonly mode: number } | null;
  readonly #bytes: Buffer;
  readonly #hash: Hash | undefined;
  #filled = 0;

  constructor(size: number, file: Incoming['file'], memory: Buffer = Buffer.allocUnsafe(size)) {
    this.#bytes = memory;
    this.#hash = size > hashedAtOnce ? createHash('sha256') : undefined;
    this.file = file;
  }

  /** Bytes that have not come yet. */
  get missing(): number {
    return this.#bytes.length - this.#filled;
  }

  /** Copies them. Throws for more than is missing. */
  add(bytes: Buffer): void {
    if (bytes.length > this.missing) throw new RangeError('more bytes than were announced');
    bytes.copy(this.#bytes, this.#filled);
    this.#filled += bytes.length;
    this.#hash?.update(bytes);
  }

  /** Once. Throws where some are missing. */
  whole(): { readonly bytes: Buffer; readonly sha256: Sha256 } {
    if (this.missing > 0) throw new RangeError('not all bytes have come');
    return { bytes: this.#bytes, sha256: (this.#hash?.digest('hex') as Sha256 | undefined) ?? sha256(this.#bytes) };
  }
}
