import { EscrowError } from '../../protocol/errors.ts';
import type { FrozenContract } from '../../protocol/contract.ts';
import type { AttemptId } from '../../protocol/primitives.ts';
import type { SettlementTrigger } from '../../protocol/attempt.ts';
import type { AgentEnd, AgentFact, RunAgent } from '../agent/port.ts';
import type { InferenceEngine } from '../inference/port.ts';
import { messageOf } from '../message-of.ts';
import { SandboxFault } from '../sandbox/port.ts';
import type { ScopeGuard } from '../scope/scope-guard.ts';
import { within } from '../within.ts';
import type { AttemptInference } from './attempt-inference.ts';
import type { AttemptRecord } from './attempt-record.ts';
import type { AttemptSandbox } from './attempt-sandbox.ts';
import type { SessionState } from './state.ts';

/** How long an aborted generation, an idle engine and a last look at it may take before they count as not observed, ms. */
const bounds = { abort: 10_000, idle: 3_000, survey: 5_000 } as const;

export interface AttemptWorkDeps {
  readonly engineFor: (state: SessionState) => Promise<InferenceEngine>;
  /** The engine's side of the attempt. Throws EscrowError where the engine may not be used. */
  readonly inferenceFor: (state: SessionState, attempt: AttemptId) => Promise<AttemptInference>;
  readonly runAgent: RunAgent;
  readonly contractOf: (state: SessionState) => FrozenContract;
  readonly scopeOf: (contract: FrozenContract) => ScopeGuard;
  readonly monotonic: () => number;
  readonly at: (point: string) => void;
}

/** What the work asks of who drives it. */
export interface WorkOwner {
  /** The cause of the end is known already: whatever the work says of its own end comes too late. */
  readonly ending: () => boolean;
  readonly settle: (trigger: SettlementTrigger) => void;
}

/** What an attempt does before its settlement: a sandbox is made, an agent works in it. Owns the abort of both. */
export class AttemptWork {
  readonly #deps: AttemptWorkDeps;
  readonly #record: AttemptRecord;
  readonly #sandbox: AttemptSandbox;
  readonly #owner: WorkOwner;
  readonly #abort = new AbortController();
  #agent: Promise<AgentEnd> | undefined;
  #generating = false;
  #inference: AttemptInference | undefined;

  constructor(deps: AttemptWorkDeps, record: AttemptRecord, sandbox: AttemptSandbox, owner: WorkOwner) {
    this.#deps = deps;
    this.#record = record;
    this.#sandbox = sandbox;
    this.#owner = owner;
  }

  abort(): void {
    this.#abort.abort();
  }

  async provision(): Promise<void> {
    try {
      await this.#sandbox.provision(this.#abort.signal);
    } catch (error) {
      // Settled meanwhile: the loop goes on with settlement, whatever provisioning said.
      if (this.#owner.ending()) return;
      const code = SandboxFault.is(error) ? error.code : EscrowError.is(error) ? error.code : 'provision_failed';
      const kind = code === 'no-space' || code === 'StorageFull' ? 'resource' : 'infrastructure';
      this.#end({ kind, code, detail: messageOf(error) });
    }
  }

  /** Runs the agent to its end, or until it is aborted, its channel is gone or its lease over. */
  async run(): Promise<void> {
    const record = this.#record;
    const { channel } = this.#sandbox;
    if (channel === undefined) {
      // Only after a restart: the agent is never run again (the table says `settle` whatever the engine says).
      this.#owner.settle('kernel_restart');
      return;
    }
    const state = record.whole;
    const contract = this.#deps.contractOf(state);
    let inference: AttemptInference;
    try {
      inference = await this.#deps.inferenceFor(state, record.attempt);
    } catch (error) {
      this.#end({ kind: 'transport', code: 'no_engine', detail: messageOf(error) });
      return;
    }
    this.#inference = inference;
    const refused = await Promise.race([inference.begin(), this.#aborted()]);
    if (this.#owner.ending()) return;
    this.#deps.at('engine-looked-at');
    if (refused !== null) {
      this.#end(refused);
      return;
    }
    this.#agent = this.#deps.runAgent(
      { contract, binding: state.binding, feedback: record.state.feedback },
      {
        chat: async (messages, tools, signal) => {
          this.#generating = true;
          try {
            return await inference.chat(messages, tools, signal);
          } finally {
            this.#generating = false;
          }
        },
        sandbox: channel,
        scope: this.#deps.scopeOf(contract),
        record: (fact) => this.#fact(fact),
        monotonic: this.#deps.monotonic,
      },
      this.#abort.signal,
    );
    const channelGone = channel.ended.then((end): AgentEnd => ({
      kind: 'infrastructure',
      code: `channel_${end.kind}`,
      detail: 'reason' in end ? end.reason : '',
    }));
    const aborted = this.#aborted().then((): AgentEnd => ({ kind: 'cancelled' }));
    // The loop ends by itself before; the lease bounds one that got stuck.
    const lease = setTimeout(
      () => this.#owner.settle('lease_expired'),
      Math.max(0, record.state.leaseUntil - this.#deps.monotonic()),
    );
    const end = await Promise.race([this.#agent, channelGone, aborted]).finally(() => clearTimeout(lease));
    this.#deps.at('work-ended');
    this.#sandbox.witness();
    if (this.#owner.ending()) return;
    this.#end(end);
    this.abort();
  }

  /** Aborts, and awaits the end of the agent (bounded). What was seen of a generation in flight is recorded. */
  async quiet(): Promise<void> {
    this.abort();
    const agent = this.#agent;
    if (agent === undefined) return;
    const generating = this.#generating;
    const ended = await within(
      bounds.abort,
      agent.catch((error: unknown) => messageOf(error)),
    );
    if (!generating) return;
    this.#record.write({ kind: 'step', step: 'abort_generation', observed: ended !== undefined, facts: {} });
    await this.#engineIdle();
  }

  /** What changed at the engine is disclosed before the settlement is written; one that does not answer holds nothing up. */
  async disclose(): Promise<void> {
    const inference = this.#inference;
    this.#inference = undefined;
    if (inference !== undefined) await within(bounds.survey, inference.end());
  }

  async #fact(fact: AgentFact): Promise<void> {
    // Whatever the last turn caused is durable before the next request.
    if (fact.kind === 'request') this.#sandbox.witness();
    await this.#record.fact(fact);
  }

  #end(end: AgentEnd): void {
    this.#record.write({ kind: 'end', end });
  }

  async #engineIdle(): Promise<void> {
    const state = this.#record.whole;
    const engine = await this.#deps.engineFor(state).catch(() => undefined);
    const idle = await within(
      bounds.idle,
      engine?.idle(state.binding.model.tag) ?? Promise.resolve('unknown' as const),
    );
    this.#record.write({
      kind: 'step',
      step: 'engine_idle',
      observed: idle === 'idle',
      facts: { said: idle ?? 'unknown' },
    });
  }

  /** Resolves when the work is to end. */
  #aborted(): Promise<null> {
    const { signal } = this.#abort;
    return new Promise((resolve) => {
      if (signal.aborted) resolve(null);
      else signal.addEventListener('abort', () => resolve(null), { once: true });
    });
  }
}
