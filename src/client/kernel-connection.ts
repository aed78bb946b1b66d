import {
  CancellationTokenSource,
  createMessageConnection,
  ErrorCodes,
  ResponseError,
  type Disposable,
  type MessageConnection,
  type MessageReader,
  type MessageWriter,
} from 'vscode-jsonrpc/node';
import type * as z from 'zod';
import { EscrowError } from '../protocol/errors.ts';
import { BoundedReader, BoundedWriter } from '../protocol/framing.ts';
import {
  clientMethods,
  type ClientMethod,
  type Method,
  type Notification,
  type NotificationParams,
  type Params,
  type Result,
} from '../protocol/methods.ts';
import type { KernelSocket } from './find-kernel.ts';

/** What a long request says of itself on the way. */
export interface Progress {
  /** For programs. */
  readonly code: string;
  readonly detail: string;
  /** 0–100, or null when it is not known. */
  readonly percent: number | null;
}

export interface CallOptions {
  /** Aborting sends `$/cancelRequest`; the call then rejects with what the Kernel answers (usually `Cancelled`). */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** Bounded reader and writer over an authenticated socket, e.g. for vscode-languageclient. */
export function messageTransports(kernel: KernelSocket): {
  readonly reader: MessageReader;
  readonly writer: MessageWriter;
} {
  return { reader: new BoundedReader(kernel.socket), writer: new BoundedWriter(kernel.socket) };
}

const ended = (): EscrowError =>
  new EscrowError(
    'NoKernel',
    'The connection to the Kernel ended before it answered. Whether it acted is not known.',
    'Connect again and look at the session.',
  );

/** True for what vscode-jsonrpc says when a request could not be written or its answer can no longer come. */
const lostOnTheWay = (error: unknown): boolean =>
  error instanceof ResponseError &&
  (error.code === ErrorCodes.MessageWriteError || error.code === ErrorCodes.PendingResponseRejected);

/** The typed error behind whatever vscode-jsonrpc rejected with; other errors come back as they are. */
export function kernelError(error: unknown): unknown {
  if (!(error instanceof Error) || !('data' in error)) return error;
  return EscrowError.fromWire(error.message, error.data) ?? error;
}

/** The value of a `$/progress`; undefined for its end and for what is none. */
export function parseProgress(value: unknown): Progress | undefined {
  if (typeof value !== 'object' || value === null || !('kind' in value) || value.kind === 'end') return undefined;
  const { code, message, percentage } = value as { code?: unknown; message?: unknown; percentage?: unknown };
  return {
    code: typeof code === 'string' ? code : '',
    detail: typeof message === 'string' ? message : '',
    percent: typeof percentage === 'number' ? percentage : null,
  };
}

/** One typed conversation with the Kernel. Owns its socket: `dispose` ends it. */
export class KernelConnection {
  readonly welcome: KernelSocket['welcome'];
  readonly updatePending: boolean;
  /** Settles once, when the connection has ended, with the reason in words. Never rejects. */
  readonly closed: Promise<string>;
  readonly #kernel: KernelSocket;
  readonly #rpc: MessageConnection;
  readonly #progress = new Map<string, (progress: Progress) => void>();
  readonly #listeners = new Map<Notification, Set<(params: unknown) => void>>();
  #lastToken = 0;
  #over = false;
  #reason = 'the Kernel ended the connection';

  constructor(kernel: KernelSocket) {
    this.#kernel = kernel;
    this.welcome = kernel.welcome;
    this.updatePending = kernel.updatePending;
    const { reader, writer } = messageTransports(kernel);
    const rpc = createMessageConnection(reader, writer);
    this.#rpc = rpc;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.closed = promise;
    const finish = (): void => {
      if (this.#over) return;
      this.#over = true;
      // Rejects what still waits for an answer; without it those promises would hang.
      rpc.dispose();
      kernel.socket.destroy();
      resolve(this.#reason);
    };
    rpc.onError(([error]) => {
      this.#reason = error.message;
    });
    rpc.onClose(finish);
    rpc.onNotification('$/progress', (params: { token?: unknown; value?: unknown }) => {
      const listener = this.#progress.get(String(params.token));
      const progress = parseProgress(params.value);
      if (listener !== undefined && progress !== undefined) listener(progress);
    });
    rpc.onUnhandledNotification(() => undefined);
    rpc.listen();
  }

  /**
   * Sends one request. Rejects with EscrowError: the Kernel's own, `Cancelled` after an abort, or `NoKernel` when the
   * connection ends first (whether the Kernel acted is then not known).
   */
  async call<M extends Method>(method: M, params: Params<M>, options: CallOptions = {}): Promise<Result<M>> {
    if (this.#over) throw ended();
    const source = new CancellationTokenSource();
    const cancel = (): void => source.cancel();
    const { signal, onProgress } = options;
    const token = `p${++this.#lastToken}`;
    if (onProgress !== undefined) this.#progress.set(token, onProgress);
    signal?.addEventListener('abort', cancel, { once: true });
    if (signal?.aborted === true) cancel();
    try {
      const sent = onProgress === undefined ? params : { ...params, workDoneToken: token };
      return await this.#rpc.sendRequest<Result<M>>(method, sent, source.token);
    } catch (error) {
      // The write may fail before the end of the socket has been heard of.
      if (this.#over || lostOnTheWay(error)) throw ended();
      throw kernelError(error);
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.#progress.delete(token);
      source.dispose();
    }
  }

  /** Hears a notification; several listeners of one name each hear it. Returns the function that ends it. */
  on<N extends Notification>(name: N, listener: (params: NotificationParams<N>) => void): () => void {
    let listeners = this.#listeners.get(name);
    if (listeners === undefined) {
      const added = new Set<(params: unknown) => void>();
      listeners = added;
      this.#listeners.set(name, added);
      this.#rpc.onNotification(name, (params: unknown) => {
        for (const each of added) each(params);
      });
    }
    const entry = listener as (params: unknown) => void;
    const all = listeners;
    all.add(entry);
    return () => {
      all.delete(entry);
    };
  }

  /** Answers a question of the Kernel. Returns the function that ends it. */
  handle<M extends ClientMethod>(
    method: M,
    answer: (
      params: z.output<(typeof clientMethods)[M]['params']>,
    ) => z.output<(typeof clientMethods)[M]['result']> | Promise<z.output<(typeof clientMethods)[M]['result']>>,
  ): () => void {
    const registered: Disposable = this.#rpc.onRequest(method, async (raw: unknown) =>
      answer(clientMethods[method].params.parse(raw) as z.output<(typeof clientMethods)[M]['params']>),
    );
    return () => registered.dispose();
  }

  /** Ends the connection; `closed` settles when it has ended. */
  dispose(): void {
    if (this.#over) return;
    this.#reason = 'this client ended the connection';
    this.#kernel.socket.destroySoon();
  }
}
