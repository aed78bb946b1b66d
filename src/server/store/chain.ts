import { canonicalJson, sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';

/** An event as the database keeps it. */
export interface EventRow {
  readonly seq: number;
  readonly stream: string;
  readonly version: number;
  readonly type: string;
  readonly at: number;
  readonly data: string;
  readonly prev_hash: string;
  readonly hash: string;
}

/** What the first event of a stream names as its predecessor. */
export const chainStart = '0'.repeat(64);

/** The hash of an event covers its place (log and stream), its content and its predecessor. */
export function chainHash(row: Omit<EventRow, 'hash'>): Sha256 {
  return sha256(canonicalJson([row.prev_hash, row.seq, row.stream, row.version, row.type, row.at, row.data]));
}

export interface BrokenChain {
  readonly stream: string;
  readonly version: number;
  readonly reason: string;
}

/** Checks a log event by event, in order, so that its reader decides how much of it is in memory at a time. */
export class ChainCheck {
  readonly #tails = new Map<string, { readonly version: number; readonly hash: string }>();
  readonly #broken = new Map<string, BrokenChain>();
  #seq = 0;
  #last: string = chainStart;

  add(row: EventRow): void {
    const tail = this.#tails.get(row.stream) ?? { version: 0, hash: chainStart };
    if (row.seq !== this.#seq + 1) this.#report(row, `events ${this.#seq + 1}…${row.seq - 1} are missing before it`);
    if (row.version !== tail.version + 1) this.#report(row, 'versions are not contiguous');
    if (row.prev_hash !== tail.hash) this.#report(row, 'does not follow its predecessor');
    if (chainHash(row) !== row.hash) this.#report(row, 'content does not match its hash');
    this.#tails.set(row.stream, { version: row.version, hash: row.hash });
    this.#seq = row.seq;
    this.#last = row.hash;
  }

  get events(): number {
    return this.#seq;
  }

  /** The first fault of each stream. `recordedHead` is what was written beside the last event, in its transaction. */
  end(recordedHead: string | undefined): readonly BrokenChain[] {
    const expected = this.#seq === 0 ? undefined : `${this.#seq}:${this.#last}`;
    const cut =
      recordedHead === expected
        ? []
        : [{ stream: '', version: this.#seq, reason: 'the end of the log is not the recorded one' }];
    return [...this.#broken.values(), ...cut];
  }

  #report(row: EventRow, reason: string): void {
    if (!this.#broken.has(row.stream)) {
      this.#broken.set(row.stream, { stream: row.stream, version: row.version, reason });
    }
  }
}
