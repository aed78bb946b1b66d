import { canonicalJson, digestOf, sha256 } from './hash.ts';
import type { FileEntry, RelPath, Sha256 } from './primitives.ts';
import {
  anything,
  byKind,
  finite,
  fits,
  integer,
  list,
  literal,
  nullable,
  object,
  oneOf,
  optional,
  record,
  text,
  type Fitting,
} from './shape.ts';

/**
 * What the Kernel says to the supervisor in the container, and what both of them know: one JSON object a line over the
 * attached stream, and behind a frame that has a member `p` exactly so many raw bytes and a newline (frame-reader.ts).
 * What the supervisor answers is in `executor-answers.ts`. Both sides check everything and trust nothing that does not
 * fit. The executor carries this file: it has no packages (shape.ts).
 */

/** Rises with every incompatible change of a frame, of an audit entry or of a path inside the image. */
export const executorProtocol = 2;

/** Bounds of the channel. Both sides enforce them; a peer that breaks one is refused, never served in part. */
export const channelBounds = {
  /** Longest line in bytes, newline not counted: an escaped denial (5 KiB of text) or a path with its hashes. */
  frameBytes: 64 * 1024,
  /**
   * Raw bytes behind one frame of the supervisor. Four times what a pipe takes at once, so that both ends work side by
   * side; larger ones measured no faster.
   */
  chunkBytes: 256 * 1024,
  /** Raw bytes behind one frame of the Kernel: what a client that attaches again has to fill up (`resync`). */
  upChunkBytes: 64 * 1024,
  /** Largest file that is placed, read, written or collected: the workspace of the profile `standard`. */
  fileBytes: 512 * 1024 * 1024,
  /** Everything that is carried for one collection: a full workspace of the profile `standard`, and the report. */
  collectionBytes: 528 * 1024 * 1024,
  /** Largest policy (paths and commands as JSON): some ten thousand paths. */
  policyBytes: 8 * 1024 * 1024,
  /** Any other answer: a manifest of 20,000 files, the audit, a command's output. */
  reportBytes: 16 * 1024 * 1024,
  /** Files in a workspace: below its inode limit, so that folders and temporaries still fit. */
  files: 16_000,
  /** Large files that are open because they wait to be sent, or are being sent. */
  openFiles: 64,
  /** Bytes that the supervisor keeps in memory for answers that were not taken yet; files are read as they are sent. */
  queuedBytes: 48 * 1024 * 1024,
  /** The audit log; when it is full nothing more is done, so that nothing happens unrecorded. */
  auditBytes: 8 * 1024 * 1024,
  /** Refused frames that are recorded; more are counted only, so that noise can't fill the audit. */
  recordedRefusals: 256,
  /** Interval of heartbeats, both ways. */
  beatMs: 2_000,
  /** Design 10: no frame of the Kernel for this long ⇒ the workers are ended; also the Kernel's patience. */
  silenceMs: 15_000,
  /** Design 10: how long the bytes are held for a Kernel that comes back. */
  holdMs: 24 * 60 * 60 * 1000,
} as const;

/** Where things are inside the image; fixed by `executorProtocol`. */
export const insidePaths = {
  workspace: '/workspace',
  tmp: '/tmp',
  home: '/home/worker',
  exchange: '/exchange',
  audit: '/exchange/audit.ndjson',
  /** There once the supervisor holds at the request of the reader of last resort. */
  held: '/exchange/held',
  node: '/opt/escrow/node',
  executor: '/opt/escrow/executor.cjs',
  launcher: '/opt/escrow/launch',
  syscallProbe: '/opt/escrow/probe',
} as const;

/** The uid and gid that commands run as. */
export const workerId = 10_001;

/**
 * Packages of the image, owned by root (docs/images.md). What lies in a folder `node_modules` of the workspace are links
 * to the same path below `root`.
 */
export const dependencyPaths = {
  root: '/deps',
  /** A link to the folder of the contract's lock file, so that Node finds packages from everywhere. */
  modules: '/node_modules',
  venv: '/deps/venv',
} as const;

const hex32 = text({ max: 32, matches: /^[0-9a-f]{32}$/ });
const hash = text<Sha256>({ max: 64, matches: /^[0-9a-f]{64}$/ });
/** What `paths.ts` says about it is asked where it is used. */
const path = text<RelPath>({ min: 1, max: 1024 });
const requestId = integer(1);
const count = integer(0);
const fileMode = integer(0, 0o777);

export const Policy = object({
  /** What `read` by the agent is allowed for. */
  readable: list(path, { max: channelBounds.files }),
  writable: list(path, { max: 256 }),
  scratch: list(path, { max: 64 }),
  /** Folders `node_modules` that get one link to each package that the image has for them; absent where there are none. */
  modules: optional(list(path, { max: 64 })),
  commands: list(
    object({
      id: text({ min: 1, max: 80 }),
      argv: list(text({ max: 4096 }), { min: 1, max: 64 }),
      timeoutMs: integer(1, 3_600_000),
      captureBytes: integer(1, 4 * 1024 * 1024),
      env: record(/^[A-Z][A-Z0-9_]{0,63}$/, text({ max: 1024 })),
    }),
    { max: 64 },
  ),
});
export type Policy = Fitting<typeof Policy>;

/** Every frame of the Kernel: version, nonce of the container, epoch, and the secret of this attachment. */
const toEnvelope = {
  v: literal(executorProtocol),
  n: hex32,
  e: count,
  /**
   * Chosen by each attaching client and never echoed: other attached clients see what the supervisor says, not what it
   * is told, so they can't speak in this one's name.
   */
  k: hex32,
};
/** How many raw bytes follow the frame. */
const behind = integer(1, channelBounds.upChunkBytes);

export const ToExecutor = byKind('t', {
  hello: object({ ...toEnvelope, t: literal('hello') }),
  beat: object({ ...toEnvelope, t: literal('beat') }),
  open: object({
    ...toEnvelope,
    t: literal('open'),
    id: requestId,
    size: integer(0, channelBounds.policyBytes),
    sha256: hash,
    p: optional(behind),
  }),
  place: object({
    ...toEnvelope,
    t: literal('place'),
    id: requestId,
    path,
    mode: fileMode,
    size: integer(0, channelBounds.fileBytes),
    sha256: hash,
    p: optional(behind),
  }),
  seal: object({ ...toEnvelope, t: literal('seal'), id: requestId }),
  probe: object({ ...toEnvelope, t: literal('probe'), id: requestId }),
  read: object({ ...toEnvelope, t: literal('read'), id: requestId, path, by: oneOf(['agent', 'person']) }),
  write: object({
    ...toEnvelope,
    t: literal('write'),
    id: requestId,
    path,
    expected: nullable(hash),
    size: integer(0, channelBounds.fileBytes),
    sha256: hash,
    p: optional(behind),
  }),
  /** More of what an `open`, `place` or `write` announced; parts follow their request in order, no request between. */
  data: object({ ...toEnvelope, t: literal('data'), id: requestId, seq: count, p: behind }),
  run: object({ ...toEnvelope, t: literal('run'), id: requestId, command: text({ min: 1, max: 80 }) }),
  cancel: object({ ...toEnvelope, t: literal('cancel'), id: requestId }),
  deny: object({
    ...toEnvelope,
    t: literal('deny'),
    id: requestId,
    request: text({ max: 4096 }),
    reason: text({ max: 1024 }),
  }),
  quiesce: object({ ...toEnvelope, t: literal('quiesce'), id: requestId }),
  manifest: object({ ...toEnvelope, t: literal('manifest'), id: requestId }),
  /** Every writable file's bytes, and the manifest of the workspace as it was read meanwhile. */
  collect: object({ ...toEnvelope, t: literal('collect'), id: requestId }),
  audit: object({ ...toEnvelope, t: literal('audit'), id: requestId }),
});
export type ToExecutor = Fitting<typeof ToExecutor>;
/** A frame that asks for an answer. */
export type ExecutorRequest = Exclude<ToExecutor, { t: 'hello' | 'beat' | 'data' | 'cancel' }>;
export type ExecutorOp = ExecutorRequest['t'];

/**
 * What a client sends first when somebody may have spoken before it: it ends half a line, and it fills up half a
 * payload, whose hash then is wrong. Empty lines mean nothing.
 */
export const resync = '\n'.repeat(channelBounds.upChunkBytes + 1);

export const executorFailures = [
  'denied',
  'not-found',
  'conflict',
  'too-large',
  'no-space',
  'invalid',
  /** The phase does not allow it: not sealed yet, quiesced, or held after the Kernel was silent. */
  'phase',
  /** Too much is waiting, or another command runs. */
  'busy',
  'audit-full',
  'io',
] as const;
export type ExecutorFailure = (typeof executorFailures)[number];

export const executorPhases = ['new', 'placing', 'ready', 'quiesced', 'held'] as const;
export type ExecutorPhase = (typeof executorPhases)[number];

export const frameRefusals = [
  'not-json',
  'too-long',
  'malformed',
  'wrong-version',
  'wrong-nonce',
  'stale-epoch',
  'not-attached',
] as const;
export type FrameRefusal = (typeof frameRefusals)[number];

/** Number, milliseconds since the supervisor's start, and chain hash of an audit entry. */
export interface AuditMark {
  readonly n: number;
  readonly at: number;
  readonly h: Sha256;
}

/** One line of the audit log. */
export interface AuditEntry {
  readonly n: number;
  readonly at: number;
  readonly id: number | null;
  readonly op: ExecutorOp | 'frame';
  readonly phase: 'started' | 'done' | 'failed' | 'refused';
  readonly request: Readonly<Record<string, unknown>>;
  readonly result: Readonly<Record<string, unknown>>;
}

/** The head of an empty chain. */
export function auditGenesis(nonce: string): Sha256 {
  return sha256(`escrow audit ${executorProtocol} ${nonce}`);
}

/** An entry's canonical JSON; its own members are put in order here, as there is one for each tool call. */
export function auditText({ at, id, n, op, phase, request, result }: AuditEntry): string {
  const said = `"request":${canonicalJson(request)},"result":${canonicalJson(result)}`;
  return `{"at":${JSON.stringify(at)},"id":${id},"n":${n},"op":"${op}","phase":"${phase}",${said}}`;
}

/** The next head. Both sides compute it from what they themselves sent or received, so a head vouches for content. */
export function auditNext(head: Sha256, entry: AuditEntry): Sha256 {
  return auditNextText(head, auditText(entry));
}

/** The same, of an entry's canonical JSON. */
export function auditNextText(head: Sha256, entry: string): Sha256 {
  return sha256(`${head}\n${entry}`);
}

/** Requests whose answer gets an audit entry. Placing is vouched for by `seal`; reading the log can't be in it. */
export function isAudited(op: ExecutorOp): boolean {
  return op !== 'place' && op !== 'audit' && op !== 'probe';
}

/** What is the same for each request, and how a payload was cut into frames, which is nobody's business. */
const notAudited: ReadonlySet<string> = new Set(['v', 'n', 'e', 'k', 't', 'id', 'p']);

/** What the audit says about a request: its parameters without the envelope. */
export function auditRequest(request: ExecutorRequest): Readonly<Record<string, unknown>> {
  const parameters: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(request)) if (!notAudited.has(name)) parameters[name] = value;
  return parameters;
}

/**
 * Re-computes a log (one entry a line) from its genesis. A cut last line, a gap in the numbers or a line that is no
 * entry makes it `ok: false`; the entries before are returned all the same.
 */
export function replayAudit(
  log: string,
  nonce: string,
): { readonly ok: boolean; readonly entries: readonly AuditEntry[]; readonly head: Sha256 } {
  let head = auditGenesis(nonce);
  const entries: AuditEntry[] = [];
  if (log === '') return { ok: true, entries, head };
  const lines = log.split('\n');
  const whole = lines.pop() === '';
  for (const line of lines) {
    const parsed = parseAuditLine(line);
    if (parsed === undefined || parsed.entry.n !== entries.length + 1) return { ok: false, entries, head };
    const next = auditNext(head, parsed.entry);
    if (next !== parsed.h) return { ok: false, entries, head };
    head = next;
    entries.push(parsed.entry);
  }
  return { ok: whole, entries, head };
}

const AuditLine = object({
  n: count,
  at: finite,
  id: nullable(finite),
  op: text({ max: 32 }),
  phase: oneOf(['started', 'done', 'failed', 'refused']),
  request: record(/^/, anything),
  result: record(/^/, anything),
  h: hash,
});

function parseAuditLine(line: string): { entry: AuditEntry; h: Sha256 } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (!fits(AuditLine, value)) return undefined;
  const { h, ...entry } = value;
  return { entry: entry as AuditEntry, h };
}

/** Mode that a placed file really gets: readable by the worker, and executable by it where its owner may execute. */
export function placedMode(declared: number): number {
  return (declared & 0o755) | 0o444 | (declared & 0o100 ? 0o111 : 0);
}

/** Digest of a manifest, whatever the order of its files. */
export function manifestDigest(files: readonly FileEntry[]): Sha256 {
  return digestOf(files.toSorted((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0)));
}
