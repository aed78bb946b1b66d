import { canonicalTag } from './cloud.ts';
import { HttpFault, readAll } from './http.ts';
import type { HttpClient } from './http.ts';
import type { ChatEvent, InferenceFailure, ToolCall } from './port.ts';
import { defaultStreamLimits, LineReader, StreamFault } from './stream-reader.ts';
import { classifyEngineError, errorText } from './symptoms.ts';
import { splitThinking } from './think-split.ts';
import { Chunk, jsonDepth } from './wire.ts';

/** What came of one stream: a whole answer, or a named failure with whatever bytes arrived. */
export type StreamOutcome =
  | {
      readonly ok: true;
      readonly content: string;
      readonly thinking: string;
      readonly toolCalls: readonly ToolCall[];
      readonly last: Chunk;
      readonly raw: Uint8Array;
    }
  | {
      readonly ok: false;
      readonly kind: InferenceFailure['kind'];
      readonly code: string;
      readonly message: string;
      readonly last: Chunk | null;
      readonly raw: Uint8Array | null;
    };

export interface StreamOptions {
  readonly model: string;
  readonly numPredict: number;
  readonly stallMs: number;
  readonly loadMs: number;
  readonly probeMs: number;
  readonly answerMs: number;
  readonly monotonic: () => number;
  readonly onEvent: (event: ChatEvent) => void;
  readonly signal: AbortSignal;
}

/** Tool arguments nested deeper than any tool here needs are refused before anything recurses into them. */
const argumentDepth = 32;
/** Calls in one turn; more than any useful turn has. */
const callsPerTurn = 32;
/** Probes in a row that may stay unanswered before a silent engine is called dead. */
const silentProbes = 3;

/** A failure found inside this module. */
class Fault extends Error {
  readonly kind: InferenceFailure['kind'];
  readonly code: string;
  constructor(kind: InferenceFailure['kind'], code: string, message: string) {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

/**
 * Sends one chat request and reads its stream to the end, strictly. Never throws except for defects; on any failure the
 * connection is closed before it returns. The wait for the first line (loading, reading the prompt) is watched by
 * probes, the time between lines by a watchdog that only whole lines feed, so a drip of bytes does not pass for life.
 */
export async function streamChat(http: HttpClient, body: Uint8Array, options: StreamOptions): Promise<StreamOutcome> {
  const inner = new AbortController();
  const signal = AbortSignal.any([options.signal, inner.signal]);
  const received: Uint8Array[] = [];
  let last: Chunk | null = null;
  let answered = false;

  const watch = watchFirstLine(http, options, (fault) => {
    inner.abort(fault);
  });
  let stall: NodeJS.Timeout | undefined;
  const feed = (): void => {
    clearTimeout(stall);
    stall = setTimeout(() => {
      inner.abort(new Fault('transport', 'stalled', `no line for ${options.stallMs} ms`));
    }, options.stallMs);
  };

  const raw = (): Uint8Array | null => (answered ? Buffer.concat(received) : null);
  try {
    const reply = await http.send('POST', '/api/chat', body, signal);
    answered = true;
    if (reply.status !== 200) {
      watch.stop();
      feed();
      const bytes = await readAll(reply.body, 65_536).catch(() => new Uint8Array());
      received.push(bytes);
      if (signal.aborted) throw signal.reason as Error;
      const message = errorText(refusalBody(bytes));
      const symptom = classifyEngineError(reply.status, message);
      throw new Fault(symptom.kind, symptom.code, `status ${reply.status}: ${message.slice(0, 400)}`);
    }

    const reader = new LineReader({
      ...defaultStreamLimits,
      // Some 150 bytes a line as a rule; 512 leaves room for long names and ids.
      totalBytes: 2_097_152 + options.numPredict * 512,
      // One line a token is the usual; some engines split further. Beyond this it is a drip, not an answer.
      lines: options.numPredict * 4 + 4096,
    });
    const parts = { content: [] as string[], thinking: [] as string[], calls: [] as ToolCall[] };
    const take = (value: unknown): void => {
      watch.stop();
      feed();
      if (last?.done === true)
        throw new Fault('transport', 'data_after_done', 'the engine went on after its last line');
      last = readChunk(value, options, parts);
    };
    for await (const chunk of reply.body as AsyncIterable<Buffer>) {
      received.push(chunk);
      for (const value of reader.push(chunk)) take(value);
    }
    const rest = reader.end();
    if (rest !== undefined) take(rest);
    const final = last as Chunk | null;
    if (final?.done !== true)
      throw new Fault('transport', 'no_done', 'the stream ended with status 200 and without its last line');
    if (final.done_reason === 'load' || final.done_reason === 'unload')
      throw new Fault('transport', 'not_generated', `the engine answered "${final.done_reason}" and generated nothing`);
    const split = splitThinking(parts.content.join(''), parts.thinking.join(''));
    return { ok: true, ...split, toolCalls: parts.calls, last: final, raw: Buffer.concat(received) };
  } catch (error) {
    const fault = options.signal.aborted
      ? new Fault('cancelled', 'cancelled', 'the request was cancelled')
      : inner.signal.aborted
        ? (inner.signal.reason as Fault)
        : asFault(error, answered);
    return { ok: false, kind: fault.kind, code: fault.code, message: fault.message, last, raw: raw() };
  } finally {
    clearTimeout(stall);
    watch.stop();
    // Closes the connection where the stream was not read to its end; without effect where it was.
    inner.abort(new Fault('cancelled', 'closed', 'the exchange is over'));
  }
}

/** Probes the engine while it has not begun to answer: loading is alive, silence of several probes is dead. */
function watchFirstLine(http: HttpClient, options: StreamOptions, onFault: (fault: Fault) => void): { stop(): void } {
  const started = options.monotonic();
  const ended = new AbortController();
  let silent = 0;
  let timer: NodeJS.Timeout | undefined;
  const probe = async (): Promise<void> => {
    const sinceMs = options.monotonic() - started;
    if (sinceMs >= options.loadMs) {
      onFault(
        new Fault('transport', 'load_timeout', `no answer within ${options.loadMs} ms, though the engine is alive`),
      );
      return;
    }
    try {
      await http.fetch('GET', '/api/version', null, options.answerMs, ended.signal);
      silent = 0;
      if (!ended.signal.aborted) options.onEvent({ kind: 'loading', sinceMs });
    } catch {
      silent += 1;
    }
    if (ended.signal.aborted) return;
    if (silent >= silentProbes) {
      onFault(new Fault('transport', 'engine_silent', `no answer, and ${silent} probes stayed unanswered`));
      return;
    }
    arm();
  };
  const arm = (): void => {
    const left = options.loadMs - (options.monotonic() - started);
    timer = setTimeout(
      () => {
        void probe();
      },
      Math.max(1, Math.min(options.probeMs, left)),
    );
  };
  arm();
  return {
    stop() {
      if (ended.signal.aborted) return;
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

function readChunk(
  value: unknown,
  options: StreamOptions,
  parts: { content: string[]; thinking: string[]; calls: ToolCall[] },
): Chunk {
  if (typeof value === 'object' && value !== null && 'error' in value && value.error !== undefined) {
    const message = errorText(value.error);
    const symptom = classifyEngineError(200, message);
    throw new Fault(symptom.kind, symptom.code, `error inside the answer: ${message.slice(0, 400)}`);
  }
  const parsed = Chunk.safeParse(value);
  if (!parsed.success) throw new Fault('transport', 'unknown_shape', 'a line of the answer has an unknown shape');
  const chunk = parsed.data;
  if (chunk.remote_host || chunk.remote_model)
    throw new Fault('unsupported', 'cloud_response', 'the answer came from a remote host: cut off and not used');
  if (canonicalTag(chunk.model) !== canonicalTag(options.model))
    throw new Fault('identity', 'model_substituted', 'the answer names another model than the one asked');
  const { content, thinking, tool_calls: calls } = chunk.message;
  if (thinking) {
    parts.thinking.push(thinking);
    options.onEvent({ kind: 'thinking', text: thinking });
  }
  if (content) {
    parts.content.push(content);
    options.onEvent({ kind: 'content', text: content });
  }
  // In order of arrival: indices may all be 0, ids may be missing, equal calls are two calls.
  for (const call of calls ?? []) {
    if (parts.calls.length >= callsPerTurn)
      throw new Fault('model', 'too_many_calls', `more than ${callsPerTurn} calls`);
    if (jsonDepth(call.function.arguments, argumentDepth) > argumentDepth)
      throw new Fault('model', 'arguments_too_deep', `arguments nested deeper than ${argumentDepth}`);
    parts.calls.push({ id: call.id ?? null, name: call.function.name, arguments: call.function.arguments ?? null });
  }
  return chunk;
}

function asFault(error: unknown, answered: boolean): Fault {
  if (error instanceof Fault) return error;
  if (error instanceof StreamFault) return new Fault('transport', error.code, error.message);
  if (error instanceof HttpFault) {
    switch (error.code) {
      case 'redirect':
        return new Fault('transport', 'redirect_refused', error.message);
      case 'encoded':
        return new Fault('transport', 'unknown_encoding', error.message);
      case 'unreachable':
        return new Fault('transport', 'engine_not_reachable', error.message);
      case 'timeout':
      case 'cut':
      case 'too_long':
        return new Fault('transport', 'stream_cut', error.message);
    }
  }
  if (answered)
    return new Fault(
      'transport',
      'stream_cut',
      `the stream was cut: ${error instanceof Error ? error.message : 'unknown'}`,
    );
  throw error;
}
