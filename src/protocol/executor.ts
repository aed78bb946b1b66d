import * as z from 'zod';
import { CommandEnd } from './contract.ts';
import { canonicalJson, digestOf, sha256 } from './hash.ts';
import { FileEntry, RelPath, Sha256 } from './primitives.ts';

/**
 * The frames between the Kernel and the supervisor in the container: one JSON object a line over the attached stream.
 * Both sides parse with these schemas and trust nothing that does not pass them.
 */

/** Rises with every incompatible change of a frame, of an audit entry or of a path inside the image. */
export const executorProtocol = 1;

/** Bounds of the channel. Both sides enforce them; a peer that breaks one is refused, never served in part. */
export const channelBounds = {
  /** Longest line in bytes, newline included: one chunk in base64 (128 KiB) and room for its envelope. */
  frameBytes: 160 * 1024,
  /** Raw bytes in one data frame. */
  chunkBytes: 96 * 1024,
  /** Largest file that is placed, read, written or collected. A quarter of the workspace. */
  fileBytes: 16 * 1024 * 1024,
  /** Largest policy (paths and commands as JSON): some ten thousand paths. */
  policyBytes: 8 * 1024 * 1024,
  /** Files in a workspace: below its inode limit, so that folders and temporaries still fit. */
  files: 16_000,
  /** Bytes that the supervisor keeps for answers that were not taken yet. */
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

const hex32 = z.string().regex(/^[0-9a-f]{32}$/);
const requestId = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const count = z.number().int().nonnegative();
const base64 = z
  .string()
  .max(Math.ceil(channelBounds.chunkBytes / 3) * 4)
  .regex(/^[A-Za-z0-9+/]*={0,2}$/);
const mode = z.number().int().min(0).max(0o777);

export const Policy = z.strictObject({
  /** What `read` by the agent is allowed for. */
  readable: z.array(RelPath).max(channelBounds.files),
  writable: z.array(RelPath).max(256),
  scratch: z.array(RelPath).max(64),
  /** Folders `node_modules` that get one link to each package that the image has for them; absent where there are none. */
  modules: z.array(RelPath).max(64).optional(),
  commands: z
    .array(
      z.strictObject({
        id: z.string().min(1).max(80),
        argv: z.array(z.string().max(4096)).min(1).max(64),
        timeoutMs: z.number().int().min(1).max(3_600_000),
        captureBytes: z
          .number()
          .int()
          .min(1)
          .max(4 * 1024 * 1024),
        env: z.record(z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/), z.string().max(1024)),
      }),
    )
    .max(64),
});
export type Policy = z.infer<typeof Policy>;

/** Every frame of the Kernel: version, nonce of the container, epoch, and the secret of this attachment. */
const toEnvelope = {
  v: z.literal(executorProtocol),
  n: hex32,
  e: count,
  /**
   * Chosen by each attaching client and never echoed: other attached clients see what the supervisor says, not what it
   * is told, so they can't speak in this one's name.
   */
  k: hex32,
};

export const ToExecutor = z.discriminatedUnion('t', [
  z.strictObject({ ...toEnvelope, t: z.literal('hello') }),
  z.strictObject({ ...toEnvelope, t: z.literal('beat') }),
  z.strictObject({
    ...toEnvelope,
    t: z.literal('open'),
    id: requestId,
    size: count.max(channelBounds.policyBytes),
    sha256: Sha256,
  }),
  z.strictObject({
    ...toEnvelope,
    t: z.literal('place'),
    id: requestId,
    path: RelPath,
    mode,
    size: count.max(channelBounds.fileBytes),
    sha256: Sha256,
  }),
  z.strictObject({ ...toEnvelope, t: z.literal('seal'), id: requestId }),
  z.strictObject({ ...toEnvelope, t: z.literal('probe'), id: requestId }),
  z.strictObject({
    ...toEnvelope,
    t: z.literal('read'),
    id: requestId,
    path: RelPath,
    by: z.enum(['agent', 'person']),
  }),
  z.strictObject({
    ...toEnvelope,
    t: z.literal('write'),
    id: requestId,
    path: RelPath,
    expected: Sha256.nullable(),
    size: count.max(channelBounds.fileBytes),
    sha256: Sha256,
  }),
  /** A part of what an `open`, `place` or `write` announced; parts follow their request at once and in order. */
  z.strictObject({ ...toEnvelope, t: z.literal('data'), id: requestId, seq: count, data: base64 }),
  z.strictObject({ ...toEnvelope, t: z.literal('run'), id: requestId, command: z.string().min(1).max(80) }),
  z.strictObject({ ...toEnvelope, t: z.literal('cancel'), id: requestId }),
  z.strictObject({
    ...toEnvelope,
    t: z.literal('deny'),
    id: requestId,
    request: z.string().max(4096),
    reason: z.string().max(1024),
  }),
  z.strictObject({ ...toEnvelope, t: z.literal('quiesce'), id: requestId }),
  z.strictObject({ ...toEnvelope, t: z.literal('manifest'), id: requestId }),
  z.strictObject({ ...toEnvelope, t: z.literal('take'), id: requestId, path: RelPath }),
  z.strictObject({ ...toEnvelope, t: z.literal('audit'), id: requestId }),
]);
export type ToExecutor = z.infer<typeof ToExecutor>;
/** A frame that asks for an answer. */
export type ExecutorRequest = Exclude<ToExecutor, { t: 'hello' | 'beat' | 'data' | 'cancel' }>;
export type ExecutorOp = ExecutorRequest['t'];

/** Answers that carry bytes say how many and their hash; the data frames come before. */
const carried = { size: count, sha256: Sha256 };

/** What each request is answered with. */
export const executorResults = {
  open: z.strictObject({ policy: Sha256 }),
  place: z.strictObject({}),
  /** Digest of the canonical manifest of everything placed. */
  seal: z.strictObject({ files: count, bytes: count, manifest: Sha256 }),
  /** An `InsideReport` as JSON. */
  probe: z.strictObject(carried),
  read: z.strictObject({ ...carried, mode }),
  write: z.strictObject({ sha256: Sha256 }),
  run: z.strictObject({
    ...carried,
    end: CommandEnd,
    cut: z.boolean(),
    durationMs: z.number().nonnegative(),
    peakMemory: count.nullable(),
    killed: count,
    /** Two scans of the process table in a row without a worker process. */
    empty: z.boolean(),
  }),
  deny: z.strictObject({}),
  quiesce: z.strictObject({ empty: z.boolean(), killed: count, ms: z.number().nonnegative() }),
  /** A `WorkspaceReport` as JSON. */
  manifest: z.strictObject(carried),
  take: z.strictObject({ ...carried, mode }),
  audit: z.strictObject({ ...carried, entries: count, head: Sha256 }),
} as const satisfies Record<ExecutorOp, z.ZodType>;
export type ExecutorResult<O extends ExecutorOp> = z.infer<(typeof executorResults)[O]>;

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
export const ExecutorFailure = z.enum(executorFailures);
export type ExecutorFailure = z.infer<typeof ExecutorFailure>;

export const executorPhases = ['new', 'placing', 'ready', 'quiesced', 'held'] as const;
export const ExecutorPhase = z.enum(executorPhases);
export type ExecutorPhase = z.infer<typeof ExecutorPhase>;

/** Number, milliseconds since the supervisor's start, and chain hash of an audit entry. */
export const AuditMark = z.strictObject({ n: count, at: z.number().nonnegative(), h: Sha256 });
export type AuditMark = z.infer<typeof AuditMark>;

/** How full a writable area is; bytes and files. Null where it could not be read. */
export const AreaUse = z.strictObject({
  path: z.string().max(64),
  size: count.nullable(),
  used: count.nullable(),
  inodes: count.nullable(),
  inodesUsed: count.nullable(),
});
export type AreaUse = z.infer<typeof AreaUse>;

/** What the container uses at one moment. Bytes and microseconds; null is "unavailable", never 0. */
export const ResourceSample = z.strictObject({
  /** Milliseconds since the supervisor began. */
  at: count,
  memory: count.nullable(),
  /** Highest use of the container's life so far, by the kernel. */
  memoryPeak: count.nullable(),
  /** Highest use seen since the last sample. */
  memoryHighest: count.nullable(),
  oomKills: count.nullable(),
  cpuUs: count.nullable(),
  throttledUs: count.nullable(),
  pids: count.nullable(),
  pidsHighest: count.nullable(),
  pidsRefused: count.nullable(),
  areas: z.array(AreaUse).max(8),
});
export type ResourceSample = z.infer<typeof ResourceSample>;

export const frameRefusals = [
  'not-json',
  'too-long',
  'malformed',
  'wrong-version',
  'wrong-nonce',
  'stale-epoch',
  'not-attached',
] as const;
export const FrameRefusal = z.enum(frameRefusals);
export type FrameRefusal = z.infer<typeof FrameRefusal>;

const fromEnvelope = { v: z.literal(executorProtocol), n: hex32, e: count };

export const FromExecutor = z.discriminatedUnion('t', [
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('welcome'),
    /** Hash of the executor's own file, read at its start. */
    executor: Sha256,
    node: z.string().max(64),
    phase: ExecutorPhase,
    entries: count,
    head: Sha256,
  }),
  /** A frame was not accepted. Not an answer: the frame's author may be somebody else. */
  z.strictObject({ ...fromEnvelope, t: z.literal('refused'), reason: FrameRefusal, a: AuditMark.nullable() }),
  z.strictObject({ ...fromEnvelope, t: z.literal('beat'), phase: ExecutorPhase, use: ResourceSample }),
  /** A command has been started; its answer follows. */
  z.strictObject({ ...fromEnvelope, t: z.literal('started'), id: requestId, a: AuditMark }),
  z.strictObject({ ...fromEnvelope, t: z.literal('data'), id: requestId, seq: count, data: base64 }),
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('done'),
    id: requestId,
    /** Parsed with `executorResults` of the request's kind. */
    result: z.record(z.string(), z.unknown()),
    a: AuditMark.nullable(),
  }),
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('fail'),
    id: requestId,
    code: ExecutorFailure,
    message: z.string().max(1024),
    a: AuditMark.nullable(),
  }),
]);
export type FromExecutor = z.infer<typeof FromExecutor>;

/** The workspace as the supervisor sees it; `odd` names what is no regular file, or has a foreign owner or links. */
export const WorkspaceReport = z.strictObject({
  files: z.array(FileEntry).max(20_000),
  odd: z.array(z.string().max(2048)).max(256),
  /** False where a bound ended the walk. */
  whole: z.boolean(),
});
export type WorkspaceReport = z.infer<typeof WorkspaceReport>;

const capabilitySets = z.strictObject({
  effective: z.string(),
  permitted: z.string(),
  bounding: z.string(),
  ambient: z.string(),
});
const ulimits = z.record(z.string(), z.strictObject({ soft: z.string(), hard: z.string() }));
const processReport = z.strictObject({
  uid: z.string(),
  gid: z.string(),
  groups: z.string(),
  noNewPrivileges: z.boolean(),
  seccomp: z.string(),
  capabilities: capabilitySets,
  ulimits,
  oomScoreAdj: z.number().int(),
  nice: z.number().int(),
});
export type ProcessReport = z.infer<typeof processReport>;

/** What the supervisor reads about its own cage. Null where a file could not be read. */
export const InsideReport = z.strictObject({
  cgroup: z.strictObject({
    version: z.union([z.literal(1), z.literal(2)]).nullable(),
    memory: z.string().nullable(),
    memoryAndSwap: z.string().nullable(),
    hostSwap: z.string().nullable(),
    pids: z.string().nullable(),
    cpu: z.string().nullable(),
  }),
  mounts: z.array(
    z.strictObject({
      target: z.string(),
      type: z.string(),
      options: z.array(z.string()),
      size: z.number().nullable(),
      inodes: z.number().nullable(),
      mode: z.string().nullable(),
      owner: z.number().nullable(),
    }),
  ),
  interfaces: z.array(z.string()).nullable(),
  devices: z.array(z.string()).nullable(),
  environment: z.array(z.string()),
  supervisor: processReport,
  /** Of a process started exactly as commands are; null where it could not be started. */
  worker: processReport.nullable(),
  /** Return values of the probed system calls, by name: negative is −errno. Null where the probe did not run. */
  syscalls: z.record(z.string(), z.number()).nullable(),
});
export type InsideReport = z.infer<typeof InsideReport>;

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

/** The next head. Both sides compute it from what they themselves sent or received, so a head vouches for content. */
export function auditNext(head: Sha256, entry: AuditEntry): Sha256 {
  return sha256(`${head}\n${canonicalJson(entry)}`);
}

/** Requests whose answer gets an audit entry. Placing is vouched for by `seal`; reading the log can't be in it. */
export function isAudited(op: ExecutorOp): boolean {
  return op !== 'place' && op !== 'audit' && op !== 'probe';
}

/** What the audit says about a request: its parameters without the envelope. */
export function auditRequest(request: ExecutorRequest): Readonly<Record<string, unknown>> {
  const { v: _v, n: _n, e: _e, k: _k, t: _t, id: _id, ...parameters } = request;
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

const AuditLine = z.strictObject({
  n: count,
  at: z.number(),
  id: z.number().nullable(),
  op: z.string(),
  phase: z.enum(['started', 'done', 'failed', 'refused']),
  request: z.record(z.string(), z.unknown()),
  result: z.record(z.string(), z.unknown()),
  h: Sha256,
});

function parseAuditLine(line: string): { entry: AuditEntry; h: Sha256 } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  const parsed = AuditLine.safeParse(value);
  if (!parsed.success) return undefined;
  const { h, ...entry } = parsed.data;
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
