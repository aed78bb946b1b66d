import type { ContainerEngine, InspectedContainer } from './engine.ts';
import { EngineEvents, type HeardEvents } from './engine-events.ts';
import { hostCounter, type HostCounter } from './host-counter.ts';
import type { ChannelEnd, OomWord } from './port.ts';

/** An engine writes a container's end a few milliseconds after it lets go whoever waits for it. */
const lastEventMs = 500;

/** What is known of shortages of memory when a container is seen stopped. */
export interface OomEvidence {
  /** Highest count of the control group that the supervisor told. */
  readonly inside: number | null;
  /** The same count, read by this machine. */
  readonly host: number | null;
  readonly events: HeardEvents | null;
  /** Events of shortages that came after the supervisor's last word. */
  readonly eventsSinceLook: number;
  /** The engine's flag at the stop. Docker keeps it for any process of the container that ever was ended so. */
  readonly flag: boolean;
  /** It was seen stopped without a kill of ours. */
  readonly byItself: boolean;
}

/**
 * Whether a shortage of memory ended the container itself: one that ended by itself, and of which a source tells of a
 * shortage that the supervisor did not live to tell. The kernel's own count comes first, then the engine's events, whose
 * silence counts only where they are whole, then the engine's flag. Pure.
 */
export function endedByShortage(seen: OomEvidence): boolean {
  const { inside, host, events, eventsSinceLook, flag, byItself } = seen;
  if (!byItself) return false;
  if (host !== null && host > (inside ?? 0)) return true;
  if (events !== null) {
    // Somebody had the engine end it.
    if (events.kills > 0) return false;
    if (eventsSinceLook > 0) return true;
    if (events.whole && events.ooms > 0) return false;
  }
  return flag;
}

/**
 * What each source says of shortages of memory in one container: the control group as the supervisor tells it and as
 * this machine reads it, the engine's events, its flag. Owns the stream of events; `close` ends it.
 */
export class OomWatch {
  readonly #events: EngineEvents;
  /** Podman has no such event: that it tells of none says nothing. */
  readonly #tellsOoms: boolean;
  #counter: HostCounter | null = null;
  #host: number | null = null;
  #inside: number | null = null;
  #atLook = 0;
  #killed = false;

  /** `since`: as in EngineEvents. */
  constructor(engine: Pick<ContainerEngine, 'events'>, engineId: string, since: number | null, tellsOoms: boolean) {
    this.#events = new EngineEvents(engine, engineId, since);
    this.#tellsOoms = tellsOoms;
  }

  /** Shortages that the engine has told of so far; null where it does not tell. */
  get events(): number | null {
    const heard = this.#heardOoms;
    return heard === null ? null : heard.ooms;
  }

  /** Where the container's process is known, its counter is found; from then on this machine can read it. */
  async found({ pid, id }: InspectedContainer): Promise<void> {
    this.#counter = await hostCounter(pid, id);
    this.#readHost();
  }

  /** The supervisor told what the control group counts. */
  looked(inside: number | null): void {
    if (inside !== null) this.#inside = Math.max(this.#inside ?? 0, inside);
    this.#atLook = this.events ?? 0;
  }

  /** Its end may be the container's: the counter is read before the control group goes. */
  channelEnded(end: ChannelEnd): void {
    if (end.kind !== 'closed-by-us') this.#readHost();
  }

  /** Before a kill of ours. What runs then is not ended by anything else. */
  beforeKill(running: boolean): void {
    if (!running) return;
    this.#killed = true;
    this.#readHost();
  }

  /** Once it was seen stopped; waits a moment for the engine's last event. */
  async word(flag: boolean): Promise<OomWord> {
    await this.#events.untilOver(lastEventMs);
    const heard = this.#heardOoms;
    const eventsSinceLook = Math.max(0, (heard?.ooms ?? 0) - this.#atLook);
    const seen = { inside: this.#inside, host: this.#host, events: heard, eventsSinceLook, flag };
    return {
      inside: seen.inside,
      host: seen.host,
      events: heard?.ooms ?? null,
      eventsWhole: heard?.whole ?? false,
      flag,
      ended: endedByShortage({ ...seen, byItself: !this.#killed }),
    };
  }

  close(): void {
    this.#events.close();
  }

  get #heardOoms(): HeardEvents | null {
    const { heard } = this.#events;
    return heard !== null && (this.#tellsOoms || heard.ooms > 0) ? heard : null;
  }

  #readHost(): void {
    const count = this.#counter?.read() ?? null;
    if (count !== null) this.#host = Math.max(this.#host ?? 0, count);
  }
}
