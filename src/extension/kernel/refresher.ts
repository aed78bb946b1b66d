/**
 * Fetches by key, at most once at a time for each: a wish that comes while a fetch is under way is met by one more fetch
 * afterwards, however many wishes there were. So a burst of events costs two requests, and the last state always shows.
 */
export class Refresher<K> {
  readonly #fetch: (key: K) => Promise<void>;
  readonly #onError: (key: K, error: unknown) => void;
  readonly #running = new Map<K, Promise<void>>();
  readonly #again = new Set<K>();

  constructor(fetch: (key: K) => Promise<void>, onError: (key: K, error: unknown) => void) {
    this.#fetch = fetch;
    this.#onError = onError;
  }

  /** Resolves when a fetch that began after this call has ended. Never rejects: errors go to the handler. */
  refresh(key: K): Promise<void> {
    const running = this.#running.get(key);
    if (running === undefined) return this.#begin(key);
    if (this.#again.has(key)) return running;
    this.#again.add(key);
    const next = running.then(() => {
      this.#again.delete(key);
      return this.#begin(key);
    });
    this.#running.set(key, next);
    return next;
  }

  #begin(key: K): Promise<void> {
    const run: Promise<void> = this.#fetch(key)
      .catch((error: unknown) => this.#onError(key, error))
      .finally(() => {
        if (this.#running.get(key) === run) this.#running.delete(key);
      });
    this.#running.set(key, run);
    return run;
  }
}
