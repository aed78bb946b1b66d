import type { ContainerEngine, InspectedContainer } from './engine.ts';
import { EngineEvents, type HeardEvents } from './engine-events.ts';
import { hostCounter, type HostCounter } from './host-counter.ts';
import type { ChannelEnd, OomWord } from './port.ts';

/** An engine writes a container's end a few milliseconds after it lets go whoever waits for it; this is for one under load. */
const lastEventMs = 2_000;

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
  /** Its stream ended before a kill of ours, or there was none. */
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
    // Somebody else had the engine end it.
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
  /** A kill of ours was tried. */
  #tried = false;
  /** Kills of ours that the engine tells of as well: those that it acknowledged. */
  #kills = 0;
  /** Its stream had ended by itself before the first try: an engine may call it running for a moment after that. */
  #gone = false;

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
    if (end.kind === 'stream-ended' && !this.#tried) this.#gone = true;
  }

  /** Before a kill of ours. What is there then and had not gone is not ended by anything else. */
  beforeKill(): void {
    this.#tried = true;
    this.#readHost();
  }

  killed(): void {
    this.#kills += 1;
  }

  /** Once it was seen stopped; waits a moment for the engine's last event, where it tells of shortages. */
  async word(flag: boolean): Promise<OomWord> {
    if (this.#tellsOoms) await this.#events.untilOver(lastEventMs);
    const heard = this.#heardOoms;
    const others = Math.max(0, (heard?.kills ?? 0) - this.#kills);
    const events = heard === null ? null : { ...heard, kills: others };
    const eventsSinceLook = Math.max(0, (heard?.ooms ?? 0) - this.#atLook);
    const seen = { inside: this.#inside, host: this.#host, events, eventsSinceLook, flag };
    return {
      inside: seen.inside,
      host: seen.host,
      events: heard?.ooms ?? null,
      eventsWhole: heard?.whole ?? false,
      flag,
      ended: endedByShortage({ ...seen, byItself: this.#gone || !this.#tried }),
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
