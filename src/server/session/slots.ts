import { EscrowError } from '../../protocol/errors.ts';

export type SlotUse = 'attempt' | 'verification' | 'baseline';
export interface SlotEntry {
  readonly what: SlotUse;
  readonly id: string;
  readonly label: string;
}
interface Waiting {
  readonly entry: SlotEntry;
  readonly grant: () => void;
}

/**
 * First come, first served over the machine's sandbox slots (one by default: one sandbox and with it one inference job
 * at a time). Waiting is visible and ends on abort.
 */
export class Slots {
  readonly #capacity: number;
  readonly #changed: () => void;
  #waiting: Waiting[] = [];
  #active: SlotEntry[] = [];

  constructor(capacity: number, changed: () => void) {
    this.#capacity = capacity;
    this.#changed = changed;
  }

  get waiting(): readonly SlotEntry[] {
    return this.#waiting.map((w) => w.entry);
  }
  get active(): readonly SlotEntry[] {
    return this.#active;
  }
  /** Place in the queue, from 1; null when not waiting. */
  position(id: string): number | null {
    const index = this.#waiting.findIndex((w) => w.entry.id === id);
    return index < 0 ? null : index + 1;
  }

  /** Resolves with the release function once a slot is free. Throws EscrowError Cancelled on abort. */
  acquire(entry: SlotEntry, signal?: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const cancelled = (): EscrowError =>
        new EscrowError('Cancelled', 'The wait for the sandbox was cancelled.', 'Start it again when you want it.');
      if (signal?.aborted === true) {
        reject(cancelled());
        return;
      }
      const onAbort = (): void => {
        const before = this.#waiting.length;
        this.#waiting = this.#waiting.filter((w) => w !== waiting);
        if (this.#waiting.length === before) return;
        this.#changed();
        reject(cancelled());
      };
      const waiting: Waiting = {
        entry,
        grant: () => {
          signal?.removeEventListener('abort', onAbort);
          this.#active = [...this.#active, entry];
          let released = false;
          resolve(() => {
            if (released) return;
            released = true;
            this.#active = this.#active.filter((a) => a !== entry);
            this.#pump();
          });
        },
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting = [...this.#waiting, waiting];
      this.#pump();
    });
  }

  /**
   * Takes a place at once, also beyond the capacity: settling what an earlier Kernel left waits for nobody. Returns the
   * release function.
   */
  occupy(entry: SlotEntry): () => void {
    this.#active = [...this.#active, entry];
    this.#changed();
    return () => {
      if (!this.#active.includes(entry)) return;
      this.#active = this.#active.filter((a) => a !== entry);
      this.#pump();
    };
  }

  #pump(): void {
    while (this.#active.length < this.#capacity) {
      const first = this.#waiting[0];
      if (first === undefined) break;
      this.#waiting = this.#waiting.slice(1);
      first.grant();
    }
    this.#changed();
  }
}
