import { setTimeout as delay } from 'node:timers/promises';
import type { CancellationToken, MessageTransports } from 'vscode-languageclient/node';
import {
  CloseAction,
  ConnectionError,
  ErrorAction,
  ErrorCodes,
  LanguageClient,
  ResponseError,
  WorkDoneProgress,
} from 'vscode-languageclient/node';
import type * as vscode from 'vscode';
import { parseProgress, type Progress } from '../../client/kernel-connection.ts';
import { EscrowError, type ErrorCode } from '../../protocol/errors.ts';
import type { Method, Notification, NotificationParams, Params, Result } from '../../protocol/methods.ts';
import type { Fault } from '../fault-words.ts';
import { contractLanguage } from '../ids.ts';
import type { StateStore } from '../window-state.ts';

/** A connection whose handshake is done. */
export interface OpenedConnection {
  readonly transports: MessageTransports;
  readonly kernelVersion: string;
  /** The Kernel is older than this extension and goes on because somebody needs it. */
  readonly updatePending: boolean;
  /** Ends the socket; the Kernel sees it at once. */
  readonly end: () => void;
}

export interface KernelLinkOptions {
  readonly store: StateStore;
  readonly log: vscode.LogOutputChannel;
  /** Finds the Kernel, or starts it when `autostart`. Throws EscrowError. */
  readonly connect: (autostart: boolean) => Promise<OpenedConnection>;
  /** Runs after each connection is up, before anything else is asked. */
  readonly onConnected: () => Promise<void>;
  readonly onNotification: <N extends Notification>(name: N, params: NotificationParams<N>) => void;
  /** Answers the Kernel's question which of `paths` an editor of this window holds unsaved. */
  readonly unsaved: (paths: readonly string[]) => readonly string[];
  readonly now: () => number;
}

/** Trying again does not help with these: a person has to do something first. */
const final: ReadonlySet<ErrorCode> = new Set([
  'VersionMismatch',
  'RuntimeTooOld',
  'StorageTooNew',
  'StorageUnwritable',
  'UnsafePath',
  'HandshakeRefused',
  'InvalidSettings',
]);

/** First wait, and the longest, before another try to connect. */
const firstRetryMs = 1000;
const longestRetryMs = 30_000;
/** Starts in a row that may fail before a person is asked: each one costs a process. */
const startsBeforeAsking = 5;

interface Live {
  readonly client: LanguageClient;
  readonly connection: OpenedConnection;
  readonly closed: Promise<void>;
  /** Whether the Kernel said that it ends on purpose. */
  readonly stopped: () => boolean;
}

/** True for what the transport rejects with when a request could not be written or its answer can no longer come. */
function connectionEnded(error: unknown): boolean {
  const codes: readonly number[] = [
    ErrorCodes.PendingResponseRejected,
    ErrorCodes.MessageWriteError,
    ErrorCodes.ConnectionInactive,
  ];
  return error instanceof ConnectionError || (error instanceof ResponseError && codes.includes(error.code));
}

/** How the connection itself went, as a fault of the window's own. */
function linkFault(link: 'stopped' | 'ended' | 'unforeseen'): Fault {
  return { code: 'NoKernel', message: '', next: '', details: { link } };
}

/** What kept a try from its connection, for whoever waits: trying again is what there is to do about it. */
function notStarted(error: EscrowError | undefined, reason: string): EscrowError {
  const { code, message, next, details } = error ?? new EscrowError('Internal', reason, '');
  return new EscrowError(code, message, next, { ...details, link: 'start' });
}

function asEscrowError(error: unknown): EscrowError | undefined {
  if (EscrowError.is(error)) return error;
  if (!(error instanceof Error) || !('data' in error)) return undefined;
  return EscrowError.fromWire(error.message, error.data);
}

/**
 * The window's one connection to the Kernel: finds or starts it, connects again with growing waits when it is lost, and
 * says in the store what is so. A `LanguageClient` on the same socket serves the contract files.
 */
export class KernelLink {
  readonly #options: KernelLinkOptions;
  #live: Live | undefined;
  #running = false;
  /** Who waits for the outcome of the try that is under way or comes next. */
  #waiting: PromiseWithResolvers<void>[] = [];
  #progressTokens = 0;
  #stop = new AbortController();
  #wake = new AbortController();

  constructor(options: KernelLinkOptions) {
    this.#options = options;
  }

  get connected(): boolean {
    return this.#live !== undefined;
  }

  /** Begins to connect, or tries again at once. */
  start(): void {
    if (this.#stop.signal.aborted) return;
    this.#wake.abort();
    if (this.#running) return;
    this.#running = true;
    void this.#run()
      .catch((error: unknown) => {
        this.#options.log.error(error instanceof Error ? error : String(error));
        this.#lost(linkFault('unforeseen'), false);
        this.#tell(notStarted(asEscrowError(error), 'unforeseen'));
      })
      .finally(() => {
        this.#running = false;
        this.#tell(new EscrowError('Cancelled', 'The window is closing.', ''));
      });
  }

  /** Tries at once. Resolves when connected; throws what kept this try from it, whether or not others follow. */
  async connect(): Promise<void> {
    if (this.#live !== undefined) return;
    const outcome = Promise.withResolvers<void>();
    this.#waiting.push(outcome);
    this.start();
    await outcome.promise;
  }

  /** Tells those who wait how the try went; without an error: connected. */
  #tell(error?: EscrowError): void {
    for (const { resolve, reject } of this.#waiting.splice(0)) {
      if (error === undefined) resolve();
      else reject(error);
    }
  }

  /** One request. Throws EscrowError: the Kernel's own, or `NoKernel` when there is no connection. */
  async request<M extends Method>(
    method: M,
    params: Params<M>,
    token?: CancellationToken,
    onProgress?: (progress: Progress) => void,
  ): Promise<Result<M>> {
    const live = this.#live;
    if (live === undefined) {
      throw new EscrowError(
        'NoKernel',
        'This window is not connected to the Kernel.',
        'Start the Kernel, then try again.',
      );
    }
    const progress = onProgress === undefined ? undefined : this.#followProgress(live.client, onProgress);
    const sent = progress === undefined ? params : { ...params, workDoneToken: progress.token };
    try {
      // A last argument that is undefined would be sent as a second parameter.
      const result: Result<M> = await (token === undefined
        ? live.client.sendRequest(method, sent)
        : live.client.sendRequest(method, sent, token));
      this.#options.store.update({ lastHeardAt: this.#options.now() });
      return result;
    } catch (error) {
      const known = asEscrowError(error);
      if (known !== undefined) throw known;
      if (this.#live !== live || connectionEnded(error)) {
        throw new EscrowError(
          'NoKernel',
          'The connection ended before the Kernel answered. Whether it acted is not known.',
          'Look at the session after the window has connected again.',
          { link: 'unanswered' },
        );
      }
      throw error;
    } finally {
      progress?.dispose();
    }
  }

  /** Hears what a request of ours says of itself on the way. */
  #followProgress(
    client: LanguageClient,
    onProgress: (progress: Progress) => void,
  ): { readonly token: string; dispose(): void } {
    const token = `window-${++this.#progressTokens}`;
    const listener = client.onProgress(WorkDoneProgress.type, token, (value) => {
      const progress = parseProgress(value);
      if (progress !== undefined) onProgress(progress);
    });
    return {
      token,
      dispose: () => {
        listener.dispose();
      },
    };
  }

  /** Resolves when the present connection has ended; at once when there is none. */
  async ended(): Promise<void> {
    await this.#live?.closed;
  }

  /** Ends the connection now and keeps it ended. */
  dispose(): void {
    this.#stop.abort();
    this.#wake.abort();
    const live = this.#live;
    this.#live = undefined;
    live?.connection.end();
  }

  /** A courtesy that makes the Kernel notice at once; it needs no answer. */
  async sayGoodbye(): Promise<void> {
    await this.#live?.client.sendRequest('window/closing', {});
  }

  #lost(fault: Fault, retrying: boolean): void {
    this.#options.store.update({
      connection: { kind: 'lost', fault, retrying },
      controls: new Set(),
      unrefreshed: new Map(),
    });
  }

  async #run(): Promise<void> {
    const { store, log } = this.#options;
    let failures = 0;
    while (!this.#stop.signal.aborted) {
      // After a loss the view says so until there is something better to say.
      if (store.state.connection.kind !== 'lost')
        store.update({ connection: { kind: 'connecting', attempt: failures } });
      try {
        const live = await this.#open();
        failures = 0;
        this.#tell();
        await live.closed;
        this.#live = undefined;
        await this.#discard(live);
        if (this.#stop.signal.aborted) return;
        // A Kernel that was told to stop stays stopped until a person wants it.
        const told = live.stopped();
        log.warn(told ? 'The Kernel was stopped.' : 'The connection to the Kernel ended.');
        this.#lost(linkFault(told ? 'stopped' : 'ended'), !told);
        await this.#rest(told ? undefined : firstRetryMs);
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        failures += 1;
        const known = asEscrowError(error);
        const giveUp = failures >= startsBeforeAsking || (known !== undefined && final.has(known.code));
        const reason = known?.message ?? (error instanceof Error ? error.message : String(error));
        log.error(`Could not connect to the Kernel: ${known?.code ?? ''} ${reason}`);
        this.#lost(known ?? linkFault('unforeseen'), !giveUp);
        this.#tell(notStarted(known, reason));
        await this.#rest(giveUp ? undefined : Math.min(firstRetryMs * 2 ** (failures - 1), longestRetryMs));
        if (giveUp) failures = 0;
      }
    }
  }

  /** Waits for the time to pass, or for somebody to call `start`; without a time only for the latter. */
  async #rest(milliseconds: number | undefined): Promise<void> {
    this.#wake = new AbortController();
    const wake = AbortSignal.any([this.#wake.signal, this.#stop.signal]);
    if (milliseconds === undefined) {
      await new Promise<void>((resolve) => {
        wake.addEventListener('abort', () => resolve(), { once: true });
      });
      return;
    }
    await delay(milliseconds, undefined, { signal: wake }).catch(() => undefined);
  }

  async #open(): Promise<Live> {
    const { store, log, onConnected, onNotification, unsaved, now } = this.#options;
    const connection = await this.#options.connect(true);
    if (this.#stop.signal.aborted) {
      connection.end();
      throw new EscrowError('Cancelled', 'The window is closing.', '');
    }
    const ended = Promise.withResolvers<void>();
    const client = new LanguageClient(
      'escrow.contracts',
      'Escrow contracts',
      () => Promise.resolve(connection.transports),
      {
        documentSelector: [{ language: contractLanguage, scheme: 'file' }],
        outputChannel: log,
        // This link connects again itself; the client would start a server that it does not own.
        errorHandler: {
          error: () => ({ action: ErrorAction.Continue, handled: true }),
          closed: () => {
            ended.resolve();
            return { action: CloseAction.DoNotRestart, handled: true };
          },
        },
        initializationFailedHandler: () => false,
        markdown: { isTrusted: false, supportHtml: false },
      },
    );
    let stopped = false;
    const live: Live = { client, connection, closed: ended.promise, stopped: () => stopped };
    client.onRequest('editor/unsaved', (params: { paths: readonly string[] }) => ({ unsaved: unsaved(params.paths) }));
    const hear = (name: Notification): void => {
      client.onNotification(name, (params: NotificationParams<Notification>) => {
        store.update({ lastHeardAt: now() });
        onNotification(name, params);
      });
    };
    hear('evidence/events');
    hear('kernel/changed');
    hear('session/live');
    hear('session/controlLost');
    client.onNotification('kernel/stopping', ({ reason }: NotificationParams<'kernel/stopping'>) => {
      // One that makes room for a newer Kernel is followed by it at once.
      stopped = reason === 'stop' || reason === 'signal';
    });
    try {
      await client.start();
      log.info(`connected to Kernel ${connection.kernelVersion}`);
      this.#live = live;
      store.update({
        connection: {
          kind: 'connected',
          updatePending: connection.updatePending,
          catchingUp: true,
          answering: true,
        },
        lastHeardAt: now(),
      });
      await onConnected();
      return live;
    } catch (error) {
      this.#live = undefined;
      connection.end();
      await this.#discard(live);
      throw error;
    }
  }

  /** The client of an ended connection cannot say goodbye: its own errors about that say nothing new. */
  async #discard(live: Live): Promise<void> {
    live.connection.end();
    await live.client.dispose(500).catch((error: unknown) => {
      this.#options.log.debug(`language client: ${error instanceof Error ? error.message : String(error)}`);
    });
  }
}
