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

/** A stretch of the log that this chain did not see grow: from what was recorded last to where it went on. */
export interface UnseenStretch {
  readonly recorded: AuditPoint;
  readonly entries: number;
}

/** How far a chain had come at one moment, and whether it could be relied on. */
export type ChainSnapshot = Readonly<Pick<AuditChain, 'head' | 'entries' | 'broken' | 'witnessed' | 'unseen'>>;

/** What an answer of the supervisor says happened, as the Kernel knows it. */
interface Seen {
  readonly mark: AuditMark | null;
  readonly phase: AuditEntry['phase'];
  readonly request: ExecutorRequest | null;
  readonly result: Readonly<Record<string, unknown>>;
}

/**
 * The Kernel's side of the audit: the same chain, computed from what the Kernel itself asked and received. It stops at
 * the first mark that does not continue it, and never agrees again. Nobody waits for its hashes: they are computed when
 * what waited for the answer has had its turn, or when somebody asks.
 */
export class AuditChain {
  #unhashed: Seen[] = [];
  #head: Sha256;
  #entries = 0;
  #broken: string | null = null;
  #unseen: readonly UnseenStretch[] = [];
  readonly #own: boolean;

  /** `own`: this Kernel sees the chain from its start. */
  constructor(nonce: string, own: boolean) {
    this.#head = auditGenesis(nonce);
    this.#own = own;
  }

  /** Whether the beginning was seen: by this Kernel, or by an earlier one that made what it saw durable. */
  get witnessed(): boolean {
    return this.#own || this.#unseen.length > 0;
  }

  /** What was recorded before others wrote, and how far the log had come when this chain went on. */
  get unseen(): readonly UnseenStretch[] {
    return this.#unseen;
  }

  get head(): Sha256 {
    this.#catchUp();
    return this.#head;
  }

  get entries(): number {
    this.#catchUp();
    return this.#entries;
  }

  /** Why the chain can't agree any more; null while it does. */
  get broken(): string | null {
    this.#catchUp();
    return this.#broken;
  }

  /**
   * Goes on where the log has come to without us: while an earlier Kernel was there, or while nobody was attached. What
   * was recorded before is compared with the log at collection.
   */
  adopt(entries: number, head: Sha256, recorded: AuditPoint): void {
    this.#catchUp();
    if (this.#broken !== null) return;
    this.#entries = entries;
    this.#head = head;
    this.#unseen = [...this.#unseen, { recorded, entries }];
  }

  /** As it is now, whatever comes behind. */
  snapshot(): ChainSnapshot {
    const { head, entries, broken, witnessed, unseen } = this;
    return { head, entries, broken, witnessed, unseen };
  }

  add(
    mark: AuditMark | null,
    phase: AuditEntry['phase'],
    request: ExecutorRequest | null,
    result: Readonly<Record<string, unknown>>,
  ): void {
    this.#unhashed.push({ mark, phase, request, result });
    if (this.#unhashed.length === 1) setImmediate(() => this.#catchUp());
  }

  #catchUp(): void {
    if (this.#unhashed.length === 0) return;
    const unhashed = this.#unhashed;
    this.#unhashed = [];
    for (const seen of unhashed) this.#append(seen);
  }

  #append({ mark, phase, request, result }: Seen): void {
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
