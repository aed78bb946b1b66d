import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import {
  channelBounds,
  isAudited,
  ToExecutor,
  type ExecutorFailure,
  type ExecutorOp,
  type ExecutorRequest,
} from '../../protocol/executor.ts';
import {
  executorResults,
  FromExecutor,
  type ExecutorResult,
  type ResourceSample,
} from '../../protocol/executor-answers.ts';
import { FrameReader } from '../../protocol/frame-reader.ts';
import { unreachable, type FileEntry } from '../../protocol/primitives.ts';
import { fits } from '../../protocol/shape.ts';
import type { AuditChain } from './audit-chain.ts';
import { Demux } from './demux.ts';
import { Incoming, IncomingFile } from './incoming.ts';
import { Outgoing } from './outgoing.ts';
import { SandboxFault, type ChannelEnd, type CollectionSink } from './port.ts';

const noBytes = new Uint8Array();
/** As many as a policy can make writable. */
const collectedFiles = 256;
/** What the supervisor wrote to stderr: a crash report at most. */
const diagnosticBytes = 16 * 1024;
/** Node needs 0.3 s to its first frame (facts/feasibility); a machine under load a few. */
const welcomeMs = 20_000;
/** Without a sign of an answer, for everything but commands, which bring their own deadline; looked at with each beat. */
const answerMs = 60_000;

/** A request's own members: without envelope, kind and id. */
export type RequestParameters<O extends ExecutorOp> = Omit<
  Extract<ExecutorRequest, { t: O }>,
  'v' | 'n' | 'e' | 'k' | 't' | 'id' | 'p'
>;
export interface RequestOptions {
  /** What an open, place or write carries. */
  readonly payload?: Uint8Array | undefined;
  readonly deadlineMs?: number | undefined;
  /** Where files go that come before the answer; without it none are taken. */
  readonly into?: CollectionSink | undefined;
  readonly onId?: ((id: number) => void) | undefined;
  /** Called with the answer's arrival, before anything that came behind it is looked at; not for a refusal. */
  readonly onAnswer?: (() => void) | undefined;
}
export type Welcome = Extract<FromExecutor, { t: 'welcome' }>;

export interface Answer<O extends ExecutorOp> {
  readonly result: ExecutorResult<O>;
  /** What the answer carried, its hash checked; empty where it carries nothing. */
  readonly bytes: Buffer;
  /** Files that came before it, hashed as they came; none but for `collect`. */
  readonly files: readonly FileEntry[];
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
  readonly settle: (answer: Answer<ExecutorOp>) => void;
  readonly fail: (error: Error) => void;
  readonly onAnswer: (() => void) | undefined;
  readonly deadlineMs: number;
  /** When all of it was on its way, or something of its answer came last; undefined before. */
  waitsSince: number | undefined;
  readonly files: FileEntry[];
  readonly into: CollectionSink | undefined;
  /** What is coming: a file, or what the answer will speak of. */
  incoming: Incoming | IncomingFile | undefined;
  /** What the answer will speak of, complete. */
  carried: Incoming | undefined;
  /** Announced in all. */
  size: number;
  seq: number;
  started: boolean;
}

/** Whose bytes come next, and what is done when all of them have come. */
interface Behind {
  readonly incoming: Incoming | IncomingFile;
  readonly whole: () => void;
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
  readonly #frames = new FrameReader(channelBounds.frameBytes, {
    line: (bytes) => (bytes.length === 0 || this.#end !== undefined ? 0 : this.#receiveLine(bytes.toString('utf8'))),
    payload: (bytes, left) => this.#payload(bytes, left),
    tooLong: () => this.#fault('a frame that is too long'),
  });
  readonly #outgoing: Outgoing;
  readonly #pending = new Map<number, Pending>();
  readonly #beat: NodeJS.Timeout;
  #nextId = 1;
  #lastHeard = performance.now();
  #welcomed: ((welcome: Welcome) => void) | undefined;
  #isWelcomed = false;
  #end: ChannelEnd | undefined;
  #resolveEnded: (end: ChannelEnd) => void = () => {};
  #diagnostics = '';
  #behind: Behind | undefined;

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    const { stream, nonce, epoch, key, at } = options;
    this.#outgoing = new Outgoing({ stream, nonce, epoch, key, at, ended: this.ended });
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

  /** Says hello and waits for the welcome; `again`: somebody may have spoken before. Throws SandboxFault `channel`. */
  async hello(again = false): Promise<Welcome> {
    const welcome = new Promise<Welcome>((resolve) => {
      this.#welcomed = resolve;
    });
    // A dead client may have left half of its bytes.
    if (again) this.#outgoing.resync();
    this.#outgoing.say({ t: 'hello' });
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
   * Sends a request and waits for its answer. Rejects with ExecutorRefusal, SandboxFault `channel` or `invalid`. The
   * answer is awaited even where nobody waits for it any more: it belongs to the audit.
   */
  request<O extends ExecutorOp>(
    op: O,
    parameters: RequestParameters<O>,
    { payload = noBytes, deadlineMs = answerMs, into, onId, onAnswer }: RequestOptions = {},
  ): Promise<Answer<O>> {
    if (this.#end !== undefined) return Promise.reject(this.#gone());
    const id = this.#nextId;
    this.#nextId += 1;
    const behind = Math.min(payload.length, channelBounds.upChunkBytes);
    const request = {
      ...this.#outgoing.envelope,
      t: op,
      id,
      ...parameters,
      ...(behind === 0 ? {} : { p: behind }),
    } as unknown as ExecutorRequest;
    // A frame that the supervisor would not take would never be answered.
    const misfit = ToExecutor.misfit(request);
    if (misfit !== undefined) {
      return Promise.reject(new SandboxFault('invalid', `${op}: ${misfit} does not fit the protocol`));
    }
    onId?.(id);
    return new Promise<Answer<ExecutorOp>>((settle, fail) => {
      const pending: Pending = {
        request,
        settle,
        fail,
        onAnswer,
        deadlineMs,
        waitsSince: undefined,
        files: [],
        into,
        incoming: undefined,
        carried: undefined,
        size: 0,
        seq: 0,
        started: false,
      };
      this.#pending.set(id, pending);
      this.#outgoing.request(request, {
        payload,
        wanted: () => this.#pending.has(id),
        sent: () => {
          pending.waitsSince = performance.now();
        },
      });
    });
  }

  cancel(id: number): void {
    this.#outgoing.say({ t: 'cancel', id });
  }

  /** Ends the attachment, not the supervisor. */
  close(): void {
    this.#finish({ kind: 'closed-by-us' });
  }

  #tick(): void {
    // A supervisor that is still starting is no silent one: hello has a deadline of its own.
    if (!this.#isWelcomed) return;
    const now = performance.now();
    const silence = now - this.#lastHeard;
    if (silence > channelBounds.silenceMs) {
      this.#finish({ kind: 'silent', ms: Math.round(silence) });
      return;
    }
    for (const { waitsSince = now, deadlineMs } of this.#pending.values()) {
      if (now - waitsSince <= deadlineMs) continue;
      this.#finish({ kind: 'silent', ms: deadlineMs });
      return;
    }
    this.#outgoing.say({ t: 'beat' });
  }

  #receive(chunk: Buffer): void {
    for (const part of this.#demux.push(chunk)) {
      if (part.stream === 'stderr') {
        this.#diagnostics = `${this.#diagnostics}${part.bytes.toString('utf8')}`.slice(-diagnosticBytes);
        continue;
      }
      this.#frames.push(part.bytes);
      if (this.#end !== undefined) return;
    }
    const fault = this.#demux.fault;
    if (fault !== undefined) this.#finish({ kind: 'protocol', reason: `the engine's stream: ${fault.kind}` });
  }

  /** Returns how many raw bytes belong to the line: only what has the container's nonce can have some. */
  #receiveLine(text: string): number {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      this.#fault('a line that is no JSON');
      return 0;
    }
    if (!fits(FromExecutor, value)) {
      this.#fault('a frame that is not in the protocol');
      return 0;
    }
    const frame = value;
    if (frame.n !== this.#options.nonce) {
      this.#fault('a frame with a foreign nonce');
      return 0;
    }
    this.#behind = undefined;
    const behind = 'p' in frame ? (frame.p ?? 0) : 0;
    // What was said to an earlier client may still be on its way.
    if (!this.#isWelcomed && frame.t !== 'welcome') return behind;
    if (frame.e !== this.#options.epoch) {
      // Everybody who is attached sees everything: a higher epoch means that we have been replaced.
      if (frame.e > this.#options.epoch) this.#fault('another Kernel has taken over');
      return behind;
    }
    this.#lastHeard = performance.now();
    this.#handle(frame);
    return behind;
  }

  /** What belongs to a frame that nobody waits for is passed over. */
  #payload(bytes: Buffer, left: number): void {
    const behind = this.#behind;
    if (behind === undefined || this.#end !== undefined) return;
    behind.incoming.add(bytes);
    if (left > 0) return;
    this.#behind = undefined;
    behind.whole();
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
      case 'part':
        this.#announced(frame);
        return;
      case 'data':
        this.#continued(frame);
        return;
      case 'done': {
        const pending = this.#pending.get(frame.id);
        if (pending === undefined) this.#fault('an answer that was not asked for');
        else if (frame.p === undefined) this.#done(pending, frame);
        else if (pending.carried !== undefined || pending.incoming !== undefined || frame.p > mostCarried(pending)) {
          this.#fault('more bytes than were announced');
        } else {
          // Its bytes come behind it: until then it is nobody's answer.
          const incoming = new Incoming(frame.p);
          pending.carried = incoming;
          this.#behind = { incoming, whole: () => this.#done(pending, frame) };
        }
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

  /** Bytes of a file, or what the answer will speak of. */
  #announced(frame: Extract<FromExecutor, { t: 'part' }>): void {
    const pending = this.#pending.get(frame.id);
    const { size, file, p = 0 } = frame;
    // One thing after the other: files where files were asked for, then what the answer speaks of; nothing after it.
    if (
      pending === undefined ||
      pending.incoming !== undefined ||
      pending.carried !== undefined ||
      (file !== null && (pending.into === undefined || pending.files.length >= collectedFiles)) ||
      pending.size + size > mostCarried(pending) ||
      p > size
    ) {
      this.#fault('a part that was not expected');
      return;
    }
    pending.waitsSince = performance.now();
    pending.size += size;
    pending.seq = 0;
    pending.incoming =
      file === null || pending.into === undefined
        ? new Incoming(size)
        : new IncomingFile(file, size, pending.into.file(size));
    this.#expect(pending, pending.incoming, p);
  }

  #continued(frame: Extract<FromExecutor, { t: 'data' }>): void {
    const pending = this.#pending.get(frame.id);
    const incoming = pending?.incoming;
    if (pending === undefined || incoming === undefined || frame.seq !== pending.seq || frame.p > incoming.missing) {
      this.#fault('a part that was not expected');
      return;
    }
    pending.waitsSince = performance.now();
    pending.seq += 1;
    this.#expect(pending, incoming, frame.p);
  }

  #expect(pending: Pending, incoming: Incoming | IncomingFile, bytes: number): void {
    const whole = (): void => {
      if (incoming.missing > 0) return;
      pending.incoming = undefined;
      if (incoming instanceof IncomingFile) pending.files.push(incoming.whole());
      else pending.carried = incoming;
    };
    if (bytes === 0) whole();
    else this.#behind = { incoming, whole };
  }

  /** An answer with everything that it speaks of. */
  #done(pending: Pending, frame: Extract<FromExecutor, { t: 'done' }>): void {
    const { request, carried, incoming, files } = pending;
    const { result } = frame;
    const { bytes, sha256 } = (carried ?? new Incoming(0)).whole();
    const asAnnounced =
      'size' in result ? result['size'] === bytes.length && result['sha256'] === sha256 : bytes.length === 0;
    if (
      !fits<ExecutorResult<ExecutorOp>>(executorResults[request.t], result) ||
      !asAnnounced ||
      incoming !== undefined
    ) {
      this.#fault('an answer that is not what was announced');
      return;
    }
    this.#pending.delete(frame.id);
    this.#options.at?.(`frame-answered-${request.t}`);
    if (isAudited(request.t)) this.#options.chain.add(frame.a, 'done', request, frame.result);
    pending.onAnswer?.();
    pending.settle({ result, bytes, files });
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
    this.#outgoing.end();
    clearInterval(this.#beat);
    this.#options.stream.destroy();
    for (const pending of this.#pending.values()) pending.fail(this.#gone());
    this.#pending.clear();
    this.#resolveEnded(end);
  }
}

/** Bytes of one answer: a file, a collection, or a report (20,000 files), the audit, a command's output. */
function mostCarried({ request }: Pending): number {
  switch (request.t) {
    case 'read':
      return channelBounds.fileBytes;
    case 'collect':
      return channelBounds.collectionBytes;
    default:
      return channelBounds.reportBytes;
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
