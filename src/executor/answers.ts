import { createHash } from 'node:crypto';
import {
  auditRequest,
  channelBounds,
  executorProtocol,
  isAudited,
  type AuditMark,
  type ExecutorOp,
  type ExecutorRequest,
  type FrameRefusal,
} from '../protocol/executor.ts';
import type { ExecutorResult, FromExecutor } from '../protocol/executor-answers.ts';
import type { RelPath, Sha256 } from '../protocol/primitives.ts';
import type { AuditLog } from './audit-log.ts';
import type { Outbox, OutgoingFrame } from './outbox.ts';
import { Refusal, type OpenFile } from './workspace.ts';

/** Distributes over the union, so that each kind of frame keeps its own members. */
type Body<F> = F extends unknown ? Omit<F, 'v' | 'n' | 'e'> : never;

/** What an answer says, and the bytes that it speaks of. */
export interface Answer<O extends ExecutorOp> {
  readonly result: ExecutorResult<O>;
  readonly bytes?: Buffer;
}

export interface AnswersParts {
  readonly nonce: string;
  readonly audit: AuditLog;
  readonly out: Outbox;
}

/**
 * Everything that the supervisor says, and the record of it: what is answered has been recorded before, and answers go
 * out in the order of their records.
 */
export class Answers {
  readonly #parts: AnswersParts;
  /**
   * Memory for parts of files that nobody uses now; as many as were ever on their way at once. A fresh one for each part
   * would have the collector run several times while a workspace is read.
   */
  readonly #chunks: Buffer[] = [];
  #epoch: number | undefined;
  #queuedBytes = 0;
  #refusals = 0;

  constructor(parts: AnswersParts) {
    this.#parts = parts;
  }

  /** From now on it is this client who is spoken to; what was meant for another is forgotten. */
  attach(epoch: number): void {
    this.#epoch = epoch;
    this.#parts.out.clear();
  }

  /** Does the work, records it, answers. The record comes first: what could not be recorded is not answered with done. */
  answer<O extends ExecutorOp>(request: Extract<ExecutorRequest, { t: O }>, work: () => Answer<O>): void {
    let done: Answer<O>;
    let mark: AuditMark | null;
    try {
      done = work();
      // What a command printed is bounded by itself; that it ran must not be answered with a refusal.
      const waits = request.t === 'run' ? 0 : (done.bytes?.length ?? 0);
      if (waits > 0 && this.#queuedBytes + waits > channelBounds.queuedBytes) {
        throw new Refusal('busy', 'too many bytes wait to be taken');
      }
      mark = isAudited(request.t) ? this.record(request, 'done', done.result) : null;
    } catch (error) {
      this.fail(request, error);
      return;
    }
    const { bytes = Buffer.alloc(0) } = done;
    this.#queuedBytes += bytes.length;
    this.#parts.out.send(
      this.#carry(request.id, bytes, { t: 'done', id: request.id, result: done.result, a: mark }),
      () => {
        this.#queuedBytes -= bytes.length;
      },
    );
  }

  /**
   * Answers with what is sent while it is read. The record and the answer come when all of it was sent, behind whatever
   * else has been recorded meanwhile. `over` is called once: then, or when the client is gone.
   */
  stream<O extends ExecutorOp>(
    request: Extract<ExecutorRequest, { t: O }>,
    frames: Generator<OutgoingFrame, Answer<O>>,
    over: () => void = () => {},
  ): void {
    this.#parts.out.send(this.#streamed(request, frames), over);
  }

  *#streamed<O extends ExecutorOp>(
    request: Extract<ExecutorRequest, { t: O }>,
    frames: Generator<OutgoingFrame, Answer<O>>,
  ): Generator<OutgoingFrame> {
    let done: Answer<O>;
    try {
      done = yield* frames;
    } catch (error) {
      this.fail(request, error);
      return;
    }
    this.answer(request, () => done);
  }

  /** Frames that carry a file, read and hashed as they go; the next one is made while the last is taken. */
  *carryFile(
    id: number,
    file: OpenFile,
    as: { readonly path: RelPath; readonly mode: number } | null,
  ): Generator<OutgoingFrame, Sha256> {
    const hash = createHash('sha256');
    const announced: Body<FromExecutor> = { t: 'part', id, size: file.size, file: as };
    if (file.size === 0) yield { line: this.#line(announced) };
    for (let offset = 0, seq = -1; offset < file.size; seq += 1) {
      const chunk = this.#chunks.pop() ?? Buffer.allocUnsafeSlow(channelBounds.chunkBytes + 1);
      const payload = file.read(chunk);
      hash.update(payload);
      const p = payload.length;
      const line = this.#line(offset === 0 ? { ...announced, p } : { t: 'data', id, seq, p });
      yield { line, payload, taken: () => this.#chunks.push(chunk) };
      offset += p;
    }
    return hash.digest('hex') as Sha256;
  }

  fail(request: ExecutorRequest, error: unknown): void {
    const refusal = error instanceof Refusal ? error : new Refusal('io', `defect: ${String(error)}`);
    let mark: AuditMark | null = null;
    if (isAudited(request.t)) {
      try {
        mark = this.record(request, 'failed', { code: refusal.code });
      } catch {
        // Not recorded: the Kernel sees an answer without a mark, and its chain says so.
      }
    }
    const message = refusal.message.slice(0, 1024);
    this.say({ t: 'fail', id: request.id, code: refusal.code, message, a: mark });
  }

  record(
    request: ExecutorRequest,
    phase: 'started' | 'done' | 'failed',
    result: Readonly<Record<string, unknown>>,
  ): AuditMark {
    return this.#parts.audit.append({ id: request.id, op: request.t, phase, request: auditRequest(request), result });
  }

  /** A frame was not accepted. Before the first client there is no session that it could concern. */
  refuse(reason: FrameRefusal): void {
    this.#refusals += 1;
    if (this.#epoch === undefined || this.#refusals > channelBounds.recordedRefusals) return;
    let mark: AuditMark | null = null;
    try {
      mark = this.#parts.audit.append({ id: null, op: 'frame', phase: 'refused', request: {}, result: { reason } });
    } catch {
      // The log is full: see `fail`.
    }
    this.say({ t: 'refused', reason, a: mark });
  }

  say(body: Body<FromExecutor>): void {
    this.#parts.out.send([{ line: this.#line(body) }]);
  }

  /** Says it only if nobody has to wait for it. */
  sayIfIdle(body: () => Body<FromExecutor>): void {
    if (this.#epoch === undefined) return;
    this.#parts.out.sendIfIdle(() => this.#line(body()));
  }

  /** An answer and what it speaks of: in one frame where that is little enough. */
  #carry(id: number, bytes: Buffer, last: Extract<Body<FromExecutor>, { t: 'done' }>): Iterable<OutgoingFrame> {
    if (bytes.length === 0) return [{ line: this.#line(last) }];
    if (bytes.length > channelBounds.chunkBytes) return this.#carryParts(id, bytes, last);
    return [{ line: this.#line({ ...last, p: bytes.length }), payload: bytes }];
  }

  *#carryParts(id: number, bytes: Buffer, last: Body<FromExecutor>): Generator<OutgoingFrame> {
    yield { line: this.#line({ t: 'part', id, size: bytes.length, file: null }) };
    for (let offset = 0, seq = 0; offset < bytes.length; seq += 1) {
      const payload = bytes.subarray(offset, offset + channelBounds.chunkBytes);
      yield { line: this.#line({ t: 'data', id, seq, p: payload.length }), payload };
      offset += payload.length;
    }
    yield { line: this.#line(last) };
  }

  #line(body: Body<FromExecutor>): string {
    return JSON.stringify({ v: executorProtocol, n: this.#parts.nonce, e: this.#epoch ?? 0, ...body });
  }
}
