import { isUtf8 } from 'node:buffer';

/** Why a byte stream is not acceptable NDJSON. */
export class StreamFault extends Error {
  override readonly name = 'StreamFault';
  readonly code: 'line_too_long' | 'response_too_long' | 'invalid_utf8' | 'malformed_line' | 'too_many_lines';
  constructor(code: StreamFault['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** Bytes, and a count. */
export interface StreamLimits {
  readonly lineBytes: number;
  readonly totalBytes: number;
  readonly lines: number;
}

/**
 * Generous for honest engines: a whole tool call of 32,768 output tokens stays below 1 MiB, a chunk is usually some
 * 150 bytes.
 */
export const defaultStreamLimits: StreamLimits = { lineBytes: 1_048_576, totalBytes: 33_554_432, lines: 400_000 };

/** What a line is: JSON by itself (`json-lines`), or a field of a server-sent event (`events`). */
export type Framing = 'json-lines' | 'events';

/** The value that stands for `data: [DONE]`, the end of a stream of events. */
export const doneMarker = Symbol('[DONE]');

/**
 * Splits bytes into JSON values, one a line: strictly, in bounded memory, independent of how the bytes were chunked.
 * Lines end in LF; a last line without one is given by `end`. Bytes are UTF-8 or refused. In `json-lines` a blank line is
 * malformed; in `events` blank lines, comments and the fields `event`, `id` and `retry` carry nothing, `data` carries one
 * JSON value or `[DONE]`, and anything else is malformed.
 */
export class LineReader {
  readonly #limits: StreamLimits;
  readonly #framing: Framing;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #total = 0;
  #lines = 0;

  constructor(limits: StreamLimits = defaultStreamLimits, framing: Framing = 'json-lines') {
    this.#limits = limits;
    this.#framing = framing;
  }

  /** Gives the complete lines, parsed. Throws StreamFault; after that the reader is of no use. */
  *push(chunk: Uint8Array): Generator<unknown, void, void> {
    this.#total += chunk.length;
    if (this.#total > this.#limits.totalBytes)
      throw new StreamFault('response_too_long', `the response is longer than ${this.#limits.totalBytes} bytes`);
    let from = 0;
    const last = chunk.lastIndexOf(10);
    // Many whole lines at once, as an engine sends them that is faster than its reader: decoded together. UTF-8 never
    // has the byte of LF inside a character, so the lines are the same; none can be too long; a doubt goes line by line.
    if (this.#pendingBytes === 0 && last > 0 && last <= this.#limits.lineBytes) {
      const whole = chunk.subarray(0, last);
      if (isUtf8(whole)) {
        for (const text of Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString('utf8').split('\n')) {
          const value = this.#read(text);
          if (value !== undefined) yield value;
        }
        from = last + 1;
      }
    }
    for (;;) {
      const newline = chunk.indexOf(10, from);
      const to = newline === -1 ? chunk.length : newline;
      if (this.#pendingBytes + (to - from) > this.#limits.lineBytes)
        throw new StreamFault('line_too_long', `a line is longer than ${this.#limits.lineBytes} bytes`);
      if (newline === -1) {
        if (to > from) {
          this.#pending.push(chunk.subarray(from, to));
          this.#pendingBytes += to - from;
        }
        return;
      }
      const line =
        this.#pendingBytes === 0
          ? chunk.subarray(from, to)
          : Buffer.concat([...this.#pending, chunk.subarray(from, to)]);
      this.#pending = [];
      this.#pendingBytes = 0;
      const value = this.#parse(line);
      if (value !== undefined) yield value;
      from = newline + 1;
    }
  }

  /** The last line where it lacks its LF; undefined where nothing is left over. Throws StreamFault. */
  end(): unknown {
    if (this.#pendingBytes === 0) return undefined;
    const line = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    return this.#parse(line);
  }

  /** Undefined for a line that carries nothing. */
  #parse(line: Uint8Array): unknown {
    if (!isUtf8(line)) throw new StreamFault('invalid_utf8', `line ${this.#lines + 1} is not UTF-8`);
    return this.#read(Buffer.from(line.buffer, line.byteOffset, line.byteLength).toString('utf8'));
  }

  #read(text: string): unknown {
    this.#lines += 1;
    if (this.#lines > this.#limits.lines)
      throw new StreamFault('too_many_lines', `more than ${this.#limits.lines} lines`);
    if (this.#framing === 'json-lines') return this.#json(text);
    const field = /^(?:(data|error): ?|(?::|event:|id:|retry:|\r?$))/.exec(text);
    if (field === null) throw new StreamFault('malformed_line', `line ${this.#lines} is not a field of an event`);
    if (field[1] === undefined) return undefined;
    const payload = text.slice(field[0].length);
    if (field[1] === 'error') return { error: this.#json(payload) };
    return payload.trimEnd() === '[DONE]' ? doneMarker : this.#json(payload);
  }

  #json(text: string): unknown {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new StreamFault('malformed_line', `line ${this.#lines} is not JSON`);
    }
  }
}
