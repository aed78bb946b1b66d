import { EscrowError } from '../../protocol/errors.ts';
import type { AttemptId, SessionId } from '../../protocol/primitives.ts';
import type { AttemptEngine, LiveInference, MemoryReading, Receipt } from '../../protocol/attempt.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { AgentEnd } from '../agent/port.ts';
import { canonicalTag } from '../inference/cloud.ts';
import type { Fault } from '../inference/fault.ts';
import { parseHost } from '../inference/host.ts';
import { inventoryChanges, type Inventory } from '../inference/inventory.ts';
import type { InventoryLedger } from '../inference/inventory-ledger.ts';
import { ceilingReached, cpuName, gpuFree, modelFit, watchMemory } from '../inference/memory.ts';
import type { MemoryCeilings, MemoryProbe } from '../inference/memory.ts';
import type { ChatEvent, ChatMessage, ChatTool, ChatTurn, InferenceEngine } from '../inference/port.ts';
import { storeOf } from '../inference/ollama-store.ts';
import type { Logger } from '../log.ts';

export interface AttemptInferenceDeps {
  readonly engine: InferenceEngine;
  readonly binding: Binding;
  readonly session: SessionId;
  readonly attempt: AttemptId;
  readonly inventories: InventoryLedger;
  readonly memory: MemoryProbe;
  readonly ceilings: MemoryCeilings;
  readonly live: (live: LiveInference | null) => void;
  /** Makes what is known of the engine durable. */
  readonly record: (engine: AttemptEngine) => void;
  readonly log: Logger;
  readonly monotonic: () => number;
}

/** Characters of the stream that are shown live. */
const liveText = 600;

/**
 * The engine's side of one attempt: looks at what it has before and after, watches memory while a request runs, and shows
 * how far a stream has come. What could not be observed stays null; nothing here decides an outcome but memory.
 */
export class AttemptInference {
  readonly #deps: AttemptInferenceDeps;
  /** Memory of this machine says nothing of an engine on another. */
  readonly #here: boolean;
  #before: Inventory | null = null;
  #requests = 0;
  #facts: AttemptEngine = {
    modelStore: null,
    device: null,
    driver: null,
    gpuShare: null,
    loadedBytes: null,
    layersOffloaded: null,
    kvBytes: null,
    memory: null,
    lowest: null,
    sinceLast: null,
    during: null,
  };

  constructor(deps: AttemptInferenceDeps) {
    this.#deps = deps;
    this.#here = parseHost(deps.engine.host, true).loopbackOnly;
  }

  /** Looks before the first request. An end where the model can't be loaded within this machine's memory, else null. */
  async begin(): Promise<AgentEnd | null> {
    const { binding, inventories, memory, session } = this.#deps;
    const [before, last, reading] = await Promise.all([
      this.#survey(),
      inventories.last(binding.engine.host),
      this.#here ? memory.read() : Promise.resolve(null),
    ]);
    this.#before = before;
    if (before !== null) await this.#keep(before, session);
    this.#facts = {
      ...this.#facts,
      modelStore: before?.store?.path ?? storeOf(binding.model.weights?.path ?? null),
      memory: reading,
      sinceLast: before === null || last === null ? null : inventoryChanges(last, before),
    };
    if (reading !== null) this.#lowest(reading);
    this.#record();
    if (reading === null || this.#deps.engine.synthetic) return null;
    const reached = ceilingReached(reading, this.#deps.ceilings);
    if (reached !== null)
      return { kind: 'resource', code: reached.code, detail: `stopped before loading: ${reached.detail}` };
    const tag = canonicalTag(binding.model.tag);
    const loaded = before?.loaded.some((m) => canonicalTag(m.name) === tag) ?? false;
    const fit = modelFit(binding.model.sizeBytes, reading);
    if (loaded || fit.state !== 'too_large') return null;
    return {
      kind: 'resource',
      code: 'model_does_not_fit',
      detail: `stopped before loading: the weights take ${mib(fit.needBytes)}, free are ${mib(fit.hostFree)} of host and ${fit.gpuFree === null ? 'no known' : mib(fit.gpuFree)} of GPU memory`,
    };
  }

  /** One request with the binding's options and identity. Throws InferenceFailure. */
  async chat(messages: readonly ChatMessage[], tools: readonly ChatTool[], signal: AbortSignal): Promise<ChatTurn> {
    const { engine, binding, attempt, live, monotonic } = this.#deps;
    this.#requests += 1;
    const n = this.#requests;
    const started = monotonic();
    let shown: LiveInference = { attempt, n, state: 'loading', sinceMs: 0, text: '', chars: 0 };
    const onEvent = (event: ChatEvent): void => {
      const sinceMs = Math.round(monotonic() - started);
      shown =
        event.kind === 'loading'
          ? { ...shown, sinceMs }
          : {
              ...shown,
              sinceMs,
              state: event.kind === 'thinking' ? 'thinking' : 'answering',
              text: (shown.text + event.text).slice(-liveText),
              chars: shown.chars + event.text.length,
            };
      live(shown);
    };
    live(shown);
    const memory = new AbortController();
    const watch = this.#watch(
      () => (shown.state === 'loading' ? 'loading' : 'running'),
      (fault) => {
        memory.abort(fault);
      },
    );
    try {
      const turn = await engine.chat(
        {
          model: binding.model.tag,
          messages,
          tools,
          options: binding.options,
          engineVersion: binding.engine.version,
        },
        binding.model,
        onEvent,
        AbortSignal.any([signal, memory.signal]),
      );
      this.#placement(turn.receipt);
      return turn;
    } finally {
      watch?.stop();
      live(null);
    }
  }

  /** Looks after the last request and discloses what changed. Never throws. */
  async end(): Promise<void> {
    const after = await this.#survey();
    if (after !== null) {
      await this.#keep(after, this.#deps.session);
      this.#facts = {
        ...this.#facts,
        during: this.#before === null ? null : inventoryChanges(this.#before, after),
      };
    }
    this.#record();
  }

  #watch(phase: () => 'loading' | 'running', reached: (fault: Fault) => void): { stop(): void } | null {
    const { ceilings, engine, memory } = this.#deps;
    if (!this.#here || engine.synthetic || (ceilings.host === null && ceilings.gpu === null)) return null;
    return watchMemory(memory, ceilings, phase, { reading: (reading) => this.#lowest(reading), reached });
  }

  #lowest(reading: MemoryReading): void {
    const held = this.#facts.lowest;
    const gpu = gpuFree(reading);
    this.#facts = {
      ...this.#facts,
      lowest: {
        hostFree: Math.min(held?.hostFree ?? Number.MAX_SAFE_INTEGER, reading.hostFree),
        gpuFree: gpu === null ? (held?.gpuFree ?? null) : Math.min(held?.gpuFree ?? gpu, gpu),
      },
    };
  }

  /** Where the model lay, as the engine said last. A device is named only where there is no doubt which one. */
  #placement({ gpuShare, loadedBytes }: Receipt): void {
    const gpus = this.#facts.memory?.gpus ?? null;
    const only = gpus?.length === 1 ? gpus[0] : undefined;
    this.#facts = {
      ...this.#facts,
      gpuShare,
      loadedBytes,
      // Nothing on a GPU is no layer there; how many a part of the model is, no engine tells.
      layersOffloaded: gpuShare === 0 ? 0 : null,
      device: gpuShare === null ? null : gpuShare === 0 ? (this.#here ? cpuName() : null) : (only?.name ?? null),
      driver: gpuShare === null || gpuShare === 0 ? null : (only?.driver ?? null),
    };
  }

  async #survey(): Promise<Inventory | null> {
    try {
      return await this.#deps.engine.survey(this.#deps.binding.model);
    } catch (error) {
      this.#deps.log('warn', 'the inventory of the engine could not be seen', { error: String(error) });
      return null;
    }
  }

  async #keep(inventory: Inventory, owner: string): Promise<void> {
    try {
      await this.#deps.inventories.keep(inventory, owner);
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      this.#deps.log('warn', 'the inventory of the engine could not be kept', { code: error.code });
    }
  }

  #record(): void {
    this.#deps.record(this.#facts);
  }
}

function mib(bytes: number | null): string {
  return bytes === null ? 'unknown' : `${Math.round(bytes / 1_048_576)} MiB`;
}
