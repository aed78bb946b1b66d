import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import type * as z from 'zod';
import { BoundedLines } from '../../protocol/bounded-lines.ts';
import {
  channelBounds,
  executorProtocol,
  executorResults,
  FromExecutor,
  isAudited,
  type ExecutorFailure,
  type ExecutorOp,
  type ExecutorRequest,
  type ExecutorResult,
  ToExecutor,
  type ResourceSample,
} from '../../protocol/executor.ts';
import { sha256 } from '../../protocol/hash.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { AuditChain } from './audit-chain.ts';
import { Demux } from './demux.ts';
import { SandboxFault, type ChannelEnd } from './port.ts';

/** What the supervisor wrote to stderr: a crash report at most. */
const diagnosticBytes = 16 * 1024;
/** Node needs 0.3 s to its first frame (facts/feasibility); a machine under load a few. */
const welcomeMs = 20_000;
/** For everything but commands, which bring their own deadline. Collecting 64 MiB takes a second. */
const answerMs = 60_000;

type Body<F> = F extends unknown ? Omit<F, 'v' | 'n' | 'e' | 'k'> : never;
/** A request's own members: without envelope, kind and id. */
export type RequestParameters<O extends ExecutorOp> = Omit<
  Extract<ExecutorRequest, { t: O }>,
  'v' | 'n' | 'e' | 'k' | 't' | 'id'
>;
export interface RequestOptions {
  /** What an open, place or write carries. */
  readonly payload?: Uint8Array | undefined;
  readonly deadlineMs?: number | undefined;
  readonly onId?: ((id: number) => void) | undefined;
}
export type Welcome = Extract<FromExecutor, { t: 'welcome' }>;

export interface Answer<O extends ExecutorOp> {
  readonly result: ExecutorResult<O>;
  /** What the answer carried, its hash checked; empty where it carries nothing. */
  readonly bytes: Buffer;
}

/** An answer of the supervisor that is a refusal. */
export class ExecutorRefusal extends Error {
  override readonly name = 'ExecutorRefusal';
  readonly code: ExecutorFailure;
  constructor(code: ExecutorFailure, message: string) {
    super(message);
    this.code = code;
  }
}

interface Pending {
  readonly request: ExecutorRequest;
  readonly settle: (bytes: Buffer, result: Record<string, unknown>) => void;
  readonly fail: (error: Error) => void;
  readonly parts: Buffer[];
  size: number;
  seq: number;
  started: boolean;
}

export interface ChannelOptions {
  readonly stream: Duplex;
  readonly nonce: string;
  readonly epoch: number;
  /** The secret of this client; the same one may say hello again. */
  readonly key: string;
  readonly chain: AuditChain;
  readonly log: (level: 'debug' | 'warn', message: string, data?: Readonly<Record<string, unknown>>) => void;
  /** What the container uses, as the supervisor says with each beat. */
  readonly onUse?: (use: ResourceSample) => void;
  /** Called by name around frames: where tests end the process. Beats and parts are left out. */
  readonly at?: (point: string) => void;
}

export function newChannelKey(): string {
  return randomBytes(16).toString('hex');
}

/**
 * One attachment to a supervisor: frames out, frames in, each answer to its request, both sides' heartbeats, the
 * Kernel's side of the audit. Reads always (an unread attachment blocks the engine itself), bounds everything it keeps,
 * and ends once, for one named reason, whatever the stream does.
 */
export class Channel {
  readonly ended: Promise<ChannelEnd>;
  readonly #options: ChannelOptions;
  readonly #demux = new Demux();
  readonly #lines = new BoundedLines(channelBounds.frameBytes);
  readonly #pending = new Map<number, Pending>();
  readonly #beat: NodeJS.Timeout;
  #nextId = 1;
  #lastHeard = performance.now();
  #welcomed: ((welcome: Welcome) => void) | undefined;
  #isWelcomed = false;
  #end: ChannelEnd | undefined;
  #resolveEnded: (end: ChannelEnd) => void = () => {};
  #diagnostics = '';
  #sending: Promise<unknown> = Promise.resolve();

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    const { stream } = options;
    stream.on('data', (chunk: Buffer) => this.#receive(chunk));
    stream.on('error', () => this.#finish({ kind: 'stream-ended' }));
    stream.on('end', () => this.#finish({ kind: 'stream-ended' }));
    stream.on('close', () => this.#finish({ kind: 'stream-ended' }));
    this.#beat = setInterval(() => this.#tick(), channelBounds.beatMs);
  }

  /** The last of what the supervisor wrote to stderr. Hostile text. */
  get diagnostics(): string {
    return this.#diagnostics;
  }

  /** Says hello and waits for the welcome. Throws SandboxFault `channel`. */
  async hello(): Promise<Welcome> {
    const welcome = new Promise<Welcome>((resolve) => {
      this.#welcomed = resolve;
    });
    // A fresh line: a dead client may have left half a frame, and a client library its request body.
    this.#write('\n');
    this.#send({ t: 'hello' });
    const late = timeout(welcomeMs);
    try {
      const first = await Promise.race([welcome, this.ended, late.expired]);
      if (first !== undefined && 't' in first) return first;
      throw new SandboxFault(
        'channel',
        `no welcome of the supervisor (${describe(this.#end)}) ${this.#diagnostics}`.trim(),
      );
    } finally {
      late.clear();
    }
  }

  /**
   * Sends a request and waits for its answer. Throws ExecutorRefusal, SandboxFault `channel`. The answer is awaited
   * even where nobody waits for it any more: it belongs to the audit.
   */
  async request<O extends ExecutorOp>(
    op: O,
    parameters: RequestParameters<O>,
    { payload, deadlineMs = answerMs, onId }: RequestOptions = {},
  ): Promise<Answer<O>> {
    if (this.#end !== undefined) throw this.#gone();
    const id = this.#nextId;
    this.#nextId += 1;
    const request = { ...this.#envelope(), t: op, id, ...parameters } as unknown as ExecutorRequest;
    // A frame that the supervisor would not take would never be answered.
    const sendable = ToExecutor.safeParse(request);
    if (!sendable.success) {
      const issue = sendable.error.issues[0];
      throw new SandboxFault('invalid', `${op}: ${issue?.path.join('.')}: ${issue?.message}`);
    }
    onId?.(id);
    const answered = new Promise<{ bytes: Buffer; result: Record<string, unknown> }>((resolve, reject) => {
      this.#pending.set(id, {
        request,
        settle: (bytes, result) => resolve({ bytes, result }),
        fail: reject,
        parts: [],
        size: 0,
        seq: 0,
        started: false,
      });
    });
    answered.catch(() => {});
    // Parts must follow their request at once: uploads take turns.
    const sent = this.#sending.then(() => this.#upload(request, payload));
    this.#sending = sent.catch(() => {});
    const late = timeout(deadlineMs);
    try {
      const first = await Promise.race([answered, late.expired]);
      if (first === undefined) {
        this.#finish({ kind: 'silent', ms: deadlineMs });
        throw this.#gone();
      }
      const schema: z.ZodType = executorResults[op];
      return { result: schema.parse(first.result) as ExecutorResult<O>, bytes: first.bytes };
    } finally {
      late.clear();
    }
  }

  cancel(id: number): void {
    this.#send({ t: 'cancel', id });
  }

  /** Ends the attachment, not the supervisor. */
  close(): void {
    this.#finish({ kind: 'closed-by-us' });
  }

  async #upload(request: ExecutorRequest, payload: Uint8Array = new Uint8Array()): Promise<void> {
    if (this.#end !== undefined) return;
    this.#options.at?.(`frame-before-${request.t}`);
    let free = this.#write(`${JSON.stringify(request)}\n`);
    this.#options.at?.(`frame-sent-${request.t}`);
    for (let offset = 0, seq = 0; offset < payload.length; seq += 1) {
      const data = Buffer.from(payload.subarray(offset, offset + channelBounds.chunkBytes)).toString('base64');
      free = this.#send({ t: 'data', id: request.id, seq, data });
      offset += channelBounds.chunkBytes;
    }
    // Between requests only: a long placing must not pile up in memory.
    if (!free && this.#end === undefined) {
      await Promise.race([once(this.#options.stream, 'drain').catch(() => {}), this.ended]);
    }
  }

  #envelope() {
    return { v: executorProtocol, n: this.#options.nonce, e: this.#options.epoch, k: this.#options.key } as const;
  }

  #send(body: Body<ToExecutor>): boolean {
    return this.#write(`${JSON.stringify({ ...this.#envelope(), ...body })}\n`);
  }

  #write(text: string): boolean {
    if (this.#end !== undefined || !this.#options.stream.writable) return false;
    return this.#options.stream.write(text);
  }

  #tick(): void {
    const silence = performance.now() - this.#lastHeard;
    if (silence > channelBounds.silenceMs) {
      this.#finish({ kind: 'silent', ms: Math.round(silence) });
      return;
    }
    if (this.#isWelcomed) this.#send({ t: 'beat' });
  }

  #receive(chunk: Buffer): void {
    for (const part of this.#demux.push(chunk)) {
      if (part.stream === 'stderr') {
        this.#diagnostics = `${this.#diagnostics}${part.bytes.toString('utf8')}`.slice(-diagnosticBytes);
        continue;
      }
      for (const line of this.#lines.push(part.bytes)) {
        if (this.#end !== undefined) return;
        if (line.kind === 'too-long') this.#fault('a frame that is too long');
        else if (line.bytes.length > 0) this.#receiveLine(line.bytes.toString('utf8'));
      }
    }
    const fault = this.#demux.fault;
    if (fault !== undefined) this.#finish({ kind: 'protocol', reason: `the engine's stream: ${fault.kind}` });
  }

  #receiveLine(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      this.#fault('a line that is no JSON');
      return;
    }
    const parsed = FromExecutor.safeParse(value);
    if (!parsed.success) {
      this.#fault('a frame that is not in the protocol');
      return;
    }
    const frame = parsed.data;
    if (frame.n !== this.#options.nonce) {
      this.#fault('a frame with a foreign nonce');
      return;
    }
    // What was said to an earlier client may still be on its way.
    if (!this.#isWelcomed && frame.t !== 'welcome') return;
    if (frame.e !== this.#options.epoch) {
      // Everybody who is attached sees everything: a higher epoch means that we have been replaced.
      if (frame.e > this.#options.epoch) this.#fault('another Kernel has taken over');
      return;
    }
    this.#lastHeard = performance.now();
    this.#handle(frame);
  }

  #handle(frame: FromExecutor): void {
    const { chain } = this.#options;
    switch (frame.t) {
      case 'welcome':
        this.#options.at?.('frame-welcome');
        this.#isWelcomed = true;
        this.#welcomed?.(frame);
        return;
      case 'beat':
        this.#options.onUse?.(frame.use);
        return;
      case 'refused':
        this.#options.log('warn', 'the supervisor refused a frame', { reason: frame.reason });
        if (frame.a !== null) chain.add(frame.a, 'refused', null, { reason: frame.reason });
        return;
      case 'started': {
        const pending = this.#pending.get(frame.id);
        if (pending === undefined || pending.request.t !== 'run' || pending.started) {
          this.#fault('a start that was not asked for');
          return;
        }
        pending.started = true;
        chain.add(frame.a, 'started', pending.request, {});
        return;
      }
      case 'data':
        this.#carried(frame);
        return;
      case 'done': {
        const pending = this.#take(frame.id);
        if (pending === undefined) return;
        const parsed = executorResults[pending.request.t].safeParse(frame.result);
        const bytes = Buffer.concat(pending.parts);
        const announced = frame.result as { size?: unknown; sha256?: unknown };
        const carries = 'size' in announced && pending.request.t !== 'seal';
        if (!parsed.success || (carries && (announced.size !== bytes.length || announced.sha256 !== sha256(bytes)))) {
          this.#fault('an answer that is not what was announced');
          pending.fail(this.#gone());
          return;
        }
        this.#options.at?.(`frame-answered-${pending.request.t}`);
        if (isAudited(pending.request.t)) chain.add(frame.a, 'done', pending.request, frame.result);
        pending.settle(bytes, frame.result);
        return;
      }
      case 'fail': {
        const pending = this.#take(frame.id);
        if (pending === undefined) return;
        if (isAudited(pending.request.t)) chain.add(frame.a, 'failed', pending.request, { code: frame.code });
        pending.fail(new ExecutorRefusal(frame.code, frame.message));
        return;
      }
    }
  }

  #carried(frame: Extract<FromExecutor, { t: 'data' }>): void {
    const pending = this.#pending.get(frame.id);
    if (pending === undefined || frame.seq !== pending.seq) {
      this.#fault('a part that was not expected');
      return;
    }
    const part = Buffer.from(frame.data, 'base64');
    pending.seq += 1;
    pending.size += part.length;
    // Nothing that is asked for is longer than a file, a report of 20,000 files, or the audit.
    if (pending.size > channelBounds.fileBytes) {
      this.#fault('an answer that does not end');
      return;
    }
    pending.parts.push(part);
  }

  #take(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) this.#fault('an answer that was not asked for');
    else this.#pending.delete(id);
    return pending;
  }

  #fault(reason: string): void {
    // Before the welcome, a line may be the rest of what was said to somebody else.
    if (this.#isWelcomed) this.#finish({ kind: 'protocol', reason });
  }

  #gone(): SandboxFault {
    return new SandboxFault('channel', `the channel to the supervisor is closed: ${describe(this.#end)}`);
  }

  #finish(end: ChannelEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    clearInterval(this.#beat);
    this.#options.stream.destroy();
    for (const pending of this.#pending.values()) pending.fail(this.#gone());
    this.#pending.clear();
    this.#resolveEnded(end);
  }
}

function describe(end: ChannelEnd | undefined): string {
  if (end === undefined) return 'time-out';
  switch (end.kind) {
    case 'closed-by-us':
      return 'detached';
    case 'stream-ended':
      return 'the stream ended';
    case 'silent':
      return `silent for ${end.ms} ms`;
    case 'protocol':
      return end.reason;
    default:
      return unreachable(end);
  }
}

function timeout(ms: number): { readonly expired: Promise<undefined>; clear(): void } {
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return { expired, clear: () => clearTimeout(timer) };
}
