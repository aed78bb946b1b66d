import * as z from 'zod';
import { CommandEnd } from './contract.ts';
import {
  channelBounds,
  executorFailures,
  executorPhases,
  executorProtocol,
  frameRefusals,
  type ExecutorOp,
} from './executor.ts';
import { FileEntry, RelPath, Sha256 } from './primitives.ts';

/**
 * What the supervisor in the container says, as the Kernel checks it. The executor takes only the types from here: what
 * it is told is in `executor.ts`.
 */

const hex32 = z.string().regex(/^[0-9a-f]{32}$/);
const requestId = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const count = z.number().int().nonnegative();
const mode = z.number().int().min(0).max(0o777);
const AuditMark = z.strictObject({ n: count, at: z.number().nonnegative(), h: Sha256 });

/** Answers that carry bytes say how many and their hash; the bytes come before, or behind the answer itself. */
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
  /** A `WorkspaceReport` as JSON; the files come before it, each announced by its `part`. */
  collect: z.strictObject(carried),
  audit: z.strictObject({ ...carried, entries: count, head: Sha256 }),
} as const satisfies Record<ExecutorOp, z.ZodType>;
export type ExecutorResult<O extends ExecutorOp> = z.infer<(typeof executorResults)[O]>;

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

const fromEnvelope = { v: z.literal(executorProtocol), n: hex32, e: count };
/** How many raw bytes follow the frame. */
const behind = z.number().int().min(1).max(channelBounds.chunkBytes);

export const FromExecutor = z.discriminatedUnion('t', [
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('welcome'),
    /** Hash of the executor's own file, read at its start. */
    executor: Sha256,
    node: z.string().max(64),
    phase: z.enum(executorPhases),
    entries: count,
    head: Sha256,
  }),
  /** A frame was not accepted. Not an answer: the frame's author may be somebody else. */
  z.strictObject({ ...fromEnvelope, t: z.literal('refused'), reason: z.enum(frameRefusals), a: AuditMark.nullable() }),
  z.strictObject({ ...fromEnvelope, t: z.literal('beat'), phase: z.enum(executorPhases), use: ResourceSample }),
  /** A command has been started; its answer follows. */
  z.strictObject({ ...fromEnvelope, t: z.literal('started'), id: requestId, a: AuditMark }),
  /** So many bytes come for an answer, behind this frame and the `data` after it: of a file, or what `done` speaks of. */
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('part'),
    id: requestId,
    size: count.max(channelBounds.fileBytes),
    file: z.strictObject({ path: RelPath, mode }).nullable(),
    p: behind.optional(),
  }),
  z.strictObject({ ...fromEnvelope, t: z.literal('data'), id: requestId, seq: count, p: behind }),
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('done'),
    id: requestId,
    /** Parsed with `executorResults` of the request's kind. */
    result: z.record(z.string(), z.unknown()),
    a: AuditMark.nullable(),
    /** The whole of what it speaks of follows, where that is little enough for one frame. */
    p: behind.optional(),
  }),
  z.strictObject({
    ...fromEnvelope,
    t: z.literal('fail'),
    id: requestId,
    code: z.enum(executorFailures),
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
