import * as z from 'zod';
import { BaselineView, CheckResult } from './contract.ts';
import {
  ArtefactRef,
  AttemptId,
  CandidateDigest,
  ClientId,
  ContractDigest,
  IntegrationId,
  RelPath,
  RunId,
  SessionId,
  Sha256,
  WallTime,
  Witness,
} from './primitives.ts';

/** Options that are frozen with the binding and sent on every request. Units: tokens; keepAlive as Ollama writes it. */
export const InferenceOptions = z.strictObject({
  numCtx: z.number().int().min(2048).max(1_048_576),
  numPredict: z.number().int().min(64).max(32_768),
  temperature: z.number().min(0).max(2),
  seed: z.number().int().nonnegative(),
  think: z.union([z.boolean(), z.enum(['low', 'medium', 'high'])]),
  keepAlive: z.string().max(16),
});
export type InferenceOptions = z.infer<typeof InferenceOptions>;

/** Help for small models (design 30); each switch is part of the binding. */
export const LoopSwitches = z.strictObject({
  viewBeforeEdit: z.boolean(),
  nearestMatch: z.boolean(),
  repeatFailure: z.boolean(),
  wholeFile: z.boolean(),
  nudgeEmptyTurn: z.boolean(),
  executeTextCalls: z.boolean(),
});
export type LoopSwitches = z.infer<typeof LoopSwitches>;

export const ModelIdentity = z.strictObject({
  tag: z.string(),
  digest: z.string().nullable(),
  quantisation: z.string().nullable(),
  parameterSize: z.string().nullable(),
  family: z.string().nullable(),
  contextAdvertised: z.number().int().nullable(),
  capabilities: z.array(z.string()),
  sizeBytes: z.number().nullable(),
  witness: Witness,
});
export type ModelIdentity = z.infer<typeof ModelIdentity>;

/** The exact identity of who works and where. A change of any digest is a new binding. */
export const Binding = z.strictObject({
  engine: z.strictObject({ kind: z.enum(['ollama', 'rehearsal']), version: z.string(), host: z.string() }),
  model: ModelIdentity,
  options: InferenceOptions,
  switches: LoopSwitches,
  /** Digest over system prompt and tool schemas: the fixed prefix. */
  promptDigest: Sha256,
  image: z.strictObject({ reference: z.string(), digest: z.string() }),
  executorDigest: Sha256,
  profile: z.strictObject({ name: z.string(), digest: Sha256 }),
  /** True for the rehearsal engine: a script spoke, no model. Can never qualify. */
  synthetic: z.boolean(),
  /** `none` until the qualification gate exists. */
  qualification: z.enum(['none', 'synthetic']),
});
export type Binding = z.infer<typeof Binding>;

export const attemptOutcomes = [
  'candidate',
  'no_change',
  'model_fault',
  'limit',
  'resource',
  'transport',
  'infrastructure',
  'cancelled',
  'interrupted',
  'lost',
  'incident',
  'incomplete',
] as const;
export const AttemptOutcome = z.enum(attemptOutcomes);
export type AttemptOutcome = z.infer<typeof AttemptOutcome>;

export const attemptPhases = [
  'reserved',
  'provisioning',
  'running',
  'quiescing',
  'collecting',
  'stopping',
  'releasing',
  'settled',
  'cancellation_pending',
] as const;
export const AttemptPhase = z.enum(attemptPhases);
export type AttemptPhase = z.infer<typeof AttemptPhase>;

/** What set settlement off. */
export const SettlementTrigger = z.enum([
  'finish',
  'limit',
  'fault',
  'cancel',
  'window_close',
  'ui_unreachable',
  'controller_lost',
  'kernel_drain',
  'kernel_restart',
  'lease_expired',
]);
export type SettlementTrigger = z.infer<typeof SettlementTrigger>;

/** One step of a settlement: what was asked, what was seen, when. `observed` false means that it could not be seen. */
export const SettlementStep = z.strictObject({
  step: z.enum(['revoke', 'abort_generation', 'quiesce', 'collect', 'stop', 'release', 'engine_idle']),
  at: WallTime,
  observed: z.boolean(),
  /** Plain facts, e.g. {exitCode: 137, oomKilled: false}. */
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
});
export type SettlementStep = z.infer<typeof SettlementStep>;

export const SettlementView = z.strictObject({
  trigger: SettlementTrigger,
  requestedAt: WallTime,
  settledAt: WallTime.nullable(),
  steps: z.array(SettlementStep),
  /** True only when the container was seen not running *and* absent. */
  confirmed: z.boolean(),
  /** What is not known, one code each, e.g. `engine_idle`, `bytes`. */
  unknown: z.array(z.string()),
});
export type SettlementView = z.infer<typeof SettlementView>;

export const Receipt = z.strictObject({
  requestDigest: Sha256,
  responseDigest: Sha256.nullable(),
  modelDigestBefore: z.string().nullable(),
  modelDigestAfter: z.string().nullable(),
  contextLoaded: z.number().int().nullable(),
  gpuShare: z.number().nullable(),
  promptTokens: z.number().int().nullable(),
  outputTokens: z.number().int().nullable(),
  doneReason: z.string().nullable(),
  totalMs: z.number().nullable(),
  loadMs: z.number().nullable(),
  wallMs: z.number(),
  verified: z.boolean(),
  /** Named findings, e.g. `digest_changed`, `context_smaller`; empty when verified. */
  findings: z.array(z.string()),
  witness: Witness,
});
export type Receipt = z.infer<typeof Receipt>;

/** One line of an attempt's activity, in order. `text` is hostile: from a model or a program. */
export const ActivityItem = z.strictObject({
  n: z.number().int(),
  at: WallTime,
  kind: z.enum(['request', 'receipt', 'think', 'message', 'tool', 'denied', 'result', 'hint', 'person']),
  title: z.string(),
  text: z.string(),
  ok: z.boolean().nullable(),
});
export type ActivityItem = z.infer<typeof ActivityItem>;

export const LimitReceipt = z.strictObject({
  name: z.string(),
  wanted: z.string(),
  inside: z.string().nullable(),
  outside: z.string().nullable(),
  inForce: z.boolean(),
});
export type LimitReceipt = z.infer<typeof LimitReceipt>;

export const AttemptView = z.strictObject({
  id: AttemptId,
  number: z.number().int().min(1),
  phase: AttemptPhase,
  /** When in `cancellation_pending`: what would resolve it. */
  pending: z.strictObject({ since: WallTime, blockedIn: AttemptPhase, waitingFor: z.string() }).nullable(),
  outcome: z
    .strictObject({ kind: AttemptOutcome, phase: AttemptPhase, reason: z.string(), detail: z.string() })
    .nullable(),
  collection: z
    .strictObject({ state: z.enum(['complete', 'partial', 'none']), reason: z.string().nullable() })
    .nullable(),
  reservedAt: WallTime,
  firstToolAt: WallTime.nullable(),
  settlement: SettlementView.nullable(),
  requests: z.number().int(),
  promptTokens: z.number().int(),
  outputTokens: z.number().int(),
  container: z
    .strictObject({
      name: z.string(),
      engineId: z.string().nullable(),
      state: z.enum(['intended', 'created', 'running', 'stopped', 'absent', 'unknown']),
      observedAt: WallTime.nullable(),
    })
    .nullable(),
  limits: z.array(LimitReceipt),
  candidate: CandidateDigest.nullable(),
  /** The reviewer's words that a correction attempt was given. */
  feedback: z.string().nullable(),
  activity: z.array(ActivityItem),
});
export type AttemptView = z.infer<typeof AttemptView>;

export const CandidateFile = z.strictObject({
  path: RelPath,
  change: z.enum(['modified', 'added', 'deleted']),
  before: ArtefactRef.nullable(),
  after: ArtefactRef.nullable(),
  beforeMode: z.number().int().nullable(),
  afterMode: z.number().int().nullable(),
});
export type CandidateFile = z.infer<typeof CandidateFile>;

export const VerificationView = z.strictObject({
  runId: RunId,
  candidate: CandidateDigest,
  at: WallTime,
  state: z.enum(['queued', 'running', 'done']),
  result: z.enum(['passed', 'failed', 'incomplete']).nullable(),
  reasons: z.array(z.string()),
  checks: z.array(CheckResult),
});
export type VerificationView = z.infer<typeof VerificationView>;

export const DecisionView = z.strictObject({
  kind: z.enum(['accept', 'reject']),
  candidate: CandidateDigest,
  verification: RunId.nullable(),
  /** As asserted by the client; the Kernel cannot prove a name. */
  reviewer: z.string(),
  channel: z.enum(['window', 'tty', 'script']),
  comment: z.string(),
  at: WallTime,
});
export type DecisionView = z.infer<typeof DecisionView>;

export const IntegrationView = z.strictObject({
  id: IntegrationId,
  candidate: CandidateDigest,
  state: z.enum(['intended', 'integrated', 'refused', 'undone', 'undo_refused', 'partial']),
  reason: z.string().nullable(),
  files: z.array(RelPath),
  /** Whether an unsaved editor held a file: `unknown` when no window could be asked. */
  unsaved: z.enum(['none', 'unknown']),
  /** Files of the snapshot outside the candidate that changed since the freeze. */
  moved: z.array(RelPath),
  at: WallTime,
});
export type IntegrationView = z.infer<typeof IntegrationView>;

export const CandidateView = z.strictObject({
  digest: CandidateDigest,
  attempt: AttemptId,
  author: z.enum(['model', 'person', 'derived', 'rehearsal']),
  parent: CandidateDigest.nullable(),
  files: z.array(CandidateFile),
  /** Eligible for verification: outcome `candidate` and complete collection. */
  eligible: z.boolean(),
  verifications: z.array(VerificationView),
  /** `flaky`: passed once and failed once on the same bytes. */
  verdict: z.enum(['unverified', 'passed', 'failed', 'incomplete', 'flaky']),
  decision: DecisionView.nullable(),
  integrations: z.array(IntegrationView),
});
export type CandidateView = z.infer<typeof CandidateView>;

export const ControllerView = z.strictObject({
  clientId: ClientId,
  kind: z.enum(['window', 'cli', 'test']),
  name: z.string(),
  connected: z.boolean(),
  ui: z.enum(['present', 'unreachable', 'unproven']),
  lastSeenAt: WallTime,
});
export type ControllerView = z.infer<typeof ControllerView>;

export const sessionStates = ['queued', 'running', 'settling', 'waiting', 'parked', 'closed'] as const;
export const SessionView = z.strictObject({
  id: SessionId,
  contractDigest: ContractDigest,
  title: z.string(),
  root: z.string(),
  contractPath: z.string(),
  binding: Binding,
  /**
   * queued: waits for the sandbox slot; running: an attempt runs; settling: its end is being observed; waiting: for a
   * person's decision or start; parked: its window closed before it got the slot; closed: nothing more will run.
   */
  state: z.enum(sessionStates),
  queuePosition: z.number().int().nullable(),
  controller: ControllerView.nullable(),
  observers: z.number().int(),
  budget: z.strictObject({ attempts: z.number().int(), used: z.number().int() }),
  attempts: z.array(AttemptView),
  candidates: z.array(CandidateView),
  createdAt: WallTime,
  updatedAt: WallTime,
  /** Sequence number of the last event that this view includes. */
  seq: z.number().int(),
});
export type SessionView = z.infer<typeof SessionView>;

/** A row of the session list: cheap to make, whatever the history. */
export const SessionSummary = z.strictObject({
  id: SessionId,
  contractDigest: ContractDigest,
  title: z.string(),
  root: z.string(),
  model: z.string(),
  synthetic: z.boolean(),
  state: z.enum(sessionStates),
  phase: AttemptPhase.nullable(),
  outcome: AttemptOutcome.nullable(),
  candidate: CandidateDigest.nullable(),
  verdict: z.enum(['unverified', 'passed', 'failed', 'incomplete', 'flaky']).nullable(),
  decision: z.enum(['accept', 'reject']).nullable(),
  createdAt: WallTime,
  updatedAt: WallTime,
});
export type SessionSummary = z.infer<typeof SessionSummary>;

export const Health = z.strictObject({
  state: z.enum(['ok', 'degraded', 'unavailable', 'unknown']),
  /** A code for programs, e.g. `engine_not_reachable`. */
  code: z.string().nullable(),
  detail: z.string(),
  /** What a person should do, empty when nothing. */
  next: z.string(),
  observedAt: WallTime,
});
export type Health = z.infer<typeof Health>;

export const KernelStatus = z.strictObject({
  version: z.string(),
  protocol: z.number().int(),
  pid: z.number().int(),
  instanceId: z.string(),
  epoch: z.number().int(),
  startedAt: WallTime,
  home: z.string(),
  clients: z.array(z.strictObject({ clientId: ClientId, kind: z.string(), name: z.string() })),
  executionEnabled: z.boolean(),
  draining: z.boolean(),
  engine: Health.extend({ name: z.string().nullable(), version: z.string().nullable() }),
  image: Health.extend({ digest: z.string().nullable() }),
  inference: Health.extend({ host: z.string(), version: z.string().nullable() }),
  storage: Health.extend({ artefactBytes: z.number(), events: z.number().int() }),
  queue: z.array(
    z.strictObject({ what: z.enum(['attempt', 'verification', 'baseline']), id: z.string(), label: z.string() }),
  ),
  active: z.array(
    z.strictObject({ what: z.enum(['attempt', 'verification', 'baseline']), id: z.string(), label: z.string() }),
  ),
  /** Attempts whose stop could not be confirmed. */
  pending: z.array(z.strictObject({ session: SessionId, attempt: AttemptId, waitingFor: z.string() })),
  /** Containers that carry our labels but that the record does not know. */
  strays: z.array(z.strictObject({ name: z.string(), engineId: z.string() })),
  containers: z.number().int().nullable(),
});
export type KernelStatus = z.infer<typeof KernelStatus>;

export const ModelView = ModelIdentity.extend({
  engine: z.enum(['ollama', 'rehearsal']),
  refused: z.string().nullable(),
  description: z.string(),
});
export type ModelView = z.infer<typeof ModelView>;

/** One event of the evidence log as clients see it. `data` is typed inside the Kernel; clients fetch views. */
export const EvidenceEvent = z.strictObject({
  seq: z.number().int(),
  stream: z.string(),
  version: z.number().int(),
  type: z.string(),
  at: WallTime,
  data: z.unknown(),
});
export type EvidenceEvent = z.infer<typeof EvidenceEvent>;

export const WorkspaceFile = z.strictObject({
  path: RelPath,
  mode: z.number().int(),
  size: z.number().int(),
  sha256: Sha256,
  access: z.enum(['writable', 'readable', 'hidden', 'protected']),
  /** Differs from the snapshot in the source that was listed. */
  changed: z.boolean(),
});
export type WorkspaceFile = z.infer<typeof WorkspaceFile>;

/** Where workspace bytes came from: the live sandbox, what was collected, or the snapshot. */
export const WorkspaceSource = z.strictObject({
  kind: z.enum(['live', 'candidate', 'snapshot']),
  attempt: AttemptId.nullable(),
  observedAt: WallTime,
});
export type WorkspaceSource = z.infer<typeof WorkspaceSource>;

/** What happened while this client was away; shown once by the next window. */
export const AwaySummary = z.strictObject({
  since: WallTime.nullable(),
  items: z.array(
    z.strictObject({
      session: SessionId,
      title: z.string(),
      outcome: AttemptOutcome.nullable(),
      trigger: SettlementTrigger.nullable(),
      confirmed: z.boolean(),
      pending: z.boolean(),
    }),
  ),
});
export type AwaySummary = z.infer<typeof AwaySummary>;

export { BaselineView, CheckResult };
