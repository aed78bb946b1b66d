import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { InferenceHost } from './host.ts';
import { loopbackLookup } from './host.ts';

/** An exchange that did not come to a complete answer. */
export class HttpFault extends Error {
  override readonly name = 'HttpFault';
  readonly code: 'unreachable' | 'timeout' | 'cut' | 'too_long' | 'redirect' | 'encoded';
  constructor(code: HttpFault['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export interface HttpReply {
  readonly status: number;
  readonly body: IncomingMessage;
}

/**
 * Node's own client, without what a browser-like `fetch` adds: no redirect is followed, no proxy variable is read
 * (agents of our own, so `NODE_USE_ENV_PROXY` is without effect), no header time-out of 300 s, no retry of what was sent,
 * no decompression. A POST has a connection of its own. Small questions share connections that stay open between them; a
 * question on one that the engine had closed meanwhile is asked once more on a new one.
 */
export interface HttpClient {
  /** Resolves with the headers; the caller reads or destroys the body. Throws HttpFault, or the signal's reason. */
  send(method: 'GET' | 'POST', path: string, body: Uint8Array | null, signal: AbortSignal): Promise<HttpReply>;
  /** A whole small answer. Throws HttpFault, or the signal's reason. */
  fetch(
    method: 'GET' | 'POST',
    path: string,
    body: Uint8Array | null,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<{ readonly status: number; readonly bytes: Uint8Array }>;
}

/** Bytes of a small answer (tags, ps, show): a machine with a thousand models stays below 1 MiB. */
const smallAnswerLimit = 8_388_608;

/** Connections for small questions, and how long one stays open unused, in ms. */
const smallConnections = 4;
const smallIdleMs = 4000;

/** Makes a client for one host. What it holds between requests keeps no process alive and closes by itself. */
export function createHttpClient(host: InferenceHost): HttpClient {
  const secure = host.protocol === 'https:';
  const once = secure ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false });
  const kept = {
    keepAlive: true,
    maxSockets: smallConnections,
    maxFreeSockets: smallConnections,
    timeout: smallIdleMs,
  };
  const shared = secure ? new HttpsAgent(kept) : new HttpAgent(kept);
  const open = secure ? httpsRequest : httpRequest;

  const send: HttpClient['send'] = (method, path, body, signal) =>
    new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      const request: ClientRequest = open({
        agent: method === 'GET' ? shared : once,
        host: host.hostname,
        port: host.port,
        path,
        method,
        signal,
        ...(host.loopbackOnly ? { lookup: loopbackLookup } : {}),
        headers: {
          accept: 'application/x-ndjson, application/json',
          'accept-encoding': 'identity',
          ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': String(body.length) }),
        },
      });
      request.on('error', (error: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason as Error);
        else if (method === 'GET' && request.reusedSocket && error.code === 'ECONNRESET')
          resolve(send(method, path, body, signal));
        else reject(new HttpFault('unreachable', error.code ?? error.message, { cause: error }));
      });
      request.on('response', (response) => {
        const status = response.statusCode ?? 0;
        if (status >= 300 && status < 400) {
          response.destroy();
          reject(new HttpFault('redirect', `answered ${status} to another address, which is not followed`));
          return;
        }
        const encoding = response.headers['content-encoding'];
        if (encoding !== undefined && encoding !== 'identity') {
          response.destroy();
          reject(new HttpFault('encoded', `answered with content-encoding ${encoding}`));
          return;
        }
        resolve({ status, body: response });
      });
      if (body !== null) request.write(body);
      request.end();
    });

  return {
    send,
    async fetch(method, path, body, timeoutMs, signal) {
      const deadline = AbortSignal.timeout(timeoutMs);
      const combined = signal === undefined ? deadline : AbortSignal.any([signal, deadline]);
      try {
        const reply = await send(method, path, body, combined);
        const bytes = await readAll(reply.body, smallAnswerLimit);
        return { status: reply.status, bytes };
      } catch (error) {
        if (signal?.aborted === true) throw signal.reason as Error;
        if (deadline.aborted) throw new HttpFault('timeout', `no answer within ${timeoutMs} ms`, { cause: error });
        throw error;
      }
    },
  };
}

/** Reads a body to its end. Throws HttpFault `cut` or `too_long`. */
export async function readAll(body: IncomingMessage, limit: number): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let size = 0;
  try {
    await readEach(body, (chunk) => {
      size += chunk.length;
      if (size > limit) throw new HttpFault('too_long', `the answer is longer than ${limit} bytes`);
      parts.push(chunk);
    });
  } catch (error) {
    if (error instanceof HttpFault) throw error;
    throw new HttpFault('cut', 'the answer ended early', { cause: error });
  }
  return Buffer.concat(parts);
}

/**
 * Gives each piece of a body as it comes, at once: an iteration would cost some turns of the event loop for each token.
 * Resolves at its end; throws what `take` throws (the connection is closed then), or an error where the body was cut.
 */
export async function readEach(body: IncomingMessage, take: (piece: Buffer) => void): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    body.on('data', (piece: Buffer) => {
      try {
        take(piece);
      } catch (error) {
        reject(error);
        body.destroy();
      }
    });
    body.once('end', resolve);
    body.once('error', reject);
    body.once('close', () => {
      reject(new Error('closed before its end'));
    });
  });
}
