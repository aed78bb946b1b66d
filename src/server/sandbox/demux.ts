/** Docker's frame header: stream type, three zero bytes, length (big endian). */
const headerBytes = 8;
/** Engines send at most 32 KiB at a time; a length beyond this is no frame of theirs. */
const longestFrame = 16 * 1024 * 1024;

export type DemuxFault =
  { readonly kind: 'bad-type'; readonly type: number } | { readonly kind: 'too-long'; readonly length: number };

export interface DemuxPart {
  readonly stream: 'stdout' | 'stderr';
  readonly bytes: Buffer;
}

/**
 * Splits an attached stream into stdout and stderr. Passes payload on as it comes and keeps at most an unfinished header,
 * so that neither a huge frame nor thousands of tiny ones in one chunk cost memory or stack. After a fault it stays
 * closed: what comes next has no meaning.
 */
export class Demux {
  readonly #header = Buffer.alloc(headerBytes);
  #headerFilled = 0;
  #left = 0;
  #stream: 'stdout' | 'stderr' = 'stdout';
  #fault: DemuxFault | undefined;

  get fault(): DemuxFault | undefined {
    return this.#fault;
  }

  /** True between frames: an end of the stream there is a clean one. */
  get atBoundary(): boolean {
    return this.#headerFilled === 0 && this.#left === 0;
  }

  push(chunk: Buffer): DemuxPart[] {
    const parts: DemuxPart[] = [];
    let offset = 0;
    while (offset < chunk.length && this.#fault === undefined) {
      if (this.#left > 0) {
        const bytes = chunk.subarray(offset, offset + this.#left);
        parts.push({ stream: this.#stream, bytes });
        this.#left -= bytes.length;
        offset += bytes.length;
        continue;
      }
      const taken = chunk.copy(this.#header, this.#headerFilled, offset, offset + headerBytes - this.#headerFilled);
      this.#headerFilled += taken;
      offset += taken;
      if (this.#headerFilled === headerBytes) this.#readHeader();
    }
    return parts;
  }

  #readHeader(): void {
    this.#headerFilled = 0;
    const type = this.#header.readUInt8(0);
    const length = this.#header.readUInt32BE(4);
    if ((type !== 1 && type !== 2) || this.#header.readUIntBE(1, 3) !== 0) this.#fault = { kind: 'bad-type', type };
    else if (length > longestFrame) this.#fault = { kind: 'too-long', length };
    else {
      this.#stream = type === 1 ? 'stdout' : 'stderr';
      this.#left = length;
    }
  }
}
