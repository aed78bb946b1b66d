import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import type { ContainerEngine } from './engine.ts';

/** What was heard of one container. */
export interface HeardEvents {
  /** Shortages of memory; at least so many where the stream was not whole. */
  readonly ooms: number;
  /** Kills that somebody asked the engine for, ourselves among them. */
  readonly kills: number;
  /** One unbroken stream from the start of the container to its end. */
  readonly whole: boolean;
}

/** An event of an engine is about a kilobyte; its labels are ours. */
const longestLine = 64 * 1024;
/** Of one container. The kernel ends some hundred processes a second; whoever sends more than this is not believed. */
const mostLines = 20_000;
const mostBytes = 32 * 1024 * 1024;
/** Between two attempts to listen, doubling. */
const firstWaitMs = 250;
const mostWaitMs = 10_000;

/** Of `GET /events`. Docker and Podman write the same names for these four. */
const Line = z.object({
  Action: z.string(),
  Actor: z.object({ ID: z.string() }),
  /** Nanoseconds by the engine's clock; a double keeps them to a quarter of a microsecond. */
  timeNano: z.number().catch(0),
});

/**
 * Listens to what an engine says happens to one container: shortages of memory above all. Begins at once, goes on where
 * a stream breaks (from the last event on; Docker keeps the newest 256 of all its containers, and none over a restart of
 * its own), and ends with `close`, with the container's end, or with a peer that sends more than there can be. Never
 * throws; a peer that stalls or lies costs one connection and these bounds.
 */
export class EngineEvents {
  readonly #engine: Pick<ContainerEngine, 'events'>;
  readonly #id: string;
  readonly #stop = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  #stream: Readable | undefined;
  /** Being opened or read; between two attempts not. */
  #trying = false;
  /** Seconds by the engine's clock; null: from now on. */
  #since: number | null;
  #newest = 0;
  #lines = 0;
  #bytes = 0;
  #ooms = 0;
  #kills = 0;
  #heard = false;
  #fromStart = false;
  #broken = false;
  #over = false;

  /** `since`: milliseconds since the Unix epoch by the engine's clock for one that exists already, null before its start. */
  constructor(engine: Pick<ContainerEngine, 'events'>, id: string, since: number | null) {
    this.#engine = engine;
    this.#id = id;
    this.#since = since === null ? null : Math.floor(since / 1000);
    void this.#listen();
  }

  /** Null where the engine has not said anything of this container: then its silence means nothing. */
  get heard(): HeardEvents | null {
    if (!this.#heard) return null;
    const whole = this.#fromStart && this.#over && !this.#broken;
    return { ooms: this.#ooms, kills: this.#kills, whole };
  }

  /** Resolves when the container's end was heard, or after `ms`; at once where nothing can be heard. */
  async untilOver(ms: number): Promise<void> {
    if (!this.#trying || this.#stop.signal.aborted) return;
    const waited = new AbortController();
    await Promise.race([this.#ended.promise, delay(ms, undefined, { ref: false, signal: waited.signal })]).catch(
      () => undefined,
    );
    waited.abort();
  }

  close(): void {
    this.#stop.abort();
    this.#stream?.destroy();
    this.#ended.resolve();
  }

  async #listen(): Promise<void> {
    const { signal } = this.#stop;
    let wait = firstWaitMs;
    while (!signal.aborted) {
      const before = this.#lines;
      this.#trying = true;
      try {
        const stream = await this.#engine.events(this.#id, this.#since);
        if (signal.aborted) stream.destroy();
        else await this.#read(stream);
      } catch {
        // Unreachable, refused or broken: tried again, and what was missed is said by `whole`.
      }
      this.#trying = false;
      if (signal.aborted) return;
      this.#broken = true;
      wait = this.#lines > before ? firstWaitMs : Math.min(wait * 2, mostWaitMs);
      await delay(wait, undefined, { ref: false, signal }).catch(() => undefined);
    }
  }

  /** Resolves when the stream is over, however. */
  async #read(stream: Readable): Promise<void> {
    this.#stream = stream;
    const missed = this.#newest;
    let rest = '';
    stream.setEncoding('utf8');
    stream.on('data', (text: string) => {
      this.#bytes += text.length;
      const lines = `${rest}${text}`.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) this.#take(line, missed);
      if (rest.length > longestLine || this.#lines > mostLines || this.#bytes > mostBytes) {
        this.#broken = true;
        this.close();
      }
    });
    await new Promise<void>((resolve) => {
      stream.once('error', () => resolve());
      stream.once('close', resolve);
      stream.once('end', resolve);
    });
    stream.destroy();
    this.#stream = undefined;
  }

  /** `missed`: what is not newer was heard on an earlier stream. */
  #take(text: string, missed: number): void {
    if (text.trim() === '') return;
    this.#lines += 1;
    const line = parse(text);
    if (line === undefined || line.Actor.ID !== this.#id || (missed > 0 && line.timeNano <= missed)) return;
    this.#newest = Math.max(this.#newest, line.timeNano);
    if (line.timeNano > 0) this.#since = Math.floor(line.timeNano / 1e9);
    this.#heard = true;
    switch (line.Action) {
      case 'start':
        this.#fromStart = true;
        return;
      case 'oom':
        this.#ooms += 1;
        return;
      case 'kill':
        this.#kills += 1;
        return;
      case 'die':
      // Podman's own word, where it is not translated.
      case 'died':
        this.#over = true;
        this.close();
        return;
      default:
    }
  }
}

function parse(text: string): z.infer<typeof Line> | undefined {
  try {
    return Line.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
