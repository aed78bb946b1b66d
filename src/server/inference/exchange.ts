import { createHash } from 'node:crypto';
import type { Sha256 } from '../../protocol/primitives.ts';
import { Fault, asFault } from './fault.ts';
import type { EngineTiming } from './engine-deps.ts';
import { readAll, readEach } from './http.ts';
import type { HttpClient } from './http.ts';
import type { ChatEvent, InferenceFailure, ToolCall } from './port.ts';
import { defaultStreamLimits, LineReader } from './stream-reader.ts';
import type { Framing } from './stream-reader.ts';
import { classifyEngineError, errorText } from './symptoms.ts';

/** What a whole answer says, whatever the wire was. `L` is the engine's own last word, with its counts. */
export interface Answer<L> {
  readonly content: string;
  readonly thinking: string;
  readonly toolCalls: readonly ToolCall[];
  readonly doneReason: string;
  readonly last: L;
}

/** Reads the values of one stream, in order. Both throw `Fault`. */
export interface AnswerReader<L> {
  take(value: unknown): void;
  /** After the last value; a stream without its done marker is a fault. */
  end(): Answer<L>;
  /** The last word where it came, also of an answer that failed. */
  readonly last: L | null;
}

/** What came of one stream: a whole answer, or a named failure with whatever bytes arrived. */
export type ExchangeOutcome<L> =
  | {
      readonly ok: true;
      readonly answer: Answer<L>;
      readonly raw: Uint8Array;
      /** Taken while the bytes came, so that it costs nothing at the end. */
      readonly rawDigest: Sha256;
    }
  | {
      readonly ok: false;
      readonly kind: InferenceFailure['kind'];
      readonly code: string;
      readonly message: string;
      readonly last: L | null;
      readonly raw: Uint8Array | null;
      /** The engine answered with a refusal, to its end: nothing goes on behind it. */
      readonly refused: boolean;
    };

export interface ExchangeOptions {
  readonly path: string;
  /** A small question that the engine answers while it loads. */
  readonly probePath: string;
  readonly framing: Framing;
  readonly numPredict: number;
  readonly timing: Omit<EngineTiming, 'idleMs'>;
  readonly monotonic: () => number;
  readonly onEvent: (event: ChatEvent) => void;
  readonly signal: AbortSignal;
}

/** Probes in a row that may stay unanswered before a silent engine is called dead. */
const silentProbes = 3;

/**
 * Sends one request and reads its stream to the end, strictly. Never throws except for defects; on any failure the
 * connection is closed before it returns. The wait for the first line (loading, reading the prompt) is watched by
 * probes, the time between lines by a watchdog that only whole lines feed, so a drip of bytes does not pass for life.
 */
export async function exchange<L>(
  http: HttpClient,
  body: Uint8Array,
  reader: AnswerReader<L>,
  options: ExchangeOptions,
): Promise<ExchangeOutcome<L>> {
  const { timing } = options;
  const inner = new AbortController();
  const signal = AbortSignal.any([options.signal, inner.signal]);
  const received = new Received();
  let answered = false;
  let refused = false;

  const first = watchFirstLine(http, options, (fault) => {
    inner.abort(fault);
  });
  const stall = watchStall(timing.stallMs, options.monotonic, (fault) => {
    inner.abort(fault);
  });
  const raw = (): Uint8Array | null => (answered ? received.bytes() : null);
  try {
    const reply = await http.send('POST', options.path, body, signal);
    answered = true;
    if (reply.status !== 200) {
      first.stop();
      stall.fed();
      const bytes = await readAll(reply.body, 65_536).catch(() => new Uint8Array());
      received.push(bytes);
      refused = reply.body.complete;
      if (signal.aborted) throw signal.reason as Error;
      const message = errorText(refusalBody(bytes));
      const symptom = classifyEngineError(reply.status, message);
      throw new Fault(symptom.kind, symptom.code, `status ${reply.status}: ${message.slice(0, 400)}`);
    }

    const lines = new LineReader(
      (value) => {
        reader.take(value);
      },
      {
        ...defaultStreamLimits,
        // Some 150 to 250 bytes a line as a rule; 1,024 leaves room for long names and ids.
        totalBytes: 2_097_152 + options.numPredict * 1024,
        // One line a token is the usual; some engines split further. Beyond this it is a drip, not an answer.
        lines: options.numPredict * 8 + 8192,
      },
      options.framing,
    );
    await readEach(reply.body, (chunk) => {
      received.push(chunk);
      // Only a whole line is a sign of life.
      if (!lines.push(chunk)) return;
      first.stop();
      stall.fed();
    });
    lines.end();
    return {
      ok: true,
      answer: reader.end(),
      raw: received.bytes(),
      rawDigest: received.digest(),
    };
  } catch (error) {
    const fault = options.signal.aborted
      ? cancelled(options.signal)
      : inner.signal.aborted
        ? (inner.signal.reason as Fault)
        : asFault(error, answered);
    return {
      ok: false,
      kind: fault.kind,
      code: fault.code,
      message: fault.message,
      last: reader.last,
      raw: raw(),
      refused,
    };
  } finally {
    stall.stop();
    first.stop();
    // Closes the connection where the stream was not read to its end; without effect where it was.
    inner.abort(new Fault('cancelled', 'closed', 'the exchange is over'));
  }
}

/** Bytes that are hashed together: few enough that little is left to do at the end, many enough to cost nothing a token. */
const hashedBytes = 16_384;

/** What came of an answer so far, with its digest taken while it comes. */
class Received {
  readonly #pieces: Uint8Array[] = [];
  readonly #hash = createHash('sha256');
  #hashed = 0;
  #waiting = 0;

  push(piece: Uint8Array): void {
    this.#pieces.push(piece);
    this.#waiting += piece.length;
    if (this.#waiting >= hashedBytes) this.#take();
  }

  bytes(): Uint8Array {
    return Buffer.concat(this.#pieces);
  }

  /** Once, at the end. */
  digest(): Sha256 {
    this.#take();
    return this.#hash.digest('hex') as Sha256;
  }

  #take(): void {
    this.#hash.update(Buffer.concat(this.#pieces.slice(this.#hashed)));
    this.#hashed = this.#pieces.length;
    this.#waiting = 0;
  }
}

/** An abort may name its own fault (the memory watch does); else a person or a settlement cancelled. */
function cancelled(signal: AbortSignal): Fault {
  return signal.reason instanceof Fault
    ? signal.reason
    : new Fault('cancelled', 'cancelled', 'the request was cancelled');
}

/** One timer for all lines: each line only notes the time, the timer looks whether it is long ago. */
function watchStall(
  stallMs: number,
  monotonic: () => number,
  onFault: (fault: Fault) => void,
): { fed(): void; stop(): void } {
  let timer: NodeJS.Timeout | undefined;
  let last = 0;
  const look = (): void => {
    const left = stallMs - (monotonic() - last);
    if (left <= 0) onFault(new Fault('transport', 'stalled', `no line for ${stallMs} ms`));
    else timer = setTimeout(look, Math.max(1, left));
  };
  return {
    fed() {
      last = monotonic();
      timer ??= setTimeout(look, stallMs);
    },
    stop() {
      clearTimeout(timer);
    },
  };
}

/** Probes the engine while it has not begun to answer: loading is alive, silence of several probes is dead. */
function watchFirstLine(http: HttpClient, options: ExchangeOptions, onFault: (fault: Fault) => void): { stop(): void } {
  const { timing } = options;
  const started = options.monotonic();
  const ended = new AbortController();
  let stopped = false;
  let silent = 0;
  let timer: NodeJS.Timeout | undefined;
  const probe = async (): Promise<void> => {
    const sinceMs = options.monotonic() - started;
    if (sinceMs >= timing.loadMs) {
      onFault(
        new Fault('transport', 'load_timeout', `no answer within ${timing.loadMs} ms, though the engine is alive`),
      );
      return;
    }
    try {
      await http.fetch('GET', options.probePath, null, timing.answerMs, ended.signal);
      silent = 0;
      if (!stopped) options.onEvent({ kind: 'loading', sinceMs });
    } catch {
      silent += 1;
    }
    if (stopped) return;
    if (silent >= silentProbes) {
      onFault(new Fault('transport', 'engine_silent', `no answer, and ${silent} probes stayed unanswered`));
      return;
    }
    arm();
  };
  const arm = (): void => {
    const left = timing.loadMs - (options.monotonic() - started);
    timer = setTimeout(
      () => {
        void probe();
      },
      Math.max(1, Math.min(timing.probeMs, left)),
    );
  };
  arm();
  return {
    stop() {
      if (stopped) return;
      stopped = true;
      clearTimeout(timer);
      ended.abort(new Error('no longer needed'));
    },
  };
}

function refusalBody(bytes: Uint8Array): unknown {
  const decoded = new TextDecoder().decode(bytes);
  try {
    const value = JSON.parse(decoded) as unknown;
    return typeof value === 'object' && value !== null && 'error' in value ? value.error : decoded;
  } catch {
    return decoded;
  }
}
