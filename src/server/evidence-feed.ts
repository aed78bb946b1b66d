import type { Result } from '../protocol/methods.ts';
import type { EvidenceEvent } from '../protocol/views.ts';
import type { ConnectedClient } from './rpc/port.ts';
import type { Store, StoredEvent } from './store/port.ts';

/** Missed events beyond this are not replayed one by one: the client fetches views anew. */
const replayLimit = 500;

/** An event as clients get it: the chain is for whoever verifies the log. */
export const eventOnWire = ({ hash: _, ...event }: StoredEvent): EvidenceEvent => event;

/** Hands appended events to the connections that asked for them, in order. */
export class EvidenceFeed {
  readonly #store: Store;
  readonly #subscribed = new Set<number>();
  readonly #stop: () => void;

  /** `appended` is called after each delivery. */
  constructor(store: Store, clients: () => readonly ConnectedClient[], appended: () => void) {
    this.#store = store;
    this.#stop = store.onAppended((events) => {
      const wire = events.map(eventOnWire);
      for (const client of clients()) {
        if (this.#subscribed.has(client.connection)) client.notify('evidence/events', { events: wire });
      }
      appended();
    });
  }

  /** From now on the connection gets every event; what it missed comes here, unless that is too much. */
  subscribe({ connection }: ConnectedClient, lastSeenSeq: number): Result<'evidence/subscribe'> {
    this.#subscribed.add(connection);
    const missed = this.#store.since(lastSeenSeq, replayLimit + 1);
    const snapshot = lastSeenSeq > this.#store.head() || missed.length > replayLimit;
    return { seq: this.#store.head(), snapshot, events: snapshot ? [] : missed.map(eventOnWire) };
  }

  gone({ connection }: ConnectedClient): void {
    this.#subscribed.delete(connection);
  }

  dispose(): void {
    this.#stop();
  }
}
