import { writeFileSync } from 'node:fs';
import {
  channelBounds,
  dependencyPaths,
  executorProtocol,
  insidePaths,
  isAudited,
  manifestDigest,
  ToExecutor,
  type ExecutorPhase,
  type ExecutorRequest,
  type FrameRefusal,
  type Policy,
} from '../protocol/executor.ts';
import type { ExecutorResult, InsideReport, WorkspaceReport } from '../protocol/executor-answers.ts';
import { FrameReader } from '../protocol/frame-reader.ts';
import { canonicalJson, digestOf, sha256 } from '../protocol/hash.ts';
import type { FileEntry, RelPath, Sha256 } from '../protocol/primitives.ts';
import { fits } from '../protocol/shape.ts';
import { Answers, type Answer } from './answers.ts';
import { AuditLog } from './audit-log.ts';
import { checkedPolicy, checkPath, isWithin } from './checked-policy.ts';
import { insideReport } from './inside-report.ts';
import type { Outbox, OutgoingFrame } from './outbox.ts';
import { sweepWorkers } from './process-table.ts';
import { ResourceMeter } from './resource-meter.ts';
import { Upload, type UploadRequest } from './upload.ts';
import { runWorker, type RunningCommand } from './worker-command.ts';
import { Refusal, Workspace, type Draft, type OpenFile } from './workspace.ts';

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
  readonly #exit: () => void;
  readonly #frames = new FrameReader(channelBounds.frameBytes, {
    // Each frame of a client begins with a newline, in case somebody else left half of one.
    line: (bytes) => (bytes.length === 0 ? 0 : this.#receiveLine(bytes.toString('utf8'))),
    payload: (bytes) => this.#payload(bytes),
    tooLong: () => this.#answers.refuse('too-long'),
  });
  readonly #workspace = new Workspace(insidePaths.workspace);
  readonly #audit: AuditLog;
  readonly #answers: Answers;
  readonly #meter = new ResourceMeter();
  readonly #placed = new Map<string, FileEntry>();
  #phase: ExecutorPhase = 'new';
  #attached: Attached | undefined;
  #policy: Policy | undefined;
  #readable: ReadonlySet<string> = new Set();
  #writable: ReadonlySet<string> = new Set();
  #upload: Upload | undefined;
  #running: { readonly id: number; readonly command: RunningCommand; readonly epoch: number } | undefined;
  /** Begun with this process, while the Kernel still waits for its engine. */
  #firstReport: Promise<InsideReport> | undefined = insideReport();
  #probing: Promise<unknown> | undefined;
  #lastHeard = performance.now();
  #heldSince: number | undefined;
  #openFiles = 0;
  #placedBytes = 0;
  #highestId = 0;

  constructor(identity: SupervisorIdentity, out: Outbox, exit: () => void) {
    this.#identity = identity;
    this.#exit = exit;
    this.#audit = new AuditLog(insidePaths.audit, identity.nonce);
    this.#answers = new Answers({ nonce: identity.nonce, audit: this.#audit, out });
    // Told to whom asks for it.
    this.#firstReport?.catch(() => {});
    setInterval(() => this.#tick(), channelBounds.beatMs);
  }

  /** Bytes from whoever is attached. Never throws. */
  receive(chunk: Uint8Array): void {
    this.#frames.push(chunk);
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
    this.#answers.sayIfIdle(() => ({ t: 'beat', phase: this.#phase, use: this.#meter.sample() }));
  }

  /** Returns how many raw bytes belong to it: only what the attached client says can have some. */
  #receiveLine(text: string): number {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return this.#refuseFrame('not-json');
    }
    if (!fits(ToExecutor, value)) {
      const version = (value as { v?: unknown } | null)?.v;
      const other = typeof version === 'number' && version !== executorProtocol;
      return this.#refuseFrame(other ? 'wrong-version' : 'malformed');
    }
    const frame = value;
    if (frame.n !== this.#identity.nonce) return this.#refuseFrame('wrong-nonce');
    if (frame.t === 'hello') {
      this.#hello({ epoch: frame.e, key: frame.k });
      return 0;
    }
    const attached = this.#attached;
    if (attached === undefined || frame.k !== attached.key || frame.e !== attached.epoch) {
      return this.#refuseFrame(attached !== undefined && frame.e < attached.epoch ? 'stale-epoch' : 'not-attached');
    }
    this.#heard();
    switch (frame.t) {
      case 'beat':
        return 0;
      case 'cancel':
        if (this.#running?.id === frame.id) this.#running.command.stop('cancelled');
        return 0;
      case 'data':
        this.#withUpload(frame.id, (upload) => upload.announce(frame.p, frame.seq));
        return frame.p;
      default:
        this.#request(frame);
        return 'p' in frame ? (frame.p ?? 0) : 0;
    }
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
    this.#answers.attach(client.epoch);
    this.#dropUpload();
    this.#highestId = 0;
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
    this.#answers.say({
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

  /** Nothing of what follows belongs to it. */
  #refuseFrame(reason: FrameRefusal): 0 {
    this.#answers.refuse(reason);
    return 0;
  }

  /** What belongs to an upload that has failed is passed over. */
  #payload(bytes: Buffer): void {
    const upload = this.#upload;
    if (upload === undefined) return;
    this.#withUpload(upload.request.id, () => upload.add(bytes));
    if (this.#upload === upload && upload.complete) this.#finishUpload(upload);
  }

  /** Does something for the upload of that request, if it is still under way; a refusal ends it. */
  #withUpload(id: number, work: (upload: Upload) => void): void {
    const upload = this.#upload;
    if (upload === undefined || upload.request.id !== id) return;
    try {
      work(upload);
    } catch (error) {
      this.#dropUpload();
      this.#answers.fail(upload.request, error);
    }
  }

  #dropUpload(): void {
    this.#upload?.discard();
    this.#upload = undefined;
  }

  /** What can be said before the bytes have come is said before they are written anywhere. */
  #beginUpload(request: UploadRequest): void {
    let draft: Draft | undefined;
    try {
      if (request.t === 'place') this.#checkPlace(request.path);
      else if (request.t === 'write') this.#checkWrite(request.path);
      else if (this.#phase !== 'new') throw new Refusal('phase', 'a policy is set already');
      if (request.t !== 'open') draft = this.#workspace.draft();
    } catch (error) {
      this.#answers.fail(request, error);
      return;
    }
    const upload = new Upload(request, draft);
    this.#upload = upload;
    const { p = 0 } = request;
    this.#withUpload(request.id, () => upload.announce(p, undefined));
    if (this.#upload === upload && upload.complete) this.#finishUpload(upload);
  }

  #finishUpload(upload: Upload): void {
    this.#upload = undefined;
    const { request, draft } = upload;
    this.#answers.answer(request, () => {
      const bytes = upload.finish();
      if (request.t === 'open') return { result: this.#open(bytes) };
      if (draft === undefined) throw new Error('unreachable: an upload without a draft');
      return { result: request.t === 'place' ? this.#place(request, draft) : this.#write(request, draft) };
    });
    upload.discard();
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
      this.#dropUpload();
      this.#answers.fail(unfinished, new Refusal('invalid', 'the parts were not all sent'));
    }
    if (isAudited(request.t) && this.#audit.full && request.t !== 'quiesce' && request.t !== 'collect') {
      this.#answers.fail(request, new Refusal('audit-full', 'the audit log is full'));
      return;
    }
    switch (request.t) {
      case 'open':
      case 'place':
      case 'write':
        this.#beginUpload(request);
        return;
      case 'seal':
        this.#answers.answer(request, () => ({ result: this.#seal() }));
        return;
      case 'probe':
        this.#probe(request);
        return;
      case 'read':
        this.#read(request);
        return;
      case 'run':
        this.#run(request);
        return;
      case 'deny':
        this.#answers.answer(request, () => ({ result: {} }));
        return;
      case 'quiesce':
        void this.#quiesce(request);
        return;
      case 'manifest':
        this.#answers.answer(request, () => {
          const bytes = Buffer.from(canonicalJson(this.#workspace.report()));
          return { result: { size: bytes.length, sha256: sha256(bytes) }, bytes };
        });
        return;
      case 'collect':
        this.#collect(request);
        return;
      case 'audit':
        this.#answers.answer(request, () => {
          const bytes = this.#audit.read();
          const { entries, head } = this.#audit;
          return { result: { size: bytes.length, sha256: sha256(bytes), entries, head }, bytes };
        });
        return;
    }
  }

  #open(bytes: Buffer): ExecutorResult<'open'> {
    const policy = checkedPolicy(bytes);
    // Links first: a scratch folder may lie in a node_modules.
    this.#workspace.linkModules(policy.modules ?? [], dependencyPaths.root);
    this.#workspace.makeScratch(policy.scratch);
    this.#policy = policy;
    this.#readable = new Set<string>([...policy.readable, ...policy.writable]);
    this.#writable = new Set<string>(policy.writable);
    this.#phase = 'placing';
    return { policy: digestOf(policy) };
  }

  #checkPlace(path: RelPath): void {
    this.#expectPhase('placing');
    checkPath(path);
    if (this.#policy?.scratch.some((folder) => isWithin(path, folder))) {
      throw new Refusal('denied', 'lies in a scratch folder');
    }
    if (this.#placed.size >= channelBounds.files) throw new Refusal('too-large', 'too many files');
  }

  #place(request: Extract<ExecutorRequest, { t: 'place' }>, draft: Draft): ExecutorResult<'place'> {
    const { path, mode, size, sha256: hash } = request;
    this.#workspace.place(path, mode, draft);
    this.#placedBytes += size;
    this.#placed.set(path, { path, mode, size, sha256: hash });
    return {};
  }

  #seal(): ExecutorResult<'seal'> {
    this.#expectPhase('placing');
    this.#phase = 'ready';
    return { files: this.#placed.size, bytes: this.#placedBytes, manifest: manifestDigest([...this.#placed.values()]) };
  }

  #checkWrite(path: RelPath): void {
    this.#expectPhase('ready');
    checkPath(path);
    if (!this.#writable.has(path)) throw new Refusal('denied', 'not a writable file');
  }

  #write(request: Extract<ExecutorRequest, { t: 'write' }>, draft: Draft): ExecutorResult<'write'> {
    // Again: bytes take their time, and the work may have been ended meanwhile.
    this.#checkWrite(request.path);
    this.#workspace.write(request.path, draft, request.expected);
    // Read back: the answer is what is there, not what was sent.
    const found = this.#workspace.entry(request.path);
    if (found.sha256 !== request.sha256) throw new Refusal('io', 'other bytes were read back');
    return { sha256: found.sha256 };
  }

  #mayRead(path: string, by: 'agent' | 'person'): boolean {
    // Both hold only paths that have passed the rules of paths.
    return this.#readable.has(path) || (by === 'person' && this.#placed.has(path));
  }

  #read(request: Extract<ExecutorRequest, { t: 'read' }>): void {
    let file: OpenFile;
    try {
      this.#expectPhase('ready', 'quiesced', 'held');
      if (!this.#mayRead(request.path, request.by)) throw new Refusal('denied', 'not a readable file');
      if (this.#openFiles >= channelBounds.openFiles) throw new Refusal('busy', 'too many files wait to be taken');
      file = this.#workspace.open(request.path);
    } catch (error) {
      this.#answers.fail(request, error);
      return;
    }
    const { size, mode } = file;
    if (size <= channelBounds.chunkBytes) {
      this.#answers.answer(request, () => {
        const bytes = file.read(Buffer.allocUnsafeSlow(size + 1));
        return { result: { size, sha256: sha256(bytes), mode }, bytes };
      });
      file.close();
      return;
    }
    const carry = this.#answers.carryFile(request.id, file, null);
    this.#openFiles += 1;
    const over = (): void => {
      this.#openFiles -= 1;
      file.close();
    };
    this.#answers.stream(
      request,
      mapped(carry, (hash) => ({ result: { size, sha256: hash, mode } })),
      over,
    );
  }

  #collect(request: Extract<ExecutorRequest, { t: 'collect' }>): void {
    try {
      this.#expectPhase('quiesced', 'held');
    } catch (error) {
      this.#answers.fail(request, error);
      return;
    }
    this.#answers.stream(request, this.#collected(request.id), () => {});
  }

  /** One look at everything: what the report says of a writable file is what was sent of it. */
  *#collected(id: number): Generator<OutgoingFrame, Answer<'collect'>> {
    const files: FileEntry[] = [];
    const odd: string[] = [];
    let whole = true;
    for (const found of this.#workspace.walk()) {
      if (found.kind === 'cut') whole = false;
      else if (found.kind === 'odd') odd.push(found.path);
      else if (!this.#writable.has(found.path)) files.push(this.#workspace.entry(found.path));
      else {
        const file = this.#workspace.open(found.path);
        try {
          const { size, mode } = file;
          const hash = yield* this.#answers.carryFile(id, file, { path: found.path, mode });
          files.push({ path: found.path, mode, size, sha256: hash });
        } finally {
          file.close();
        }
      }
    }
    const report: WorkspaceReport = { files, odd, whole };
    const bytes = Buffer.from(canonicalJson(report));
    return { result: { size: bytes.length, sha256: sha256(bytes) }, bytes };
  }

  #run(request: Extract<ExecutorRequest, { t: 'run' }>): void {
    const declared = this.#policy?.commands.find(({ id }) => id === request.command);
    try {
      this.#expectPhase('ready');
      if (declared === undefined) throw new Refusal('denied', 'not a declared command');
      if (this.#running !== undefined) throw new Refusal('busy', 'another command runs');
      const mark = this.#answers.record(request, 'started', {});
      this.#answers.say({ t: 'started', id: request.id, a: mark });
    } catch (error) {
      this.#answers.fail(request, error);
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
      if (startedUnder === this.#attached?.epoch) this.#answers.answer(request, () => ({ result, bytes: output }));
      else this.#answers.record(request, 'done', result);
    });
    finished.catch((error: unknown) => {
      this.#running = undefined;
      this.#answers.fail(request, error);
    });
  }

  async #quiesce(request: Extract<ExecutorRequest, { t: 'quiesce' }>): Promise<void> {
    if (this.#phase !== 'held') this.#phase = 'quiesced';
    const running = this.#running;
    running?.command.stop('cancelled');
    await running?.command.result;
    await this.#firstReport?.catch(() => {});
    await this.#probing;
    const swept = await sweepWorkers();
    this.#sayBeat();
    this.#answers.answer(request, () => ({ result: { empty: swept.empty, killed: swept.found, ms: swept.ms } }));
  }

  #probe(request: Extract<ExecutorRequest, { t: 'probe' }>): void {
    if (this.#running !== undefined || this.#probing !== undefined) {
      this.#answers.fail(request, new Refusal('busy', 'another process runs'));
      return;
    }
    const report = this.#firstReport ?? insideReport();
    this.#firstReport = undefined;
    this.#probing = report
      .then(
        (report) => {
          const bytes = Buffer.from(canonicalJson(report));
          this.#answers.answer(request, () => ({ result: { size: bytes.length, sha256: sha256(bytes) }, bytes }));
        },
        (error: unknown) => this.#answers.fail(request, error),
      )
      .finally(() => {
        this.#probing = undefined;
      });
  }

  #expectPhase(...allowed: readonly ExecutorPhase[]): void {
    if (!allowed.includes(this.#phase)) throw new Refusal('phase', `the sandbox is ${this.#phase}`);
  }
}

/** The same frames, with another end. */
function* mapped<A, B>(frames: Generator<OutgoingFrame, A>, change: (end: A) => B): Generator<OutgoingFrame, B> {
  return change(yield* frames);
}
