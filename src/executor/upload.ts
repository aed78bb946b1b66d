import { createHash } from 'node:crypto';
import type { ExecutorRequest } from '../protocol/executor.ts';
import { Refusal, type Draft } from './workspace.ts';

export type UploadRequest = Extract<ExecutorRequest, { t: 'open' | 'place' | 'write' }>;

/**
 * Bytes that a request announced, as they come: into a draft beside the files, so that a large one costs no memory, or
 * into memory where there is none. Hashed on the way.
 */
export class Upload {
  readonly request: UploadRequest;
  readonly draft: Draft | undefined;
  readonly #hash = createHash('sha256');
  #parts: Buffer[] = [];
  #announced = 0;
  #received = 0;
  #seq = 0;

  constructor(request: UploadRequest, draft: Draft | undefined) {
    this.request = request;
    this.draft = draft;
  }

  get complete(): boolean {
    return this.#received === this.request.size;
  }

  /** So many bytes follow a frame; `seq` numbers the frames after the request. Throws Refusal. */
  announce(bytes: number, seq: number | undefined): void {
    if (seq !== undefined) {
      if (seq !== this.#seq) throw disagreement();
      this.#seq += 1;
    }
    this.#announced += bytes;
    if (this.#announced > this.request.size) throw disagreement();
  }

  /** Throws Refusal `no-space`. */
  add(bytes: Buffer): void {
    this.#received += bytes.length;
    this.#hash.update(bytes);
    if (this.draft === undefined) this.#parts.push(Buffer.from(bytes));
    else this.draft.add(bytes);
  }

  /** Throws Refusal where it is not what was announced. The bytes are there where there is no draft. */
  finish(): Buffer {
    if (this.#hash.digest('hex') !== this.request.sha256) throw new Refusal('invalid', 'the bytes have another hash');
    return Buffer.concat(this.#parts);
  }

  discard(): void {
    this.draft?.discard();
  }
}

function disagreement(): Refusal {
  return new Refusal('invalid', 'the parts do not make what was announced');
}
