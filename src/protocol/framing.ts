import type { Socket } from 'node:net';
import {
  AbstractMessageReader,
  AbstractMessageWriter,
  Message,
  type DataCallback,
  type Disposable,
  type MessageReader,
  type MessageWriter,
} from 'vscode-jsonrpc/node';
import { errorCodes } from './errors.ts';

/** Bounds of one frame. The stock reader of vscode-jsonrpc has none. */
export interface FrameLimits {
  readonly headerBytes: number;
  readonly bodyBytes: number;
  /** Nesting of objects and arrays. */
  readonly depth: number;
  /** Milliseconds from a frame's first byte to its last. */
  readonly frameMs: number;
  /** Bytes that may wait for a peer that does not read. */
  readonly unsentBytes: number;
}

/** 8 MiB holds an artefact piece (1 MiB, base64) several times over; design 10 "Wire". */
export const frameLimits: FrameLimits = {
  headerBytes: 1024,
  bodyBytes: 8 * 1024 * 1024,
  depth: 64,
  frameMs: 10_000,
  unsentBytes: 32 * 1024 * 1024,
};

/** What the other side did wrong. The connection is ended with it. */
export class FrameFault extends Error {
  override readonly name = 'FrameFault';
}

const headerEnd = Buffer.from('\r\n\r\n');
const contentType = /^content-type:[ \t]*application\/vscode-jsonrpc;[ \t]*charset=utf-?8$/i;
const contentLength = /^content-length:[ \t]*(\d{1,9})$/i;

/** Content length of a header block without its blank line. Throws FrameFault. */
export function parseHeader(header: string, maxBody: number): number {
  let length: number | undefined;
  for (const line of header.split('\r\n')) {
    const digits = contentLength.exec(line)?.[1];
    if (digits === undefined) {
      if (!contentType.test(line)) throw new FrameFault('unknown header');
      continue;
    }
    if (length !== undefined) throw new FrameFault('two lengths in one header');
    length = Number(digits);
  }
  if (length === undefined) throw new FrameFault('header without length');
  if (length === 0 || length > maxBody) throw new FrameFault(`length ${length} is out of bounds`);
  return length;
}

/** Deepest nesting of JSON text, counted before it is parsed (the parser would recurse). */
export function nesting(body: Uint8Array): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < body.length; i++) {
    const byte = body[i];
    if (inString) {
      if (byte === 0x5c) i++;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x5b || byte === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return deepest;
}

function parseBody(body: Buffer, maxDepth: number): Message {
  if (nesting(body) > maxDepth) throw new FrameFault('nested too deeply');
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw new FrameFault('body is not JSON');
  }
  if (typeof value !== 'object' || value === null || !('jsonrpc' in value) || value.jsonrpc !== '2.0') {
    throw new FrameFault('body is not a JSON-RPC message');
  }
  if ('id' in value && typeof value.id !== 'string' && typeof value.id !== 'number' && value.id !== null) {
    throw new FrameFault('id is neither string nor number');
  }
  if ('method' in value && typeof value.method !== 'string') throw new FrameFault('method is not a string');
  return value as unknown as Message;
}

/**
 * Reads LSP frames from a socket within bounds, for vscode-jsonrpc. Any fault ends the connection: after a bad frame
 * there is no way to know where the next one starts. Messages are handed over one a turn of the event loop, as
 * vscode-jsonrpc takes them, and the socket is paused meanwhile: a flood waits in the peer, not in memory.
 */
export class BoundedReader extends AbstractMessageReader implements MessageReader {
  readonly #socket: Socket;
  readonly #limits: FrameLimits;
  #callback: DataCallback | undefined;
  #pending: Buffer = Buffer.alloc(0);
  #header: Buffer = Buffer.alloc(0);
  /** The body under way, and how much of it is there; undefined between header and header. */
  #body: Buffer | undefined;
  #filled = 0;
  #timer: NodeJS.Timeout | undefined;
  #scheduled = false;
  #closed = false;
  #dead = false;

  constructor(socket: Socket, limits: FrameLimits = frameLimits) {
    super();
    this.#socket = socket;
    this.#limits = limits;
  }

  listen(callback: DataCallback): Disposable {
    this.#callback = callback;
    const onData = (chunk: Buffer): void => {
      this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
      this.#take();
    };
    const onError = (error: Error): void => this.fireError(error);
    const onClose = (): void => {
      this.#closed = true;
      // What arrived whole before the end still counts: the last answer of a Kernel that stops.
      this.#take();
    };
    this.#socket.on('error', onError);
    this.#socket.on('close', onClose);
    this.#socket.on('data', onData);
    if (this.#socket.closed) onClose();
    return {
      dispose: () => {
        this.#dead = true;
        clearTimeout(this.#timer);
        this.#socket.off('data', onData);
        this.#socket.off('close', onClose);
      },
    };
  }

  /** Takes at most one message from what is pending, then waits a turn. */
  #take(): void {
    if (this.#scheduled || this.#dead) return;
    try {
      const message = this.#next();
      if (message !== undefined) {
        this.#callback?.(message);
        if (this.#pending.length > 0 || this.#closed) {
          this.#scheduled = true;
          this.#socket.pause();
          setImmediate(() => {
            this.#scheduled = false;
            this.#take();
          });
          return;
        }
      }
    } catch (error) {
      // vscode-jsonrpc itself throws on some shapes (a cancellation without params): as much the peer's fault.
      this.#fail(error instanceof FrameFault ? error : new FrameFault('message has an impossible shape'));
      return;
    }
    if (this.#closed) {
      clearTimeout(this.#timer);
      this.#dead = true;
      // What was handed over last is handled in the next turn; data and end may come in the same one.
      setImmediate(() => this.fireClose());
    } else if (this.#socket.isPaused()) this.#socket.resume();
  }

  #next(): Message | undefined {
    if (this.#pending.length === 0) return undefined;
    this.#timer ??= setTimeout(() => this.#fail(new FrameFault('a frame took too long')), this.#limits.frameMs);
    this.#body ??= this.#readHeader();
    const body = this.#body;
    if (body === undefined) return undefined;
    const copied = this.#pending.copy(body, this.#filled);
    this.#pending = this.#pending.subarray(copied);
    this.#filled += copied;
    if (this.#filled < body.length) return undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#body = undefined;
    this.#filled = 0;
    return parseBody(body, this.#limits.depth);
  }

  /** Room for the body when the header is whole, else undefined. */
  #readHeader(): Buffer | undefined {
    const before = this.#header.length;
    const room = this.#limits.headerBytes + headerEnd.length - before;
    const text = Buffer.concat([this.#header, this.#pending.subarray(0, room)]);
    const end = text.indexOf(headerEnd, Math.max(0, before - headerEnd.length));
    if (end < 0) {
      if (text.length >= this.#limits.headerBytes + headerEnd.length) throw new FrameFault('header too long');
      this.#header = text;
      this.#pending = Buffer.alloc(0);
      return undefined;
    }
    this.#header = Buffer.alloc(0);
    this.#pending = this.#pending.subarray(end + headerEnd.length - before);
    return Buffer.allocUnsafe(parseHeader(text.toString('latin1', 0, end), this.#limits.bodyBytes));
  }

  #fail(fault: FrameFault): void {
    if (this.#dead) return;
    this.#dead = true;
    clearTimeout(this.#timer);
    this.#pending = Buffer.alloc(0);
    this.#body = undefined;
    this.fireError(fault);
    this.#socket.destroy();
    this.fireClose();
  }
}

/**
 * Writes LSP frames within bounds. An answer that is too large becomes an error answer; a peer that does not read is
 * cut off when too much waits for it.
 */
export class BoundedWriter extends AbstractMessageWriter implements MessageWriter {
  readonly #socket: Socket;
  readonly #limits: FrameLimits;

  constructor(socket: Socket, limits: FrameLimits = frameLimits) {
    super();
    this.#socket = socket;
    this.#limits = limits;
    // Else its end is told by the reader of the same socket, behind the last message.
  }

  write(message: Message): Promise<void> {
    let body = Buffer.from(JSON.stringify(message));
    if (body.length > this.#limits.bodyBytes) {
      if (!Message.isResponse(message)) {
        return Promise.reject(new FrameFault(`a message of ${body.length} bytes cannot be sent`));
      }
      const next = 'Ask for less at a time.';
      body = Buffer.from(
        JSON.stringify({
          jsonrpc: '2.0',
          id: message.id,
          error: {
            code: errorCodes.Internal,
            message: `The answer of ${body.length} bytes is larger than a frame may be.`,
            data: { code: 'Internal', next },
          },
        }),
      );
    }
    const frame = Buffer.concat([Buffer.from(`Content-Length: ${body.length}\r\n\r\n`, 'ascii'), body]);
    if (this.#socket.writableLength + frame.length > this.#limits.unsentBytes) {
      const fault = new FrameFault('the other side does not read');
      this.fireError(fault, message, 1);
      this.#socket.destroy();
      this.fireClose();
      return Promise.reject(fault);
    }
    return new Promise((resolve, reject) => {
      this.#socket.write(frame, (error) => {
        if (error === undefined || error === null) resolve();
        else {
          this.fireError(error, message, 1);
          reject(error);
        }
      });
    });
  }

  end(): void {
    this.#socket.end();
  }
}
