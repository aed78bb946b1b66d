import type { Receipt } from '../../protocol/attempt.ts';
import type { EngineKind, InferenceOptions, ModelIdentity } from '../../protocol/binding.ts';
import type { Health, ModelView } from '../../protocol/status.ts';
import type { Inventory } from './inventory.ts';

export interface ChatTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema with only the keywords that the engine does not drop (facts/ollama-wire). */
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** `arguments` is whatever JSON value the engine sent; the agent validates it. */
export interface ToolCall {
  readonly id: string | null;
  readonly name: string;
  readonly arguments: unknown;
}

export type ChatMessage =
  | { readonly role: 'system' | 'user'; readonly content: string }
  | {
      readonly role: 'assistant';
      readonly content: string;
      readonly thinking: string;
      readonly toolCalls: readonly ToolCall[];
    }
  | { readonly role: 'tool'; readonly toolName: string; readonly toolCallId: string | null; readonly content: string };

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ChatTool[];
  readonly options: InferenceOptions;
  /** The version that the binding names; another one that answers is a finding. Null: not bound yet. */
  readonly engineVersion: string | null;
}

export type ChatEvent =
  | { readonly kind: 'loading'; readonly sinceMs: number }
  | { readonly kind: 'thinking'; readonly text: string }
  | { readonly kind: 'content'; readonly text: string };

/** A whole, verified turn: the stream ended with its done marker and the receipt's identity held. */
export interface ChatTurn {
  readonly content: string;
  readonly thinking: string;
  readonly toolCalls: readonly ToolCall[];
  readonly doneReason: string;
  readonly receipt: Receipt;
  readonly rawRequest: Uint8Array;
  readonly rawResponse: Uint8Array;
}

/**
 * A request that did not give a usable turn. `kind` says whose fault it was and maps to an outcome:
 * transport → `transport`; resource → `resource`; model → `model_fault`; context → `limit`; identity → `transport`
 * with its findings; unsupported (tools not supported, cloud, bad tag) → `transport` refused; cancelled → by us.
 */
export class InferenceFailure extends Error {
  override readonly name = 'InferenceFailure';
  readonly kind: 'transport' | 'resource' | 'model' | 'context' | 'identity' | 'unsupported' | 'cancelled';
  /** A code, e.g. `stream_cut`, `error_in_stream`, `digest_changed`, `context_smaller`, `stalled`. */
  readonly code: string;
  readonly receipt: Receipt | null;
  readonly rawRequest: Uint8Array | null;
  /** Whatever arrived: kept as evidence, bounded. */
  readonly rawResponse: Uint8Array | null;
  constructor(
    kind: InferenceFailure['kind'],
    code: string,
    message: string,
    evidence: { receipt?: Receipt; rawRequest?: Uint8Array; rawResponse?: Uint8Array } = {},
  ) {
    super(message);
    this.kind = kind;
    this.code = code;
    this.receipt = evidence.receipt ?? null;
    this.rawRequest = evidence.rawRequest ?? null;
    this.rawResponse = evidence.rawResponse ?? null;
  }
  static is(value: unknown): value is InferenceFailure {
    return value instanceof InferenceFailure;
  }
}

export interface LoadedModel {
  readonly tag: string;
  readonly digest: string | null;
  readonly contextLength: number | null;
  readonly size: number | null;
  readonly sizeVram: number | null;
}

/** What was seen of an engine's working on our last request: never more than it shows. */
export type Idle = 'idle' | 'busy' | 'unknown';
/** One look. `unclear`: as it would be if the request had never arrived; a later look may tell. */
export type IdleLook = Idle | 'unclear';

export interface InferenceEngine {
  readonly kind: EngineKind;
  readonly host: string;
  readonly synthetic: boolean;
  /** Never throws. */
  health(): Promise<Health & { readonly version: string | null }>;
  /** Throws EscrowError: CloudModelRefused, ModelNotFound (lists what is there), InferenceTooOld, InferenceUnavailable. */
  identity(tag: string): Promise<ModelIdentity>;
  inventory(): Promise<readonly ModelView[]>;
  loaded(): Promise<readonly LoadedModel[]>;
  /** What there is and what is loaded, for the record before and after. `model` finds the store. Throws EscrowError. */
  survey(model: ModelIdentity | null): Promise<Inventory>;
  /**
   * Throws InferenceFailure only. `expected` is the binding's identity. An abort whose reason is a `Fault` ends with that
   * fault's kind and code; any other as `cancelled`.
   */
  chat(
    request: ChatRequest,
    expected: ModelIdentity,
    onEvent: (event: ChatEvent) => void,
    signal: AbortSignal,
  ): Promise<ChatTurn>;
  /**
   * Waits, bounded by some two seconds, for signs that the engine works on no request of ours any more. `unknown` where it
   * shows none. A request after one that was given up waits for the same, longer, before it is sent.
   */
  idle(tag: string): Promise<Idle>;
}
