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
  readonly #take: (value: unknown) => void;
  readonly #limits: StreamLimits;
  readonly #framing: Framing;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #total = 0;
  #lines = 0;

  /** `take` is given each value as soon as its line is whole. What it throws, `push` and `end` throw. */
  constructor(
    take: (value: unknown) => void,
    limits: StreamLimits = defaultStreamLimits,
    framing: Framing = 'json-lines',
  ) {
    this.#take = take;
    this.#limits = limits;
    this.#framing = framing;
  }

  /** Takes bytes; true where they completed a line that carries something. Throws StreamFault; then it is of no use. */
  push(chunk: Uint8Array): boolean {
    this.#total += chunk.length;
    if (this.#total > this.#limits.totalBytes)
      throw new StreamFault('response_too_long', `the response is longer than ${this.#limits.totalBytes} bytes`);
    let from = 0;
    let whole = false;
    const last = chunk.lastIndexOf(10);
    // Many whole lines at once, as an engine sends them that is faster than its reader: decoded together. UTF-8 never
    // has the byte of LF inside a character, so the lines are the same; none can be too long; a doubt goes line by line.
    if (this.#pendingBytes === 0 && last > 0 && last <= this.#limits.lineBytes) {
      const lines = chunk.subarray(0, last);
      if (isUtf8(lines)) {
        for (const text of textOf(lines).split('\n')) if (this.#read(text)) whole = true;
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
        return whole;
      }
      const line =
        this.#pendingBytes === 0
          ? chunk.subarray(from, to)
          : Buffer.concat([...this.#pending, chunk.subarray(from, to)]);
      this.#pending = [];
      this.#pendingBytes = 0;
      if (this.#parse(line)) whole = true;
      from = newline + 1;
    }
  }

  /** Reads the last line where it lacks its LF. Throws StreamFault. */
  end(): void {
    if (this.#pendingBytes === 0) return;
    const line = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#parse(line);
  }

  #parse(line: Uint8Array): boolean {
    if (!isUtf8(line)) throw new StreamFault('invalid_utf8', `line ${this.#lines + 1} is not UTF-8`);
    return this.#read(textOf(line));
  }

  /** False for a line that carries nothing. */
  #read(text: string): boolean {
    this.#lines += 1;
    if (this.#lines > this.#limits.lines)
      throw new StreamFault('too_many_lines', `more than ${this.#limits.lines} lines`);
    if (this.#framing === 'json-lines') {
      this.#take(this.#json(text));
      return true;
    }
    const field = /^(?:(data|error): ?|(?::|event:|id:|retry:|\r?$))/.exec(text);
    if (field === null) throw new StreamFault('malformed_line', `line ${this.#lines} is not a field of an event`);
    if (field[1] === undefined) return false;
    const payload = text.slice(field[0].length);
    if (field[1] === 'error') this.#take({ error: this.#json(payload) });
    else this.#take(payload.trimEnd() === '[DONE]' ? doneMarker : this.#json(payload));
    return true;
  }

  #json(text: string): unknown {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new StreamFault('malformed_line', `line ${this.#lines} is not JSON`);
    }
  }
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}
