import { EscrowError } from '../protocol/errors.ts';
import { unreachable } from '../protocol/primitives.ts';
import type { Result } from '../protocol/methods.ts';
import type { Binding, EngineKind } from '../protocol/binding.ts';
import type { EngineApproval, ModelView } from '../protocol/status.ts';
import { createChatCompletionsEngine } from './inference/chat-completions.ts';
import { EngineApprovals } from './inference/engine-approvals.ts';
import { InventoryLedger } from './inference/inventory-ledger.ts';
import { createMemoryProbe, modelFit, type MemoryCeilings, type MemoryProbe } from './inference/memory.ts';
import { createOllamaEngine } from './inference/ollama.ts';
import type { InferenceEngine } from './inference/port.ts';
import { startRehearsal } from './inference/rehearsal/start.ts';
import { WeightsReader } from './inference/weights.ts';
import type { Logger } from './log.ts';
import type { KernelSettings } from './settings.ts';
import { defaultInferenceHost } from './settings.ts';
import type { Store } from './store/port.ts';

export interface EnginesDeps {
  readonly settings: KernelSettings;
  readonly scriptsDirs: readonly string[];
  readonly store: Store;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
  readonly now: () => number;
  readonly monotonic: () => number;
}

type Reviewer = Pick<EngineApproval, 'channel'> & { readonly name: string };

/** Owner of the inference engines. The rehearsal server is started when first asked for and closed with the Kernel. */
export class Engines {
  readonly #deps: EnginesDeps;
  readonly #weights = new WeightsReader();
  readonly #approvals: EngineApprovals;
  readonly #completions = new Map<string, InferenceEngine>();
  readonly inventories: InventoryLedger;
  readonly memory: MemoryProbe;
  readonly ceilings: MemoryCeilings;
  #ollama: InferenceEngine | undefined;
  #rehearsal: Promise<{ readonly engine: InferenceEngine; stop(): Promise<void> }> | undefined;

  constructor(deps: EnginesDeps) {
    this.#deps = deps;
    this.#approvals = new EngineApprovals(deps.store, deps.now);
    this.inventories = new InventoryLedger(deps.store, deps.now);
    this.memory = createMemoryProbe({ now: deps.now, env: deps.env });
    this.ceilings = { host: deps.settings.hostMemoryCeiling, gpu: deps.settings.gpuMemoryCeiling };
  }

  /** Throws EscrowError InferenceUnavailable where the host may not be spoken to, EngineNotApproved. */
  async engine(kind: EngineKind): Promise<InferenceEngine> {
    switch (kind) {
      case 'ollama':
        return this.ollama();
      case 'chat-completions':
        return this.#approved(null);
      case 'rehearsal':
        this.#rehearsal ??= startRehearsal({ scriptsDirs: [...this.#deps.scriptsDirs], log: this.#deps.log });
        return (await this.#rehearsal).engine;
      default:
        return unreachable(kind, 'engine');
    }
  }

  /** The engine that a session was bound to. An approval that was revoked since, or given to another server, ends it. */
  async engineOf(binding: Binding): Promise<InferenceEngine> {
    return binding.engine.kind === 'chat-completions'
      ? this.#approved(binding.engine.host)
      : this.engine(binding.engine.kind);
  }

  ollama(): InferenceEngine {
    const { settings, log, now, monotonic } = this.#deps;
    this.#ollama ??= createOllamaEngine({
      host: settings.inferenceHost,
      kind: 'ollama',
      now,
      monotonic,
      log,
      weights: this.#weights,
      // Only the machine's settings file can name another host than the default; readSettings sees to that.
      allowRemote: settings.inferenceHost !== defaultInferenceHost,
    });
    return this.#ollama;
  }

  approvals(): readonly EngineApproval[] {
    return this.#approvals.all();
  }

  /**
   * Records that prompts may go to this server on this machine; it is asked who it is first. Throws EscrowError
   * InferenceUnavailable where it is not on this machine or does not answer.
   */
  async approve(host: string, reviewer: Reviewer): Promise<EngineApproval> {
    const engine = this.#completionsAt(host);
    const health = await engine.health();
    if (health.state !== 'ok')
      throw new EscrowError('InferenceUnavailable', health.detail, health.next, { host: engine.host });
    return this.#approvals.approve({
      host: engine.host,
      reviewer: reviewer.name,
      channel: reviewer.channel,
      version: health.version,
    });
  }

  revoke(host: string, reviewer: Reviewer): void {
    this.#approvals.revoke(this.#completionsAt(host).host, { reviewer: reviewer.name, channel: reviewer.channel });
  }

  /** What every engine has, with whether it fits this machine now; engines that could not be asked are named. */
  async models(): Promise<Result<'kernel/models'>> {
    const silent: Result<'kernel/models'>['silent'] = [];
    const ask = async (kind: EngineKind, host: string): Promise<readonly ModelView[]> => {
      try {
        return await (await this.engine(kind)).inventory();
      } catch (error) {
        if (!EscrowError.is(error)) throw error;
        silent.push({ engine: kind, host, code: error.code, next: error.next });
        return [];
      }
    };
    const approved = this.#approvals.current();
    const [ollama, completions, rehearsal, reading] = await Promise.all([
      ask('ollama', this.#deps.settings.inferenceHost),
      approved === null ? [] : ask('chat-completions', approved.host),
      ask('rehearsal', ''),
      this.memory.read(),
    ]);
    const fitted = [...ollama, ...completions].map((model) => ({ ...model, fit: modelFit(model.sizeBytes, reading) }));
    return { models: [...fitted, ...rehearsal], silent };
  }

  async dispose(): Promise<void> {
    const rehearsal = await this.#rehearsal?.catch(() => undefined);
    await rehearsal?.stop();
  }

  #approved(bound: string | null): InferenceEngine {
    const approval = this.#approvals.current();
    if (approval === null || (bound !== null && approval.host !== bound))
      throw new EscrowError(
        'EngineNotApproved',
        bound === null
          ? 'No server for chat completions has been approved.'
          : `The server ${bound} is not approved any more.`,
        'Approve it with: escrow engine approve HOST --reviewer NAME',
        { host: bound },
      );
    return this.#completionsAt(approval.host);
  }

  #completionsAt(host: string): InferenceEngine {
    const { log, now, monotonic } = this.#deps;
    const engine = createChatCompletionsEngine({ host, now, monotonic, log, weights: this.#weights });
    const held = this.#completions.get(engine.host) ?? engine;
    this.#completions.set(engine.host, held);
    return held;
  }
}
