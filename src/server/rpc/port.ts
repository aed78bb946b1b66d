import type { CodeLens, CompletionItem, Diagnostic, Hover, Position } from 'vscode-languageserver-protocol';
import type {
  ClientHello,
  ClientMethod,
  Method,
  Notification,
  NotificationParams,
  ParsedParams,
  Result,
} from '../../protocol/methods.ts';
import type { clientMethods } from '../../protocol/methods.ts';
import type { ClientId } from '../../protocol/primitives.ts';
import type * as z from 'zod';

/** One accepted, authenticated connection. A reload of a window makes a second one with the same `clientId`. */
export interface ConnectedClient {
  /** Unique in this Kernel's life, rising: of two connections of one client the higher is the newer. */
  readonly connection: number;
  readonly clientId: ClientId;
  readonly hello: ClientHello;
  readonly protocol: number;
  notify<N extends Notification>(name: N, params: NotificationParams<N>): void;
  /** Undefined when the client did not answer in time, failed or went. */
  ask<M extends ClientMethod>(
    method: M,
    params: z.output<(typeof clientMethods)[M]['params']>,
    timeoutMs: number,
  ): Promise<z.output<(typeof clientMethods)[M]['result']> | undefined>;
}

export interface RequestContext {
  readonly client: ConnectedClient;
  /** Aborts on `$/cancelRequest`, and when the connection ends. */
  readonly signal: AbortSignal;
  /** Reported as `$/progress` when the request carried a `workDoneToken`. `code` is for programs, percent 0–100 or null. */
  readonly progress: (code: string, detail: string, percent: number | null) => void;
}

export type Handlers = {
  readonly [M in Method]: (params: ParsedParams<M>, context: RequestContext) => Promise<Result<M>> | Result<M>;
};

/** Language features for `*.contract.jsonc`; documents are held by the rpc layer, per connection. */
export interface LanguageService {
  diagnostics(path: string, text: string): Promise<readonly Diagnostic[]>;
  completion(path: string, text: string, position: Position): Promise<readonly CompletionItem[]>;
  hover(path: string, text: string, position: Position): Promise<Hover | null>;
  /** Commands `escrow.contract.freeze`, `escrow.contract.baseline`, `escrow.session.start`, each with [uri]. */
  codeLenses(path: string, text: string): Promise<readonly CodeLens[]>;
}

/** What the process shell (main.ts, rpc) needs of the composed Kernel (kernel.ts). */
export interface Kernel {
  readonly handlers: Handlers;
  readonly language: LanguageService;
  /** Reconciles with the container engine; runs before the endpoint is published. Never throws for an absent engine. */
  reconcile(): Promise<void>;
  clientConnected(client: ConnectedClient): void;
  /** The observation that a connection ended. */
  clientGone(client: ConnectedClient): void;
  /** True when nothing is unsettled that this process could still move: the idle exit may happen. */
  idle(): boolean;
  /** Called when `idle()` may have changed. */
  onIdleChanged(listener: () => void): void;
  /** Set by the shell: called when `kernel/stop` was asked for and answered. */
  onStopRequested(listener: (settle: boolean) => void): void;
  /** Settles everything (bounded), closes what it opened. The store is closed by the shell afterwards. */
  drain(reason: 'stop' | 'idle' | 'signal' | 'replaced'): Promise<void>;
}
