import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  CancellationTokenSource,
  createMessageConnection,
  ErrorCodes,
  ResponseError,
  type CancellationToken,
  type InitializeResult,
  type MessageConnection,
} from 'vscode-languageserver-protocol/node';
import type * as z from 'zod';
import { BoundedReader, BoundedWriter } from '../../protocol/framing.ts';
import { clientMethods, type ClientHello, type ClientMethod } from '../../protocol/methods.ts';
import type { ClientId } from '../../protocol/primitives.ts';
import type { Logger } from '../log.ts';
import { within } from '../within.ts';
import { dispatch, type DispatchPolicy } from './dispatch.ts';
import { languageCapabilities, serveLanguage } from './language-documents.ts';
import type { ConnectedClient, Kernel } from './port.ts';

/** Requests of one connection that may run at once; a client that wants more has lost count. */
const maxInFlight = 256;
/** For answers under way when the connection is to end, in ms: whoever asked to stop wants to hear that it is done. */
const lastAnswersMs = 1000;

export interface ConnectionOptions {
  readonly socket: Socket;
  readonly connection: number;
  readonly clientId: ClientId;
  readonly hello: ClientHello;
  readonly protocol: number;
  readonly kernel: Kernel;
  readonly policy: DispatchPolicy;
  readonly version: string;
  readonly log: Logger;
  /** Called once, when the connection has ended for whatever reason. */
  readonly onEnd: (client: ConnectedClient) => void;
}

export interface ClientConnection {
  readonly client: ConnectedClient;
  /** Ends after what was asked has been answered and what was written has gone out; each forced after a moment. */
  end(): void;
}

const progressToken = (params: unknown): string | number | undefined => {
  if (typeof params !== 'object' || params === null || !('workDoneToken' in params)) return undefined;
  const token = params.workDoneToken;
  return typeof token === 'string' || typeof token === 'number' ? token : undefined;
};

/** LSP puts the token among the parameters; the schemas of the methods are strict and don't know it. */
function withoutToken(params: unknown): unknown {
  if (typeof params !== 'object' || params === null || !('workDoneToken' in params)) return params;
  const { workDoneToken: _, ...rest } = params;
  return rest;
}

function progressReporter(
  connection: MessageConnection,
  token: string | number | undefined,
): { readonly report: (code: string, detail: string, percent: number | null) => void; readonly end: () => void } {
  if (token === undefined) return { report: () => undefined, end: () => undefined };
  let begun = false;
  const send = (value: Readonly<Record<string, unknown>>): void => {
    void connection.sendNotification('$/progress', { token, value }).catch(() => undefined);
  };
  return {
    report(code, detail, percent) {
      const common = { code, message: detail, ...(percent === null ? {} : { percentage: percent }) };
      send(begun ? { kind: 'report', ...common } : { kind: 'begin', title: code, ...common });
      begun = true;
    },
    end() {
      if (begun) send({ kind: 'end' });
    },
  };
}

/** Speaks JSON-RPC and LSP with one authenticated client over its socket, which it owns from here on. */
export function serveConnection(options: ConnectionOptions): ClientConnection {
  const { socket, kernel, log, policy } = options;
  const connection = createMessageConnection(new BoundedReader(socket), new BoundedWriter(socket), {
    error: (message) => log('warn', 'rpc', { message }),
    warn: (message) => log('warn', 'rpc', { message }),
    info: (message) => log('debug', 'rpc', { message }),
    log: (message) => log('debug', 'rpc', { message }),
  });
  const inFlight = new Set<AbortController>();
  const { promise: answered, resolve: allAnswered } = Promise.withResolvers<void>();
  let ending = false;
  let ended = false;

  const client: ConnectedClient = {
    connection: options.connection,
    clientId: options.clientId,
    hello: options.hello,
    protocol: options.protocol,
    notify(name, params) {
      if (!ended) void connection.sendNotification(name, params).catch(() => undefined);
    },
    async ask<M extends ClientMethod>(
      method: M,
      params: z.output<(typeof clientMethods)[M]['params']>,
      timeoutMs: number,
    ) {
      if (ended) return undefined;
      const source = new CancellationTokenSource();
      const { promise: late, resolve } = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => {
        source.cancel();
        resolve(undefined);
      }, timeoutMs);
      try {
        const answer: unknown = await Promise.race([
          connection.sendRequest<unknown>(method, params, source.token),
          late,
        ]);
        return parseAnswer(method, answer);
      } catch {
        // Refused, failed or gone: all the same to the Kernel, "unknown".
        return undefined;
      } finally {
        clearTimeout(timer);
        source.dispose();
      }
    },
  };

  const onRequest = async (method: string, params: unknown, token: CancellationToken): Promise<unknown> => {
    if (inFlight.size >= maxInFlight) {
      return new ResponseError(ErrorCodes.InvalidRequest, `More than ${maxInFlight} requests at once`);
    }
    const controller = new AbortController();
    const cancellation = token.onCancellationRequested(() => controller.abort());
    if (token.isCancellationRequested) controller.abort();
    inFlight.add(controller);
    const progress = progressReporter(connection, progressToken(params));
    try {
      return await dispatch(
        method,
        withoutToken(params),
        { handlers: kernel.handlers, policy, log },
        {
          client,
          signal: controller.signal,
          progress: progress.report,
        },
      );
    } finally {
      progress.end();
      inFlight.delete(controller);
      cancellation.dispose();
      if (ending && inFlight.size === 0) allAnswered();
    }
  };

  connection.onRequest('initialize', (): InitializeResult => ({
    capabilities: languageCapabilities,
    serverInfo: { name: 'Escrow Kernel', version: options.version },
  }));
  connection.onRequest('shutdown', () => null);
  connection.onNotification('exit', () => end());
  connection.onNotification(() => undefined);
  const language = serveLanguage(connection, kernel.language, log);
  connection.onRequest((method: string, params: unknown, token: CancellationToken) => onRequest(method, params, token));

  const finish = (): void => {
    if (ended) return;
    ended = true;
    language.dispose();
    for (const controller of inFlight) controller.abort();
    connection.dispose();
    socket.destroy();
    options.onEnd(client);
  };
  const close = async (): Promise<void> => {
    if (inFlight.size > 0) await within(lastAnswersMs, answered);
    // An answer is written in the turn in which its handler has come back.
    await nextTurn();
    socket.end();
    // A peer that does not close its half gets a second.
    setTimeout(() => socket.destroy(), 1000).unref();
  };
  const end = (): void => {
    if (ended || ending) return;
    ending = true;
    void close();
  };
  connection.onError(([error]) =>
    log('warn', 'a connection failed', { client: options.clientId, error: error.message }),
  );
  connection.onClose(finish);
  socket.once('close', finish);
  connection.listen();
  return { client, end };
}

function parseAnswer<M extends ClientMethod>(
  method: M,
  answer: unknown,
): z.output<(typeof clientMethods)[M]['result']> | undefined {
  const parsed = clientMethods[method].result.safeParse(answer);
  return parsed.success ? (parsed.data as z.output<(typeof clientMethods)[M]['result']>) : undefined;
}
