import {
  auditGenesis,
  auditNext,
  auditRequest,
  type AuditEntry,
  type AuditMark,
  type ExecutorRequest,
} from '../../protocol/executor.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { AuditPoint } from './port.ts';

export interface EarlierChain {
  readonly recorded: AuditPoint;
  readonly entries: number;
}

/**
 * The Kernel's side of the audit: the same chain, computed from what the Kernel itself asked and received. It stops at
 * the first mark that does not continue it, and never agrees again.
 */
export class AuditChain {
  #head: Sha256;
  #entries = 0;
  #broken: string | null = null;
  #earlier: EarlierChain | null = null;
  readonly #own: boolean;

  /** `own`: this Kernel sees the chain from its start. */
  constructor(nonce: string, own: boolean) {
    this.#head = auditGenesis(nonce);
    this.#own = own;
  }

  /** Whether the beginning was seen: by this Kernel, or by an earlier one that made what it saw durable. */
  get witnessed(): boolean {
    return this.#own || this.#earlier !== null;
  }

  /** What an earlier Kernel had seen, and how far the log had come when this one took over; null for an own chain. */
  get earlier(): EarlierChain | null {
    return this.#earlier;
  }

  get head(): Sha256 {
    return this.#head;
  }

  get entries(): number {
    return this.#entries;
  }

  /** Why the chain can't agree any more; null while it does. */
  get broken(): string | null {
    return this.#broken;
  }

  /** Where another Kernel wrote the beginning: the log goes on from here; what that Kernel recorded is compared later. */
  adopt(entries: number, head: Sha256, recorded: AuditPoint): void {
    this.#entries = entries;
    this.#head = head;
    this.#earlier = { recorded, entries };
  }

  add(
    mark: AuditMark | null,
    phase: AuditEntry['phase'],
    request: ExecutorRequest | null,
    result: Readonly<Record<string, unknown>>,
  ): void {
    if (this.#broken !== null) return;
    if (mark === null) {
      this.#broken = 'an answer without an audit number';
      return;
    }
    if (mark.n !== this.#entries + 1) {
      this.#broken = `entry ${mark.n} after entry ${this.#entries}`;
      return;
    }
    const entry: AuditEntry = {
      n: mark.n,
      at: mark.at,
      id: request?.id ?? null,
      op: request?.t ?? 'frame',
      phase,
      request: request === null ? {} : auditRequest(request),
      result,
    };
    const head = auditNext(this.#head, entry);
    if (head !== mark.h) {
      this.#broken = `entry ${mark.n} records something else`;
      return;
    }
    this.#head = head;
    this.#entries = mark.n;
  }
}
