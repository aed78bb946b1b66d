import type { ResourceSample } from '../../protocol/executor-answers.ts';
import type { MemoryReading } from '../../protocol/attempt.ts';
import type { ContainerEngine, InspectedContainer } from './engine.ts';
import { Monitor } from './monitor.ts';
import { OomWatch } from './oom-watch.ts';
import type { ChannelEnd, MonitorRecording, OomWord } from './port.ts';

interface Watched {
  readonly monitor: Monitor;
  readonly oom: OomWatch;
}

/**
 * What is observed of our containers while this Kernel has to do with them, by engine id: samples from inside, and what
 * each source says of shortages of memory. A second attachment goes on with the record of the first; `forget` ends it.
 */
export class ContainerWatches {
  readonly #engine: () => ContainerEngine;
  readonly #readHost: () => Promise<MemoryReading | null>;
  readonly #watched = new Map<string, Watched>();

  /** `readHost` must not throw. */
  constructor(engine: () => ContainerEngine, readHost: () => Promise<MemoryReading | null>) {
    this.#engine = engine;
    this.#readHost = readHost;
  }

  /** For one that has not been started yet: nothing of it is missed. Throws EngineFault. */
  async begin(engineId: string): Promise<void> {
    await this.#of(engineId, null);
  }

  /** For one that exists; that it was looked at tells where this machine can look itself. Throws EngineFault. */
  async found(container: InspectedContainer): Promise<void> {
    const { oom } = await this.#of(container.id, container.createdAt);
    await oom.found(container);
  }

  sampled(engineId: string, use: ResourceSample): void {
    const watched = this.#watched.get(engineId);
    watched?.oom.looked(use.oomKills);
    watched?.monitor.add(use, watched.oom.events);
  }

  channelEnded(engineId: string, end: ChannelEnd): void {
    this.#watched.get(engineId)?.oom.channelEnded(end);
  }

  /** Seen right before its end is asked for; `kill`: it is not stopped yet. Throws EngineFault. */
  async beforeEnd(container: InspectedContainer, kill: boolean): Promise<void> {
    const { oom } = await this.#of(container.id, container.createdAt);
    if (kill) oom.beforeKill();
  }

  /** The engine says that it has killed it for us, and will tell of that as an event. */
  killed(engineId: string): void {
    this.#watched.get(engineId)?.oom.killed();
  }

  /** Once a container was seen stopped; `flag` is the engine's at that moment. */
  async word(engineId: string, flag: boolean): Promise<OomWord> {
    const watched = this.#watched.get(engineId);
    if (watched === undefined) throw new Error('a stop was seen of what nobody looked at');
    return watched.oom.word(flag);
  }

  recording(engineId: string): MonitorRecording | null {
    return this.#watched.get(engineId)?.monitor.recording() ?? null;
  }

  forget(engineId: string): void {
    this.#watched.get(engineId)?.oom.close();
    this.#watched.delete(engineId);
  }

  async #of(engineId: string, since: number | null): Promise<Watched> {
    const tellsOoms = (await this.#engine().flavour()) === 'docker';
    const there = this.#watched.get(engineId);
    if (there !== undefined) return there;
    const made = {
      monitor: new Monitor(this.#readHost),
      oom: new OomWatch(this.#engine(), engineId, since, tellsOoms),
    };
    this.#watched.set(engineId, made);
    return made;
  }
}
