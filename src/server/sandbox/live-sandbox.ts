import { channelBounds, type ExecutorFailure, type ExecutorOp, type Policy } from '../../protocol/executor.ts';
import { WorkspaceReport } from '../../protocol/executor-answers.ts';
import type { FileEntry, RelPath, Sha256 } from '../../protocol/primitives.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { LimitReceipt } from '../../protocol/attempt.ts';
import type { AuditChain, ChainSnapshot } from './audit-chain.ts';
import { ExecutorRefusal, type Answer, type Channel, type RequestOptions, type RequestParameters } from './channel.ts';
import { judgeCollection, type Gathered } from './collection.ts';
import {
  SandboxFault,
  type AuditPoint,
  type ChannelEnd,
  type Collection,
  type CollectionSink,
  type CommandResult,
  type FileRead,
  type MonitorRecording,
  type QuiesceObservation,
  type Sandbox,
} from './port.ts';

/** After a command's own deadline the supervisor still sweeps, drains and sends: seconds at most, also under load. */
const afterDeadlineMs = 60_000;

export interface LiveSandboxParts {
  readonly name: string;
  readonly engineId: string;
  readonly nonce: string;
  readonly channel: Channel;
  readonly chain: AuditChain;
  readonly policy: Policy;
  /** What was placed, by hash. */
  readonly baseline: readonly FileEntry[];
  readonly limits: readonly LimitReceipt[];
  /** Bytes that changed files may have together. */
  readonly mayChange: number;
  /** What is recorded of the container's use so far. */
  readonly recording: () => MonitorRecording | null;
}

/** A container with its supervisor behind a channel. The policy is checked here first; the supervisor checks it again. */
export class LiveSandbox implements Sandbox {
  readonly name: string;
  readonly engineId: string;
  readonly limits: readonly LimitReceipt[];
  readonly ended: Promise<ChannelEnd>;
  readonly #parts: LiveSandboxParts;
  readonly #readable: ReadonlySet<string>;
  readonly #writable: ReadonlySet<string>;
  readonly #known: ReadonlySet<string>;
  /** Bytes of the writable files that differ from what was placed. */
  readonly #changed = new Map<RelPath, number>();
  #quiet: boolean | undefined;
  /** Commands take turns: the supervisor runs one at a time. */
  #turn: Promise<unknown> = Promise.resolve();
  /** So do looks of people: a window that asks for everything at once must not crowd out the agent. */
  #looking: Promise<unknown> = Promise.resolve();

  constructor(parts: LiveSandboxParts) {
    this.#parts = parts;
    this.name = parts.name;
    this.engineId = parts.engineId;
    this.limits = parts.limits;
    this.ended = parts.channel.ended;
    this.#writable = new Set<string>(parts.policy.writable);
    this.#readable = new Set<string>([...parts.policy.readable, ...parts.policy.writable]);
    this.#known = new Set<string>([...this.#readable, ...parts.baseline.map(({ path }) => path)]);
  }

  get witness(): AuditPoint {
    const { entries, head } = this.#parts.chain;
    return { entries, head };
  }

  async read(path: RelPath, by: 'agent' | 'person', signal?: AbortSignal): Promise<FileRead> {
    if (!(by === 'agent' ? this.#readable : this.#known).has(path)) {
      await this.#denied(`read ${path}`, 'not a readable file');
    }
    const ask = () => this.#ask('read', { path, by }, {}, signal);
    const { result, bytes } = await (by === 'agent' ? ask() : this.#inTurn(ask));
    return { bytes, mode: result.mode, sha256: result.sha256 };
  }

  async write(
    path: RelPath,
    bytes: Uint8Array,
    expected: Sha256 | null,
    signal?: AbortSignal,
  ): Promise<{ readonly sha256: Sha256 }> {
    if (!this.#writable.has(path)) await this.#denied(`write ${path}`, 'not a writable file');
    if (bytes.length > channelBounds.fileBytes) throw new SandboxFault('too-large', tooLarge(path, bytes.length));
    const parameters = { path, expected, size: bytes.length, sha256: sha256(bytes) };
    const grown = this.#grown(path, parameters.sha256, bytes.length);
    const { result } = await this.#ask('write', parameters, { payload: bytes }, signal);
    if (result.sha256 !== parameters.sha256)
      throw new SandboxFault('channel', 'other bytes were written than were sent');
    if (grown === 0) this.#changed.delete(path);
    else this.#changed.set(path, grown);
    return { sha256: result.sha256 };
  }

  async run(commandId: string, signal?: AbortSignal): Promise<CommandResult> {
    const command = this.#parts.policy.commands.find(({ id }) => id === commandId);
    if (command === undefined) {
      await this.#denied(`run ${commandId}`, 'not a declared command');
      throw new Error('unreachable: a denial throws');
    }
    const before = this.#turn;
    let done: () => void = () => {};
    this.#turn = new Promise<void>((resolve) => {
      done = resolve;
    });
    try {
      await before;
      if (signal?.aborted === true) return neverStarted;
      return await this.#runNow(commandId, command.timeoutMs, signal);
    } finally {
      done();
    }
  }

  async deny(request: string, reason: string): Promise<void> {
    await this.#ask('deny', { request: cut(request, 4096), reason: cut(reason, 1024) });
  }

  async quiesce(): Promise<QuiesceObservation> {
    const { result } = await this.#ask('quiesce', {});
    this.#quiet = result.empty;
    return result;
  }

  async manifest(): Promise<readonly FileEntry[]> {
    const { bytes } = await this.#inTurn(() => this.#ask('manifest', {}));
    return reportIn(bytes).files;
  }

  async collect(into: CollectionSink): Promise<Collection> {
    const gathered: { -readonly [K in keyof Gathered]: Gathered[K] } = {
      via: 'channel',
      fault: null,
      quiet: false,
      report: null,
      files: [],
      auditLog: null,
      executorHead: null,
    };
    const { nonce, baseline, policy, chain, recording } = this.#parts;
    // The log is compared with what the Kernel knew when the log was read: a person may have looked at a file since.
    let known: ChainSnapshot | undefined;
    try {
      if (this.#quiet === undefined) await this.quiesce();
      gathered.quiet = this.#quiet === true;
      const collected = await this.#ask('collect', {}, { into });
      gathered.report = reportIn(collected.bytes);
      gathered.files = this.#declared(collected.files);
      const onAnswer = (): void => {
        known = chain.snapshot();
      };
      const { result, bytes } = await this.#ask('audit', {}, { onAnswer });
      gathered.auditLog = bytes;
      gathered.executorHead = result.head;
    } catch (error) {
      gathered.fault = SandboxFault.is(error) ? `${error.code}: ${error.message}` : `defect: ${String(error)}`;
      if (gathered.report === null) gathered.via = 'none';
    }
    return {
      ...judgeCollection(gathered, {
        nonce,
        baseline,
        policy,
        chain: { ...(known ?? chain.snapshot()), broken: chain.broken },
      }),
      monitor: recording(),
    };
  }

  detach(): void {
    this.#parts.channel.close();
  }

  async #runNow(commandId: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<CommandResult> {
    const { channel } = this.#parts;
    let id: number | undefined;
    const cancel = () => {
      if (id !== undefined) channel.cancel(id);
    };
    try {
      const answering = this.#ask(
        'run',
        { command: commandId },
        {
          deadlineMs: timeoutMs + afterDeadlineMs,
          onId: (given) => {
            id = given;
          },
        },
      );
      // After the request is on its way: a cancellation must come behind it.
      signal?.addEventListener('abort', cancel, { once: true });
      const { result, bytes } = await answering;
      return {
        // Something of the worker is still alive although it was killed: the bytes can't be relied on.
        end: result.empty ? result.end : { kind: 'unknown', reason: 'workers-not-ended' },
        output: bytes,
        outputCut: result.cut,
        durationMs: result.durationMs,
        peakMemory: result.peakMemory,
      };
    } finally {
      signal?.removeEventListener('abort', cancel);
    }
  }

  /**
   * How many bytes of a file would be other than what was placed: all, or none. Throws SandboxFault `too-large` where
   * those of all files would be more than may be kept: said now, since it would cost the whole attempt at its end.
   */
  #grown(path: RelPath, digest: Sha256, size: number): number {
    const placed = this.#parts.baseline.find((entry) => entry.path === path);
    if (placed?.sha256 === digest) return 0;
    let sum = size;
    for (const [other, bytes] of this.#changed) if (other !== path) sum += bytes;
    const { mayChange } = this.#parts;
    if (sum <= mayChange) return size;
    throw new SandboxFault(
      'too-large',
      `${path}: the changed files would have ${sum} bytes together; of this session ${mayChange} more can be kept`,
    );
  }

  /** In the order of the policy. What it does not name was not asked for. Throws SandboxFault `channel`. */
  #declared(files: readonly FileEntry[]): readonly FileEntry[] {
    const found = new Map<string, FileEntry>(files.map((file) => [file.path, file]));
    const wanted = this.#parts.policy.writable.map((path) => found.get(path)).filter((file) => file !== undefined);
    if (wanted.length !== files.length) throw new SandboxFault('channel', 'other files were sent than were asked for');
    return wanted;
  }

  #inTurn<T>(look: () => Promise<T>): Promise<T> {
    const mine = this.#looking.then(look);
    this.#looking = mine.catch(() => undefined);
    return mine;
  }

  async #denied(request: string, reason: string): Promise<never> {
    await this.deny(request, reason);
    throw new SandboxFault('denied', reason);
  }

  /** An aborted wait gives up waiting; the answer is still taken for the audit when it comes. */
  #ask<O extends ExecutorOp>(
    op: O,
    parameters: RequestParameters<O>,
    options: RequestOptions = {},
    signal?: AbortSignal,
  ): Promise<Answer<O>> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(new SandboxFault('cancelled', 'cancelled before it was sent'));
        return;
      }
      const onAbort = (): void => reject(new SandboxFault('cancelled', 'cancelled'));
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#parts.channel.request(op, parameters, options).then(
        (answer) => {
          signal?.removeEventListener('abort', onAbort);
          resolve(answer);
        },
        (error: unknown) => {
          signal?.removeEventListener('abort', onAbort);
          reject(faultOf(error));
        },
      );
    });
  }
}

/** Throws SandboxFault `channel`. */
function reportIn(bytes: Buffer): WorkspaceReport {
  const parsed = WorkspaceReport.safeParse(JSON.parse(bytes.toString('utf8')));
  if (!parsed.success) throw new SandboxFault('channel', 'the manifest is not in the agreed form');
  return parsed.data;
}

const neverStarted: CommandResult = {
  end: { kind: 'cancelled' },
  output: new Uint8Array(),
  outputCut: false,
  durationMs: 0,
  peakMemory: null,
};

/** Whose fault a refusal is, in the words of the port. */
export function faultOf(error: unknown): unknown {
  if (!(error instanceof ExecutorRefusal)) return error;
  return new SandboxFault(faultCodes[error.code], error.message, { cause: error });
}

const faultCodes: Readonly<Record<ExecutorFailure, SandboxFault['code']>> = {
  denied: 'denied',
  'not-found': 'not-found',
  conflict: 'conflict',
  'too-large': 'too-large',
  'no-space': 'no-space',
  invalid: 'invalid',
  phase: 'denied',
  busy: 'invalid',
  'audit-full': 'no-space',
  io: 'channel',
};

export function tooLarge(path: string, size: number): string {
  return `${path} has ${size} bytes; at most ${channelBounds.fileBytes} can be placed or written`;
}

function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
