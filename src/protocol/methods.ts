import * as z from 'zod';
import { BaselineView, ContractDiagnostic, ContractView } from './contract.ts';
import { ImageList, ImagePlan, ImagePrune, ImageRecord } from './images.ts';
import {
  ArtefactRef,
  AttemptId,
  CandidateDigest,
  ContractDigest,
  FencingToken,
  IntegrationId,
  RelPath,
  RunId,
  SessionId,
  Sha256,
  WallTime,
} from './primitives.ts';
import { SalvagedContainer, SalvagedFile } from './salvage.ts';
import { LiveInference } from './attempt.ts';
import { EngineKind, InferenceOptions, LoopSwitches } from './binding.ts';
import { EngineApproval, KernelStatus, ModelView } from './status.ts';
import {
  AwaySummary,
  CandidateView,
  EvidenceEvent,
  IntegrationView,
  SessionSummary,
  SessionView,
  VerificationView,
  WorkspaceFile,
  WorkspaceSource,
} from './views.ts';

/** Highest protocol version this build speaks, and the lowest it still accepts. */
export const protocolVersion = 1;
export const oldestProtocolVersion = 1;

interface MethodSpec<P extends z.ZodType, R extends z.ZodType> {
  readonly params: P;
  readonly result: R;
  /** Protocol version that introduced the method. */
  readonly since: number;
  /** `write` changes state: refused while draining or with execution off. `read` never needs authority. */
  readonly access: 'read' | 'write';
}
const m = <P extends z.ZodType, R extends z.ZodType>(
  access: 'read' | 'write',
  params: P,
  result: R,
  since = 1,
): MethodSpec<P, R> => ({ params, result, since, access });

const nothing = z.strictObject({});
const absolutePath = z.string().min(1).max(4096);
const imageReference = z.string().min(1).max(256);
const reviewer = z.strictObject({ name: z.string().min(1).max(120), channel: z.enum(['window', 'tty', 'script']) });

/** Requests, client → Kernel. One entry a method; params are parsed at dispatch, results are typed. */
export const methods = {
  'kernel/status': m('read', nothing, KernelStatus),
  /** Probes engine, image and inference anew before answering. */
  'kernel/probe': m('read', nothing, KernelStatus),
  /** Settles what runs (trigger `kernel_drain`), then exits. `force` false refuses when something is unsettled. */
  'kernel/stop': m('write', z.strictObject({ settle: z.boolean() }), z.strictObject({ stopping: z.boolean() })),
  /** Recomputes every hash chain and re-hashes every artefact, in pieces; others are served meanwhile. */
  'kernel/verify': m(
    'read',
    nothing,
    z.strictObject({
      events: z.number().int(),
      broken: z.array(z.strictObject({ stream: z.string(), version: z.number().int(), reason: z.string() })),
      artefacts: z.number().int(),
      damaged: z.array(z.strictObject({ sha256: Sha256, reason: z.string() })),
    }),
  ),
  /** Copies log and artefacts of one moment. Without `folder` nothing is written: the answer says what would be. */
  'kernel/backup': m(
    'write',
    z.strictObject({ folder: absolutePath.optional() }),
    z.strictObject({
      folder: z.string().nullable(),
      events: z.number().int(),
      databaseBytes: z.number(),
      artefacts: z.number().int(),
      artefactBytes: z.number(),
    }),
  ),
  /**
   * Lets go of the bytes of sessions that ended before `before` and that nobody accepted; events stay. Without
   * `reviewer` nothing changes: the answer says what would go, and why the rest stays.
   */
  'kernel/retention': m(
    'write',
    z.strictObject({ before: WallTime, reviewer: reviewer.optional() }),
    z.strictObject({
      applied: z.boolean(),
      sessions: z.array(SessionSummary.pick({ id: true, title: true, updatedAt: true, outcome: true, decision: true })),
      artefacts: z.number().int(),
      bytes: z.number(),
      kept: z.strictObject({
        open: z.number().int(),
        accepted: z.number().int(),
        undecided: z.number().int(),
        recent: z.number().int(),
      }),
    }),
  ),
  'kernel/models': m(
    'read',
    nothing,
    z.strictObject({
      models: z.array(ModelView),
      /** Engines that could not be asked, and why: an empty list is not the same as a silent engine. */
      silent: z.array(z.strictObject({ engine: EngineKind, host: z.string(), code: z.string(), next: z.string() })),
    }),
  ),
  /** Servers on this machine that a person has approved as engine for chat completions. */
  'engine/list': m('read', nothing, z.strictObject({ approvals: z.array(EngineApproval) })),
  /** Records that prompts may be sent to this loopback server. Replaces an earlier approval. */
  'engine/approve': m('write', z.strictObject({ host: z.string().min(1).max(400), reviewer }), EngineApproval),
  'engine/revoke': m('write', z.strictObject({ host: z.string().min(1).max(400), reviewer }), nothing),

  'contract/check': m(
    'read',
    z.strictObject({ path: absolutePath, text: z.string().max(1_000_000).optional() }),
    z.strictObject({ root: z.string().nullable(), diagnostics: z.array(ContractDiagnostic) }),
  ),
  'contract/freeze': m('write', z.strictObject({ path: absolutePath }), ContractView),
  'contract/get': m('read', z.strictObject({ digest: ContractDigest }), ContractView),
  'contract/list': m(
    'read',
    z.strictObject({ root: absolutePath.optional() }),
    z.strictObject({ contracts: z.array(ContractView) }),
  ),
  /** Runs the baseline in the sandbox (waits for the slot); cancellable with `$/cancelRequest`. */
  'contract/baseline': m('write', z.strictObject({ digest: ContractDigest }), BaselineView),

  /** What preparing the image of a contract (or a base, or the default) would do. Touches nothing. */
  'image/plan': m(
    'read',
    z.strictObject({ digest: ContractDigest.optional(), base: imageReference.optional() }),
    ImagePlan,
  ),
  /**
   * Prepares exactly the named plan, with `$/progress`. `approval` is a person's yes; without it a standing one must be
   * on record. Cancellable; what was begun is taken away again.
   */
  'image/prepare': m(
    'write',
    z.strictObject({
      digest: ContractDigest.optional(),
      base: imageReference.optional(),
      plan: Sha256,
      approval: z.strictObject({ reviewer, standing: z.boolean() }).nullable(),
    }),
    z.strictObject({ plan: ImagePlan, record: ImageRecord.nullable() }),
  ),
  /** Records a person's no, and takes a standing yes back. */
  'image/decline': m('write', z.strictObject({ plan: Sha256, reviewer }), nothing),
  'image/list': m('read', nothing, ImageList),
  /** Removes images that this home made and nothing needs. `all`: also what could still be used; `setUp`: also what set-up made. */
  'image/prune': m(
    'write',
    z.strictObject({ preview: z.boolean(), all: z.boolean().default(false), setUp: z.boolean().default(false) }),
    ImagePrune,
  ),

  'session/start': m(
    'write',
    z.strictObject({
      digest: ContractDigest,
      /** The folder whose contract is meant; needed only where the same contract was frozen in more than one. */
      root: absolutePath.optional(),
      engine: EngineKind,
      /** Ollama: a tag. Chat completions: the model's id there. Rehearsal: a script's name, or an absolute path of a script file. */
      model: z.string().min(1).max(1024),
      options: InferenceOptions.partial().optional(),
      /** Help for small models that is to differ from the default; part of the binding. */
      switches: LoopSwitches.partial().optional(),
      /** `false` leaves the session without controller, bounded by its contract alone. */
      control: z.boolean().default(true),
      /** A person's decision to allow more attempts than the contract's budget; recorded with their name. */
      extend: z.strictObject({ attempts: z.number().int().min(1).max(20), reviewer }).optional(),
    }),
    z.strictObject({ session: SessionView, token: FencingToken.nullable() }),
  ),
  'session/list': m(
    'read',
    z.strictObject({
      root: absolutePath.optional(),
      before: WallTime.optional(),
      /** With `before`: the last session of the page before, so that sessions of one moment are not lost between pages. */
      beforeSession: SessionId.optional(),
      limit: z.number().int().min(1).max(500).default(100),
    }),
    z.strictObject({ sessions: z.array(SessionSummary), more: z.boolean() }),
  ),
  'session/get': m('read', z.strictObject({ session: SessionId }), SessionView),
  /** The whole evidence of a session, in order, paged by sequence number. */
  'session/events': m(
    'read',
    z.strictObject({
      session: SessionId,
      after: z.number().int().default(0),
      limit: z.number().int().min(1).max(1000).default(500),
    }),
    z.strictObject({ events: z.array(EvidenceEvent), more: z.boolean() }),
  ),
  /** `control` gives the fencing token; `takeOver` takes it from a connected controller (who is told). */
  'session/attach': m(
    'write',
    z.strictObject({ session: SessionId, mode: z.enum(['control', 'observe']), takeOver: z.boolean().default(false) }),
    z.strictObject({ session: SessionView, token: FencingToken.nullable() }),
  ),
  'session/detach': m('write', z.strictObject({ session: SessionId }), nothing),
  /** Settles the running attempt, or takes a waiting one from the queue. */
  'session/cancel': m('write', z.strictObject({ session: SessionId, token: FencingToken }), SessionView),
  /** Another attempt within budget: a correction with feedback, or a fresh try. */
  'session/attempt': m(
    'write',
    z.strictObject({ session: SessionId, token: FencingToken, feedback: z.string().max(8000).optional() }),
    SessionView,
  ),
  /** Allows more attempts for this contract and qualification key, over all sessions. */
  'session/extend': m(
    'write',
    z.strictObject({ session: SessionId, attempts: z.number().int().min(1).max(20), reviewer }),
    SessionView,
  ),
  /**
   * A person's recorded action on an attempt whose end could not be observed (`pending`): it settles as not confirmed.
   * `since` is that of the wait that they looked at. Needs no control of the session.
   */
  'session/reconcile': m(
    'write',
    z.strictObject({
      session: SessionId,
      attempt: AttemptId,
      since: WallTime,
      reviewer,
      why: z.string().min(1).max(4000),
    }),
    SessionView,
  ),
  'session/close': m('write', z.strictObject({ session: SessionId, token: FencingToken }), SessionView),

  'candidate/get': m('read', z.strictObject({ session: SessionId, candidate: CandidateDigest }), CandidateView),
  /** Verifies again; each run is its own record. */
  'candidate/verify': m('write', z.strictObject({ session: SessionId, candidate: CandidateDigest }), VerificationView),
  /** Records acceptance of exactly these bytes and, unless told otherwise, integrates them. */
  'candidate/accept': m(
    'write',
    z.strictObject({
      session: SessionId,
      candidate: CandidateDigest,
      verification: RunId,
      reviewer,
      comment: z.string().max(8000).default(''),
      integrate: z.boolean().default(true),
    }),
    z.strictObject({ session: SessionView, integration: IntegrationView.nullable() }),
  ),
  /** Rejects; with `correct` a correction attempt is reserved with the comment as feedback, if the budget has one. */
  'candidate/reject': m(
    'write',
    z.strictObject({
      session: SessionId,
      candidate: CandidateDigest,
      reviewer,
      comment: z.string().max(8000),
      correct: z.boolean(),
    }),
    SessionView,
  ),
  'candidate/integrate': m(
    'write',
    z.strictObject({ session: SessionId, candidate: CandidateDigest }),
    z.strictObject({ session: SessionView, integration: IntegrationView }),
  ),
  'integration/undo': m(
    'write',
    z.strictObject({ session: SessionId, integration: IntegrationId }),
    z.strictObject({ session: SessionView, integration: IntegrationView }),
  ),

  /** Bytes of an artefact, base64, re-hashed on read. At most 1 MiB a call. */
  'artefact/read': m(
    'read',
    z.strictObject({
      sha256: Sha256,
      offset: z.number().int().nonnegative().default(0),
      length: z.number().int().min(1).max(1_048_576).default(1_048_576),
    }),
    z.strictObject({ artefact: ArtefactRef, offset: z.number().int(), base64: z.string() }),
  ),
  /** What was read out of containers that no record knew, newest first; `before` is the last one seen. */
  'salvage/list': m(
    'read',
    z.strictObject({
      before: z.strictObject({ at: WallTime, engineId: z.string().max(256) }).optional(),
      limit: z.number().int().min(1).max(500).default(100),
    }),
    z.strictObject({ containers: z.array(SalvagedContainer), more: z.boolean() }),
  ),
  /** One of them with its files, paged; their bytes by `artefact/read`. */
  'salvage/get': m(
    'read',
    z.strictObject({
      engineId: z.string().min(1).max(256),
      after: z.number().int().nonnegative().default(0),
      limit: z.number().int().min(1).max(1000).default(1000),
    }),
    z.strictObject({ container: SalvagedContainer, files: z.array(SalvagedFile), more: z.boolean() }),
  ),
  /** The Kernel-owned workspace of a session: live while an attempt runs. */
  'workspace/list': m(
    'read',
    z.strictObject({ session: SessionId }),
    z.strictObject({ source: WorkspaceSource, files: z.array(WorkspaceFile) }),
  ),
  'workspace/read': m(
    'read',
    z.strictObject({ session: SessionId, path: RelPath }),
    z.strictObject({ source: WorkspaceSource, mode: z.number().int(), sha256: Sha256, base64: z.string() }),
  ),

  /** Missed events since `lastSeenSeq`, or `snapshot: true` when they are too many (then fetch views anew). */
  'evidence/subscribe': m(
    'read',
    z.strictObject({ lastSeenSeq: z.number().int().nonnegative() }),
    z.strictObject({ seq: z.number().int(), snapshot: z.boolean(), events: z.array(EvidenceEvent) }),
  ),
  /** The window proves itself: `present` after a fulfilled round trip to the renderer. */
  'window/presence': m(
    'write',
    z.strictObject({ ui: z.enum(['present', 'unreachable']), stalledMs: z.number().nonnegative() }),
    nothing,
  ),
  /** Courtesy from `deactivate`: makes settlement faster, is never needed. */
  'window/closing': m('write', nothing, nothing),
  'window/away': m('read', z.strictObject({ since: WallTime.nullable() }), AwaySummary),
} as const;

export type Method = keyof typeof methods;
/** What a caller passes: defaults may be left out. */
export type Params<M extends Method> = z.input<(typeof methods)[M]['params']>;
/** What a handler gets: parsed, defaults filled in. */
export type ParsedParams<M extends Method> = z.output<(typeof methods)[M]['params']>;
export type Result<M extends Method> = z.output<(typeof methods)[M]['result']>;

/** Requests, Kernel → window: asked with a bounded wait; no answer is `unknown`, never `none`. */
export const clientMethods = {
  'editor/unsaved': {
    params: z.strictObject({ paths: z.array(absolutePath) }),
    result: z.strictObject({ unsaved: z.array(absolutePath) }),
  },
} as const;
export type ClientMethod = keyof typeof clientMethods;

/** Notifications, Kernel → client. `seq` is contiguous: a gap means "ask again with evidence/subscribe". */
export const notifications = {
  'evidence/events': z.strictObject({ events: z.array(EvidenceEvent) }),
  /** State that is not evidence changed (queue, presence, health, clients): fetch `kernel/status` or the session. */
  'kernel/changed': z.strictObject({ what: z.enum(['status', 'session']), session: SessionId.nullable() }),
  /** A running request came further: shown, never kept. At most a few a second; null when it is over. */
  'session/live': z.strictObject({ session: SessionId, live: LiveInference.nullable() }),
  /** Said before the connection ends, so that a client can tell a stop on purpose from a death. */
  'kernel/stopping': z.strictObject({ reason: z.enum(['stop', 'idle', 'signal', 'replaced']) }),
  /** A client lost control of a session to another. */
  'session/controlLost': z.strictObject({ session: SessionId, by: z.string() }),
} as const;
export type Notification = keyof typeof notifications;
export type NotificationParams<N extends Notification> = z.output<(typeof notifications)[N]>;

export const ClientHello = z.strictObject({
  kind: z.enum(['window', 'cli', 'test']),
  name: z.string().min(1).max(120),
  version: z.string().max(40),
  clientId: z.string(),
  /** What happens to sessions this client controls when it goes: design 10, "Window close". */
  onClose: z.enum(['settle', 'finishAttempt']),
  /** Milliseconds a lost connection may take to come back before settlement. 0 settles at once. */
  graceMs: z.number().int().min(0).max(600_000),
});
export type ClientHello = z.infer<typeof ClientHello>;
