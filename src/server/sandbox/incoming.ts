import type { FileEntry, RelPath, Sha256 } from '../../protocol/primitives.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { FileSink } from './port.ts';

/**
 * Bytes that were announced, put in place as they come. The memory is taken at once, but only what has come is touched:
 * a peer that announces much and sends little costs little.
 */
export class Incoming {
  readonly #bytes: Buffer;
  #filled = 0;

  constructor(size: number) {
    this.#bytes = Buffer.allocUnsafe(size);
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
  }

  /** Throws where some are missing. */
  whole(): { readonly bytes: Buffer; readonly sha256: Sha256 } {
    if (this.missing > 0) throw new RangeError('not all bytes have come');
    return { bytes: this.#bytes, sha256: sha256(this.#bytes) };
  }
}

/** A file that was announced: its bytes go on as they come, none of them are kept here. */
export class IncomingFile {
  readonly #file: { readonly path: RelPath; readonly mode: number };
  readonly #sink: FileSink;
  #missing: number;

  constructor(file: { readonly path: RelPath; readonly mode: number }, size: number, sink: FileSink) {
    this.#file = file;
    this.#sink = sink;
    this.#missing = size;
  }

  get missing(): number {
    return this.#missing;
  }

  /** Throws for more than is missing. */
  add(bytes: Buffer): void {
    if (bytes.length > this.#missing) throw new RangeError('more bytes than were announced');
    this.#missing -= bytes.length;
    this.#sink.add(bytes);
  }

  /** Once, with the hash of exactly these bytes. Throws where some are missing. */
  whole(): FileEntry {
    if (this.#missing > 0) throw new RangeError('not all bytes have come');
    return { ...this.#file, ...this.#sink.whole() };
  }
}
