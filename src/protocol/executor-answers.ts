import * as z from 'zod';
import type { CommandEnd } from './contract.ts';
import {
  channelBounds,
  executorFailures,
  executorPhases,
  executorProtocol,
  frameRefusals,
  type ExecutorOp,
} from './executor.ts';
import { FileEntry, type RelPath, type Sha256 } from './primitives.ts';
import {
  amount,
  anything,
  byKind,
  finite,
  flag,
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
  type Shape,
} from './shape.ts';

/**
 * What the supervisor in the container says, as the Kernel checks it: frames by shapes, since each tool call has one;
 * reports, which come a few times in a sandbox's life, by schemas. The executor takes only the types from here: what it
 * is told is in `executor.ts`.
 */

const hex32 = text({ max: 32, matches: /^[0-9a-f]{32}$/ });
const hash = text<Sha256>({ max: 64, matches: /^[0-9a-f]{64}$/ });
const requestId = integer(1);
const count = integer(0);
const mode = integer(0, 0o777);
/** Of words that only people read; a frame bounds it. */
const words = text({ max: channelBounds.frameBytes });
const AuditMark = object({ n: count, at: amount, h: hash });

const Ending: Shape<CommandEnd> = byKind('kind', {
  exit: object({ kind: literal('exit'), code: integer(Number.MIN_SAFE_INTEGER) }),
  signal: object({ kind: literal('signal'), signal: words }),
  timeout: object({ kind: literal('timeout'), afterMs: finite }),
  overflow: object({ kind: literal('overflow'), limitBytes: finite }),
  oom: object({ kind: literal('oom') }),
  'no-space': object({ kind: literal('no-space'), area: words }),
  pids: object({ kind: literal('pids') }),
  hoard: object({ kind: literal('hoard'), of: oneOf(['sockets', 'locks']) }),
  cancelled: object({ kind: literal('cancelled') }),
  'spawn-failed': object({ kind: literal('spawn-failed'), errno: words }),
  unknown: object({ kind: literal('unknown'), reason: words }),
} satisfies Record<CommandEnd['kind'], Shape<CommandEnd>>);

/** Answers that carry bytes say how many and their hash; the bytes come before, or behind the answer itself. */
const carried = { size: count, sha256: hash };

const nothing: Shape<Readonly<Record<string, never>>> = object({});

/** What each request is answered with. */
export const executorResults = {
  open: object({ policy: hash }),
  place: nothing,
  /** Digest of the canonical manifest of everything placed. */
  seal: object({ files: count, bytes: count, manifest: hash }),
  /** An `InsideReport` as JSON. */
  probe: object(carried),
  read: object({ ...carried, mode }),
  write: object({ sha256: hash }),
  run: object({
    ...carried,
    end: Ending,
    cut: flag,
    durationMs: amount,
    peakMemory: nullable(count),
    killed: count,
    /** Two scans of the process table in a row without a worker process. */
    empty: flag,
  }),
  deny: nothing,
  quiesce: object({ empty: flag, killed: count, ms: amount }),
  /** A `WorkspaceReport` as JSON. */
  manifest: object(carried),
  /** A `WorkspaceReport` as JSON; the files come before it, each announced by its `part`. */
  collect: object(carried),
  audit: object({ ...carried, entries: count, head: hash }),
} as const satisfies Record<ExecutorOp, Shape<unknown>>;
export type ExecutorResult<O extends ExecutorOp> = Fitting<(typeof executorResults)[O]>;

/** How full a writable area is; bytes and files. Null where it could not be read. */
const AreaUse = object({
  path: text({ max: 64 }),
  size: nullable(count),
  used: nullable(count),
  inodes: nullable(count),
  inodesUsed: nullable(count),
});
export type AreaUse = Fitting<typeof AreaUse>;

/** What the container uses at one moment. Bytes and microseconds; null is "unavailable", never 0. */
export const ResourceSample = object({
  /** Milliseconds since the supervisor began. */
  at: count,
  memory: nullable(count),
  /** Highest use of the container's life so far, by the kernel. */
  memoryPeak: nullable(count),
  /** Highest use seen since the last sample. */
  memoryHighest: nullable(count),
  oomKills: nullable(count),
  cpuUs: nullable(count),
  throttledUs: nullable(count),
  pids: nullable(count),
  pidsHighest: nullable(count),
  pidsRefused: nullable(count),
  areas: list(AreaUse, { max: 8 }),
});
export type ResourceSample = Fitting<typeof ResourceSample>;

const fromEnvelope = { v: literal(executorProtocol), n: hex32, e: count };
/** How many raw bytes follow the frame. */
const behind = integer(1, channelBounds.chunkBytes);

export const FromExecutor = byKind('t', {
  welcome: object({
    ...fromEnvelope,
    t: literal('welcome'),
    /** Hash of the executor's own file, read at its start. */
    executor: hash,
    node: text({ max: 64 }),
    phase: oneOf(executorPhases),
    entries: count,
    head: hash,
  }),
  /** A frame was not accepted. Not an answer: the frame's author may be somebody else. */
  refused: object({ ...fromEnvelope, t: literal('refused'), reason: oneOf(frameRefusals), a: nullable(AuditMark) }),
  beat: object({ ...fromEnvelope, t: literal('beat'), phase: oneOf(executorPhases), use: ResourceSample }),
  /** A command has been started; its answer follows. */
  started: object({ ...fromEnvelope, t: literal('started'), id: requestId, a: AuditMark }),
  /** So many bytes come for an answer, behind this frame and the `data` after it: of a file, or what `done` speaks of. */
  part: object({
    ...fromEnvelope,
    t: literal('part'),
    id: requestId,
    size: integer(0, channelBounds.fileBytes),
    file: nullable(object({ path: text<RelPath>({ min: 1, max: 1024 }), mode })),
    p: optional(behind),
  }),
  data: object({ ...fromEnvelope, t: literal('data'), id: requestId, seq: count, p: behind }),
  done: object({
    ...fromEnvelope,
    t: literal('done'),
    id: requestId,
    /** Has the shape that `executorResults` names for the request's kind. */
    result: record(/^/, anything),
    a: nullable(AuditMark),
    /** The whole of what it speaks of follows, where that is little enough for one frame. */
    p: optional(behind),
  }),
  fail: object({
    ...fromEnvelope,
    t: literal('fail'),
    id: requestId,
    code: oneOf(executorFailures),
    message: text({ max: 1024 }),
    a: nullable(AuditMark),
  }),
});
export type FromExecutor = Fitting<typeof FromExecutor>;

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
