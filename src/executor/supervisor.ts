import { writeFileSync } from 'node:fs';
import {
  auditRequest,
  channelBounds,
  dependencyPaths,
  executorProtocol,
  insidePaths,
  isAudited,
  manifestDigest,
  Policy,
  ToExecutor,
  type AuditMark,
  type ExecutorOp,
  type ExecutorPhase,
  type ExecutorRequest,
  type ExecutorResult,
  type FrameRefusal,
  type FromExecutor,
} from '../protocol/executor.ts';
import { BoundedLines } from '../protocol/bounded-lines.ts';
import { canonicalJson, digestOf, sha256 } from '../protocol/hash.ts';
import { parseRelPath, pathKey } from '../protocol/paths.ts';
import type { FileEntry, Sha256 } from '../protocol/primitives.ts';
import { AuditLog } from './audit-log.ts';
import { insideReport } from './inside-report.ts';
import type { Outbox } from './outbox.ts';
import { sweepWorkers } from './process-table.ts';
import { ResourceMeter } from './resource-meter.ts';
import { runWorker, type RunningCommand } from './worker-command.ts';
import { Refusal, Workspace } from './workspace.ts';

/** Distributes over the union, so that each kind of frame keeps its own members. */
type Body<F> = F extends unknown ? Omit<F, 'v' | 'n' | 'e'> : never;

interface Upload {
  readonly request: Extract<ExecutorRequest, { t: 'open' | 'place' | 'write' }>;
  readonly parts: Buffer[];
  received: number;
  seq: number;
}

interface Attached {
  readonly epoch: number;
  readonly key: string;
}

export interface SupervisorIdentity {
  readonly nonce: string;
  readonly executor: Sha256;
  readonly node: string;
}

/**
 * Serves one Kernel at a time over frames: checks who speaks, does what the policy allows, records each request with
 * its result, and outlives its client. All state changes happen here.
 */
export class Supervisor {
  readonly #identity: SupervisorIdentity;
  readonly #out: Outbox;
  readonly #exit: () => void;
  readonly #lines = new BoundedLines(channelBounds.frameBytes);
  readonly #workspace = new Workspace(insidePaths.workspace);
  readonly #audit: AuditLog;
  readonly #meter = new ResourceMeter();
  readonly #placed = new Map<string, FileEntry>();
  #phase: ExecutorPhase = 'new';
  #attached: Attached | undefined;
  #policy: Policy | undefined;
  #upload: Upload | undefined;
  #running: { readonly id: number; readonly command: RunningCommand; readonly epoch: number } | undefined;
  #probing: Promise<unknown> | undefined;
  #lastHeard = performance.now();
  #heldSince: number | undefined;
  #refusals = 0;
  #queuedBytes = 0;
  #placedBytes = 0;
  #highestId = 0;

  constructor(identity: SupervisorIdentity, out: Outbox, exit: () => void) {
    this.#identity = identity;
    this.#out = out;
    this.#exit = exit;
    this.#audit = new AuditLog(insidePaths.audit, identity.nonce);
    setInterval(() => this.#tick(), channelBounds.beatMs);
  }

  /** Bytes from whoever is attached. Never throws. */
  receive(chunk: Uint8Array): void {
    for (const line of this.#lines.push(chunk)) {
      if (line.kind === 'too-long') this.#refuseFrame('too-long');
      // A fresh client begins with a newline, in case a dead one left half a frame.
      else if (line.bytes.length > 0) this.#receiveLine(line.bytes.toString('utf8'));
    }
  }

  /** After a defect nothing more is done, but what is there can still be read. */
  distrust(): void {
    if (this.#phase !== 'quiesced') this.#phase = 'held';
    this.#running?.command.stop('cancelled');
  }

  /**
   * Asked for by the reader of last resort, which has no channel: nothing more is done, what runs is ended, and a file
   * says so once it is so. Ending a command ends every process but this one, so the reader may have to come twice.
   */
  async hold(): Promise<void> {
    this.distrust();
    await this.#running?.command.result.catch(() => undefined);
    writeFileSync(insidePaths.held, '');
  }

  #tick(): void {
    const now = performance.now();
    if (this.#heldSince === undefined && now - this.#lastHeard > channelBounds.silenceMs) {
      this.#heldSince = now;
      if (this.#phase !== 'quiesced') this.#phase = 'held';
      this.#running?.command.stop('kernel-silent');
      void sweepWorkers();
    }
    if (this.#heldSince !== undefined && now - this.#heldSince > channelBounds.holdMs) this.#exit();
    this.#sayBeat();
  }

  /** That it lives, and what it uses; only if nobody has to wait for it. */
  #sayBeat(): void {
    if (this.#attached === undefined) return;
    this.#out.sendIfIdle(() => this.#line({ t: 'beat', phase: this.#phase, use: this.#meter.sample() }));
  }

  #receiveLine(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      this.#refuseFrame('not-json');
      return;
    }
    const parsed = ToExecutor.safeParse(value);
    if (!parsed.success) {
      const version = (value as { v?: unknown } | null)?.v;
      this.#refuseFrame(typeof version === 'number' && version !== executorProtocol ? 'wrong-version' : 'malformed');
      return;
    }
    const frame = parsed.data;
    if (frame.n !== this.#identity.nonce) {
      this.#refuseFrame('wrong-nonce');
      return;
    }
    if (frame.t === 'hello') {
      this.#hello({ epoch: frame.e, key: frame.k });
      return;
    }
    if (this.#attached === undefined || frame.k !== this.#attached.key || frame.e !== this.#attached.epoch) {
      const stale = this.#attached !== undefined && frame.e < this.#attached.epoch;
      this.#refuseFrame(stale ? 'stale-epoch' : 'not-attached');
      return;
    }
    this.#heard();
    if (frame.t === 'beat') return;
    if (frame.t === 'data') this.#data(frame);
    else if (frame.t === 'cancel') {
      if (this.#running?.id === frame.id) this.#running.command.stop('cancelled');
    } else this.#request(frame);
  }

  /** A higher epoch takes over; the same client may say hello again; anybody else is refused. */
  #hello(client: Attached): void {
    const now = this.#attached;
    if (now !== undefined && client.epoch < now.epoch) {
      this.#refuseFrame('stale-epoch');
      return;
    }
    if (now !== undefined && client.epoch === now.epoch && client.key !== now.key) {
      this.#refuseFrame('not-attached');
      return;
    }
    this.#attached = client;
    this.#upload = undefined;
    this.#highestId = 0;
    this.#out.clear();
    this.#heard();
    const running = this.#running;
    if (running === undefined || now === undefined || client.epoch === now.epoch) {
      this.#welcome();
      return;
    }
    // A command of a Kernel that is gone has nobody to report to. Its end comes into the record before the welcome, so
    // that the next Kernel goes on from where nothing is under way.
    running.command.stop('cancelled');
    void running.command.result
      .catch(() => undefined)
      .then(() => {
        if (this.#attached === client) this.#welcome();
      });
  }

  #welcome(): void {
    this.#say({
      t: 'welcome',
      executor: this.#identity.executor,
      node: this.#identity.node,
      phase: this.#phase,
      entries: this.#audit.entries,
      head: this.#audit.head,
    });
  }

  #heard(): void {
    this.#lastHeard = performance.now();
    // Held stays held for work; only the time until the end of the container starts again.
    if (this.#heldSince !== undefined) this.#heldSince = performance.now();
  }

  #data(frame: Extract<ToExecutor, { t: 'data' }>): void {
    const upload = this.#upload;
    if (upload === undefined || upload.request.id !== frame.id) return;
    const part = Buffer.from(frame.data, 'base64');
    if (frame.seq !== upload.seq || part.length === 0 || upload.received + part.length > upload.request.size) {
      this.#upload = undefined;
      this.#fail(upload.request, new Refusal('invalid', 'the parts do not make what was announced'));
      return;
    }
    upload.seq += 1;
    upload.received += part.length;
    upload.parts.push(part);
    this.#finishUpload(upload);
  }

  #finishUpload(upload: Upload): void {
    if (upload.received < upload.request.size) return;
    this.#upload = undefined;
    const bytes = Buffer.concat(upload.parts);
    this.#answer(upload.request, () => {
      if (sha256(bytes) !== upload.request.sha256) throw new Refusal('invalid', 'the bytes have another hash');
      switch (upload.request.t) {
        case 'open':
          return { result: this.#open(bytes) };
        case 'place':
          return { result: this.#place(upload.request, bytes) };
        case 'write':
          return { result: this.#write(upload.request, bytes) };
        default:
          throw new Error('unreachable upload');
      }
    });
  }

  #request(request: ExecutorRequest): void {
    // Ids rise: an answer belongs to one request only.
    if (request.id <= this.#highestId) {
      this.#refuseFrame('malformed');
      return;
    }
    this.#highestId = request.id;
    if (this.#upload !== undefined) {
      const unfinished = this.#upload.request;
      this.#upload = undefined;
      this.#fail(unfinished, new Refusal('invalid', 'the parts were not all sent'));
    }
    if (isAudited(request.t) && this.#audit.full && request.t !== 'quiesce' && request.t !== 'take') {
      this.#fail(request, new Refusal('audit-full', 'the audit log is full'));
      return;
    }
    switch (request.t) {
      case 'open':
      case 'place':
      case 'write':
        this.#upload = { request, parts: [], received: 0, seq: 0 };
        this.#finishUpload(this.#upload);
        return;
      case 'seal':
        this.#answer(request, () => ({ result: this.#seal() }));
        return;
      case 'probe':
        this.#probe(request);
        return;
      case 'read':
        this.#answer(request, () => {
          this.#expectPhase('ready', 'quiesced', 'held');
          if (!this.#mayRead(request.path, request.by)) throw new Refusal('denied', 'not a readable file');
          const { bytes, ...found } = this.#workspace.read(request.path);
          return { result: { ...found, size: bytes.length }, bytes };
        });
        return;
      case 'take':
        this.#answer(request, () => {
          this.#expectPhase('quiesced', 'held');
          if (!this.#policy?.writable.includes(request.path)) throw new Refusal('denied', 'not a writable file');
          const { bytes, ...found } = this.#workspace.read(request.path);
          return { result: { ...found, size: bytes.length }, bytes };
        });
        return;
      case 'run':
        this.#run(request);
        return;
      case 'deny':
        this.#answer(request, () => ({ result: {} }));
        return;
      case 'quiesce':
        void this.#quiesce(request);
        return;
      case 'manifest':
        this.#answer(request, () => {
          const bytes = Buffer.from(canonicalJson(this.#workspace.report()));
          return { result: { size: bytes.length, sha256: sha256(bytes) }, bytes };
        });
        return;
      case 'audit':
        this.#answer(request, () => {
          const bytes = this.#audit.read();
          const { entries, head } = this.#audit;
          return { result: { size: bytes.length, sha256: sha256(bytes), entries, head }, bytes };
        });
        return;
    }
  }

  #open(bytes: Buffer): ExecutorResult<'open'> {
    if (this.#phase !== 'new') throw new Refusal('phase', 'a policy is set already');
    let value: unknown;
    try {
      value = JSON.parse(bytes.toString('utf8'));
    } catch {
      throw new Refusal('invalid', 'the policy is no JSON');
    }
    const parsed = Policy.safeParse(value);
    if (!parsed.success) throw new Refusal('invalid', 'the policy does not have the agreed form');
    checkPolicy(parsed.data);
    // Links first: a scratch folder may lie in a node_modules.
    this.#workspace.linkModules(parsed.data.modules ?? [], dependencyPaths.root);
    this.#workspace.makeScratch(parsed.data.scratch);
    this.#policy = parsed.data;
    this.#phase = 'placing';
    return { policy: digestOf(parsed.data) };
  }

  #place(request: Extract<ExecutorRequest, { t: 'place' }>, bytes: Buffer): ExecutorResult<'place'> {
    this.#expectPhase('placing');
    checkPath(request.path);
    if (this.#policy?.scratch.some((folder) => isWithin(request.path, folder))) {
      throw new Refusal('denied', 'lies in a scratch folder');
    }
    if (this.#placed.size >= channelBounds.files) throw new Refusal('too-large', 'too many files');
    this.#workspace.place(request.path, request.mode, bytes);
    this.#placedBytes += bytes.length;
    this.#placed.set(request.path, {
      path: request.path,
      mode: request.mode,
      size: bytes.length,
      sha256: request.sha256,
    });
    return {};
  }

  #seal(): ExecutorResult<'seal'> {
    this.#expectPhase('placing');
    this.#phase = 'ready';
    return { files: this.#placed.size, bytes: this.#placedBytes, manifest: manifestDigest([...this.#placed.values()]) };
  }

  #write(request: Extract<ExecutorRequest, { t: 'write' }>, bytes: Buffer): ExecutorResult<'write'> {
    this.#expectPhase('ready');
    checkPath(request.path);
    if (!this.#policy?.writable.includes(request.path)) throw new Refusal('denied', 'not a writable file');
    this.#workspace.write(request.path, bytes, request.expected);
    // Read back: the answer is what is there, not what was sent.
    const found = this.#workspace.read(request.path);
    if (found.sha256 !== request.sha256) throw new Refusal('io', 'other bytes were read back');
    return { sha256: found.sha256 };
  }

  #mayRead(path: string, by: 'agent' | 'person'): boolean {
    const policy = this.#policy;
    if (policy === undefined || !parseRelPath(path).ok) return false;
    const listed = (paths: readonly string[]) => paths.includes(path);
    return listed(policy.readable) || listed(policy.writable) || (by === 'person' && this.#placed.has(path));
  }

  #run(request: Extract<ExecutorRequest, { t: 'run' }>): void {
    const declared = this.#policy?.commands.find(({ id }) => id === request.command);
    try {
      this.#expectPhase('ready');
      if (declared === undefined) throw new Refusal('denied', 'not a declared command');
      if (this.#running !== undefined) throw new Refusal('busy', 'another command runs');
      const mark = this.#record(request, 'started', {});
      this.#say({ t: 'started', id: request.id, a: mark });
    } catch (error) {
      this.#fail(request, error);
      return;
    }
    const command = runWorker(declared, this.#meter);
    this.#running = { id: request.id, command, epoch: this.#attached?.epoch ?? 0 };
    const finished = command.result.then((done) => {
      const startedUnder = this.#running?.epoch;
      this.#running = undefined;
      this.#sayBeat();
      const { output, ...facts } = done;
      const result = { ...facts, size: output.length, sha256: sha256(output) };
      // Recorded in any case; told only to the client that asked.
      if (startedUnder === this.#attached?.epoch) this.#answer(request, () => ({ result, bytes: output }));
      else this.#record(request, 'done', result);
    });
    finished.catch((error: unknown) => {
      this.#running = undefined;
      this.#fail(request, error);
    });
  }

  async #quiesce(request: Extract<ExecutorRequest, { t: 'quiesce' }>): Promise<void> {
    if (this.#phase !== 'held') this.#phase = 'quiesced';
    const running = this.#running;
    running?.command.stop('cancelled');
    await running?.command.result;
    await this.#probing;
    const swept = await sweepWorkers();
    this.#sayBeat();
    this.#answer(request, () => ({ result: { empty: swept.empty, killed: swept.found, ms: swept.ms } }));
  }

  #probe(request: Extract<ExecutorRequest, { t: 'probe' }>): void {
    if (this.#running !== undefined || this.#probing !== undefined) {
      this.#fail(request, new Refusal('busy', 'another process runs'));
      return;
    }
    this.#probing = insideReport()
      .then(
        (report) => {
          const bytes = Buffer.from(canonicalJson(report));
          this.#answer(request, () => ({ result: { size: bytes.length, sha256: sha256(bytes) }, bytes }));
        },
        (error: unknown) => this.#fail(request, error),
      )
      .finally(() => {
        this.#probing = undefined;
      });
  }

  #expectPhase(...allowed: readonly ExecutorPhase[]): void {
    if (!allowed.includes(this.#phase)) throw new Refusal('phase', `the sandbox is ${this.#phase}`);
  }

  /** Does the work, records it, answers. The record comes first: what could not be recorded is not answered with done. */
  #answer<O extends ExecutorOp>(
    request: Extract<ExecutorRequest, { t: O }>,
    work: () => { readonly result: ExecutorResult<O>; readonly bytes?: Buffer },
  ): void {
    let done: { readonly result: ExecutorResult<O>; readonly bytes?: Buffer };
    let mark: AuditMark | null;
    try {
      done = work();
      // What a command printed is bounded by itself; that it ran must not be answered with a refusal.
      const waits = request.t === 'run' ? 0 : (done.bytes?.length ?? 0);
      if (this.#queuedBytes + waits > channelBounds.queuedBytes && waits > 0) {
        throw new Refusal('busy', 'too many bytes wait to be taken');
      }
      mark = isAudited(request.t) ? this.#record(request, 'done', done.result) : null;
    } catch (error) {
      this.#fail(request, error);
      return;
    }
    this.#out.send(this.#carry(request.id, done.bytes, { t: 'done', id: request.id, result: done.result, a: mark }));
  }

  #fail(request: ExecutorRequest, error: unknown): void {
    const refusal = error instanceof Refusal ? error : new Refusal('io', `defect: ${String(error)}`);
    let mark: AuditMark | null = null;
    if (isAudited(request.t)) {
      try {
        mark = this.#record(request, 'failed', { code: refusal.code });
      } catch {
        // Not recorded: the Kernel sees an answer without a mark, and its chain says so.
      }
    }
    const message = refusal.message.slice(0, 1024);
    this.#say({ t: 'fail', id: request.id, code: refusal.code, message, a: mark });
  }

  #record(
    request: ExecutorRequest,
    phase: 'started' | 'done' | 'failed',
    result: Readonly<Record<string, unknown>>,
  ): AuditMark {
    return this.#audit.append({ id: request.id, op: request.t, phase, request: auditRequest(request), result });
  }

  #refuseFrame(reason: FrameRefusal): void {
    this.#refusals += 1;
    // Before the first client there is no session that it could concern.
    if (this.#attached === undefined || this.#refusals > channelBounds.recordedRefusals) return;
    let mark: AuditMark | null = null;
    try {
      mark = this.#audit.append({ id: null, op: 'frame', phase: 'refused', request: {}, result: { reason } });
    } catch {
      // The log is full: see #fail.
    }
    this.#say({ t: 'refused', reason, a: mark });
  }

  #say(body: Body<FromExecutor>): void {
    this.#out.send([this.#line(body)].values());
  }

  /** An answer as lines. Its bytes count from here on until the last line is made or the answer is given up. */
  #carry(id: number, bytes: Buffer = Buffer.alloc(0), last: Body<FromExecutor>): Iterator<string | Buffer> {
    const lines = this.#linesOf(id, bytes, last);
    let waiting = bytes.length;
    this.#queuedBytes += waiting;
    const over = (): void => {
      this.#queuedBytes -= waiting;
      waiting = 0;
    };
    return {
      next: () => {
        const line = lines.next();
        if (line.done === true) over();
        return line;
      },
      // Not the generator's own: one that has not begun would not hear of it.
      return: () => {
        over();
        return { done: true, value: undefined };
      },
    };
  }

  *#linesOf(id: number, bytes: Buffer, last: Body<FromExecutor>): Generator<string | Buffer> {
    for (let seq = 0; seq * channelBounds.chunkBytes < bytes.length; seq += 1) {
      const start = seq * channelBounds.chunkBytes;
      const data = bytes.subarray(start, start + channelBounds.chunkBytes).toString('base64');
      // Put together by hand: base64 needs no escaping, and most of what is sent is this.
      const envelope = this.#line({ t: 'data', id, seq, data: '' }).slice(0, -'"}'.length);
      yield Buffer.from(`${envelope}${data}"}\n`, 'latin1');
    }
    yield this.#line(last);
  }

  #line(body: Body<FromExecutor>): string {
    return JSON.stringify({ v: executorProtocol, n: this.#identity.nonce, e: this.#attached?.epoch ?? 0, ...body });
  }
}

function checkPath(path: string): void {
  const parsed = parseRelPath(path);
  if (!parsed.ok) throw new Refusal('invalid', `path: ${parsed.reason}`);
}

/** What the schema can't say: rules of paths, no file in scratch, no writable file that could be taken for another. */
function checkPolicy(policy: Policy): void {
  for (const path of [...policy.readable, ...policy.writable, ...policy.scratch]) checkPath(path);
  for (const path of policy.modules ?? []) {
    checkPath(path);
    if (!/(?:^|\/)node_modules$/.test(path)) throw new Refusal('invalid', `${path}: not a node_modules folder`);
  }
  const files = [...policy.readable, ...policy.writable];
  for (const folder of policy.scratch) {
    const inside = files.some((path) => isWithin(path, folder));
    const nested = policy.scratch.some((other) => other !== folder && isWithin(other, folder));
    if (inside || nested)
      throw new Refusal('invalid', `${folder}: a scratch folder can't hold declared files or folders`);
  }
  const owners = new Map<string, string>(files.map((path) => [pathKey(path), path]));
  for (const path of files) {
    const writable = policy.writable.some((other) => pathKey(other) === pathKey(path));
    if (writable && owners.get(pathKey(path)) !== path) {
      throw new Refusal('invalid', `${path}: differs from another path only in case`);
    }
  }
  if (new Set(policy.commands.map(({ id }) => id)).size !== policy.commands.length) {
    throw new Refusal('invalid', 'two commands have the same id');
  }
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`);
}
