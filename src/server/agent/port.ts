import type { FrozenContract } from '../../protocol/contract.ts';
import type { ActivityItem } from '../../protocol/attempt.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { ChatMessage, ChatTool, ChatTurn, InferenceFailure } from '../inference/port.ts';
import type { Sandbox } from '../sandbox/port.ts';
import type { ScopeGuard } from '../scope/scope-guard.ts';

/** How an agent's work ended, before anything was collected. Maps to the outcome table of design 10. */
export type AgentEnd =
  | { readonly kind: 'finished'; readonly message: string }
  | { readonly kind: 'limit'; readonly which: 'requests' | 'wall' | 'output' | 'context'; readonly detail: string }
  | { readonly kind: 'model_fault'; readonly code: string; readonly detail: string }
  | { readonly kind: 'resource'; readonly code: string; readonly detail: string }
  | { readonly kind: 'transport'; readonly code: string; readonly detail: string }
  | { readonly kind: 'infrastructure'; readonly code: string; readonly detail: string }
  | { readonly kind: 'cancelled' };

/**
 * Facts of an attempt, in order. `record` resolves when the fact is durable: a request is counted before it is sent,
 * and everything that a turn caused is durable before the next request.
 */
export type AgentFact =
  | { readonly kind: 'request'; readonly n: number; readonly boundTokens: number; readonly proven: boolean }
  | { readonly kind: 'turn'; readonly n: number; readonly turn: ChatTurn }
  | { readonly kind: 'failure'; readonly n: number; readonly failure: InferenceFailure }
  | { readonly kind: 'activity'; readonly item: Omit<ActivityItem, 'n' | 'at'> };

/** What an agent may use of the sandbox. A person at the bounded terminal will be one more kind of agent. */
export type AgentSandbox = Pick<Sandbox, 'read' | 'write' | 'run' | 'deny'>;

export interface AgentInput {
  readonly contract: FrozenContract;
  readonly binding: Binding;
  /** The reviewer's words on an earlier candidate, or null. */
  readonly feedback: string | null;
}

export interface AgentDeps {
  /** Sends one request with the binding's options and identity; throws InferenceFailure. */
  readonly chat: (
    messages: readonly ChatMessage[],
    tools: readonly ChatTool[],
    signal: AbortSignal,
  ) => Promise<ChatTurn>;
  readonly sandbox: AgentSandbox;
  /** Holds each edit against the symbols that the contract names. */
  readonly scope: ScopeGuard;
  readonly record: (fact: AgentFact) => Promise<void>;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
}

/** Runs until an end; never throws except for defects. After `signal` aborts it returns `cancelled` promptly. */
export type RunAgent = (input: AgentInput, deps: AgentDeps, signal: AbortSignal) => Promise<AgentEnd>;
