import type { InferenceEngine } from './inference/port.ts';
import { createOllamaEngine } from './inference/ollama.ts';
import { startRehearsal } from './inference/rehearsal/start.ts';
import type { Logger } from './log.ts';
import type { KernelSettings } from './settings.ts';
import { defaultInferenceHost } from './settings.ts';

export interface EnginesDeps {
  readonly settings: KernelSettings;
  readonly scriptsDirs: readonly string[];
  readonly log: Logger;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/** Owner of the inference engines. The rehearsal server is started when first asked for and closed with the Kernel. */
export class Engines {
  readonly #deps: EnginesDeps;
  #ollama: InferenceEngine | undefined;
  #rehearsal: Promise<{ readonly engine: InferenceEngine; stop(): Promise<void> }> | undefined;

  constructor(deps: EnginesDeps) {
    this.#deps = deps;
  }

  /** Throws EscrowError InferenceUnavailable where the host may not be spoken to. */
  async engine(kind: 'ollama' | 'rehearsal'): Promise<InferenceEngine> {
    if (kind === 'ollama') return this.ollama();
    this.#rehearsal ??= startRehearsal({ scriptsDirs: [...this.#deps.scriptsDirs], log: this.#deps.log });
    return (await this.#rehearsal).engine;
  }

  ollama(): InferenceEngine {
    const { settings, log, now, monotonic } = this.#deps;
    this.#ollama ??= createOllamaEngine({
      host: settings.inferenceHost,
      kind: 'ollama',
      now,
      monotonic,
      log,
      // Only the machine's settings file can name another host than the default; readSettings sees to that.
      allowRemote: settings.inferenceHost !== defaultInferenceHost,
    });
    return this.#ollama;
  }

  async dispose(): Promise<void> {
    const rehearsal = await this.#rehearsal?.catch(() => undefined);
    await rehearsal?.stop();
  }
}
