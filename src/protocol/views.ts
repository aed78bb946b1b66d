import * as z from 'zod';
import { CheckResult, FileScope } from './contract.ts';
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
  /** Speculative draft tokens a step; 0 leaves it off. Drafts can change greedy output, so it is part of the binding. */
  draftNumPredict: z.number().int().min(0).max(64),
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
  /** A `finish` that the visible checks speak against is asked back once. */
  finishGate: z.boolean(),
});
export type LoopSwitches = z.infer<typeof LoopSwitches>;

/** Kinds of engine. `chat-completions`: a server on this machine that speaks `/v1/chat/completions` (llama.cpp and the like). */
export const EngineKind = z.enum(['ollama', 'chat-completions', 'rehearsal']);
export type EngineKind = z.infer<typeof EngineKind>;

/** The file that holds a model's weights. `claimed` is what its name says, `hashed` what this host read. */
export const WeightsFile = z.strictObject({
  path: z.string(),
  sizeBytes: z.number().nullable(),
  claimed: Sha256.nullable(),
  hashed: Sha256.nullable(),
});
export type WeightsFile = z.infer<typeof WeightsFile>;

export const ModelIdentity = z.strictObject({
  tag: z.string(),
  digest: z.string().nullable(),
  quantisation: z.string().nullable(),
  parameterSize: z.string().nullable(),
  family: z.string().nullable(),
  contextAdvertised: z.number().int().nullable(),
  capabilities: z.array(z.string()),
  sizeBytes: z.number().nullable(),
  /** Digest of the chat template as the engine told it; null where it does not. */
  templateDigest: Sha256.nullable(),
  weights: WeightsFile.nullable(),
  /** What the engine cannot prove about this model, one code each, e.g. `digest`, `loaded_context`. */
  unproven: z.array(z.string()),
  witness: Witness,
});
export type ModelIdentity = z.infer<typeof ModelIdentity>;

/** The exact identity of who works and where. A change of any digest is a new binding. */
export const Binding = z.strictObject({
  engine: z.strictObject({ kind: EngineKind, version: z.string(), host: z.string() }),
  model: ModelIdentity,
  options: InferenceOptions,
  switches: LoopSwitches,
  /** Digest over system prompt and tool schemas: the fixed prefix. */
  promptDigest: Sha256,
  /** `record`: digest of the preparation record; null where set-up made the image, absent in records of before. */
  image: z.strictObject({ reference: z.string(), digest: z.string(), record: Sha256.nullable().optional() }),
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
  /** A person ended the wait for an observation; `saw` is what the container engine said at that moment. */
  supervised: z
    .strictObject({
      at: WallTime,
      by: z.string(),
      channel: z.enum(['window', 'tty', 'script']),
      why: z.string(),
      saw: z.string(),
      blockedIn: AttemptPhase,
      waitingFor: z.string(),
    })
    .nullable(),
});
export type SettlementView = z.infer<typeof SettlementView>;

export const Receipt = z.strictObject({
  requestDigest: Sha256,
  responseDigest: Sha256.nullable(),
  modelDigestBefore: z.string().nullable(),
  modelDigestAfter: z.string().nullable(),
  contextLoaded: z.number().int().nullable(),
  gpuShare: z.number().nullable(),
  /** Bytes that the loaded model takes, cache and buffers included, as the engine says. */
  loadedBytes: z.number().nullable().default(null),
  promptTokens: z.number().int().nullable(),
  outputTokens: z.number().int().nullable(),
  doneReason: z.string().nullable(),
  totalMs: z.number().nullable(),
  loadMs: z.number().nullable(),
  /** Time on the prompt and on the output, as the engine says. */
  promptMs: z.number().nullable(),
  outputMs: z.number().nullable(),
  /** Prompt tokens that the engine took from its cache; null where it does not tell. */
  cachedTokens: z.number().int().nullable(),
  wallMs: z.number(),
  verified: z.boolean(),
  /** Named findings, e.g. `digest_changed`, `context_smaller`; empty when verified. */
  findings: z.array(z.string()),
  /** Named remarks that void nothing, e.g. `partly_on_cpu`, `digest_unproven`. */
  notes: z.array(z.string()),
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

/** What an attempt took, from its receipts. Null: no receipt told it. */
export const AttemptMetrics = z.strictObject({
  requests: z.number().int(),
  /** Requests that gave no usable turn. */
  failed: z.number().int(),
  promptTokens: z.number().int().nullable(),
  outputTokens: z.number().int().nullable(),
  cachedTokens: z.number().int().nullable(),
  /** Milliseconds that the engine says it worked, loading included. */
  providerMs: z.number().nullable(),
  loadMs: z.number().nullable(),
  /** Milliseconds on the wall from sending to the verified receipt, summed over the requests. */
  inferenceMs: z.number(),
  /** Milliseconds on the wall from the reservation to the settlement; null while it runs. */
  wallMs: z.number().nullable(),
});
export type AttemptMetrics = z.infer<typeof AttemptMetrics>;

/** Memory of this machine at one moment, in bytes. `gpus` null: no driver told it. */
export const MemoryReading = z.strictObject({
  at: WallTime,
  hostTotal: z.number(),
  hostFree: z.number(),
  gpus: z
    .array(z.strictObject({ name: z.string(), driver: z.string(), total: z.number(), free: z.number() }))
    .nullable(),
});
export type MemoryReading = z.infer<typeof MemoryReading>;

/** One difference between two looks at what an engine has. `before` and `after` are digests, versions or sizes. */
export const InventoryChange = z.strictObject({
  what: z.enum([
    'engine_version',
    'model_added',
    'model_removed',
    'model_changed',
    'loaded',
    'unloaded',
    'file_added',
    'file_removed',
    'file_changed',
  ]),
  name: z.string(),
  before: z.string().nullable(),
  after: z.string().nullable(),
});
export type InventoryChange = z.infer<typeof InventoryChange>;

/** The engine's side of an attempt: what it ran on, and what changed on this machine. Null: not told or not observed. */
export const AttemptEngine = z.strictObject({
  modelStore: z.string().nullable(),
  device: z.string().nullable(),
  driver: z.string().nullable(),
  gpuShare: z.number().nullable(),
  /** Bytes that the loaded model takes, cache and buffers included, as the engine says. */
  loadedBytes: z.number().nullable().default(null),
  layersOffloaded: z.number().int().nullable(),
  kvBytes: z.number().nullable(),
  memory: MemoryReading.nullable(),
  /** Least free memory seen from the start on, while requests ran. */
  lowest: z.strictObject({ hostFree: z.number(), gpuFree: z.number().nullable() }).nullable(),
  /** Against the end of the last attempt on this engine; null for the first. */
  sinceLast: z.array(InventoryChange).nullable(),
  /** From the start to the settlement of this attempt; null where one of the two looks failed. */
  during: z.array(InventoryChange).nullable(),
});
export type AttemptEngine = z.infer<typeof AttemptEngine>;

/** What a running request does at this moment. Not evidence: it is shown and forgotten. `text` is hostile. */
export const LiveInference = z.strictObject({
  attempt: AttemptId,
  n: z.number().int(),
  state: z.enum(['loading', 'thinking', 'answering']),
  /** Milliseconds since the request was sent. */
  sinceMs: z.number(),
  /** The newest of what was streamed. */
  text: z.string(),
  /** Characters streamed so far. */
  chars: z.number().int(),
});
export type LiveInference = z.infer<typeof LiveInference>;

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
  metrics: AttemptMetrics,
  engine: AttemptEngine.nullable(),
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
  /** Whether each file whose symbols the contract names stayed within them; none named: empty. */
  scope: z.array(FileScope),
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
  /** The request that is under way, as far as its stream has come. */
  live: LiveInference.nullable(),
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

/** One thing that was looked at in the container engine. `next` is the mend, empty where nothing is wrong. */
export const EngineFinding = z.strictObject({
  code: z.string(),
  ok: z.boolean(),
  detail: z.string(),
  next: z.string(),
});
export type EngineFinding = z.infer<typeof EngineFinding>;

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
  engine: Health.extend({
    name: z.string().nullable(),
    version: z.string().nullable(),
    /** Absent until the engine was looked at. */
    findings: z.array(EngineFinding).optional(),
  }),
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
  /** Such containers that were read out and removed, newest last, at most 20. `fault`: why that may not be all. */
  salvaged: z.array(
    z.strictObject({ name: z.string(), at: WallTime, files: z.number().int(), fault: z.string().nullable() }),
  ),
  containers: z.number().int().nullable(),
});
export type KernelStatus = z.infer<typeof KernelStatus>;

/** Whether a model's weights fit the free memory of this machine now. `unknown`: a size or the memory is not told. */
export const ModelFit = z.strictObject({
  state: z.enum(['fits_gpu', 'fits_host', 'too_large', 'unknown']),
  needBytes: z.number().nullable(),
  hostFree: z.number().nullable(),
  gpuFree: z.number().nullable(),
});
export type ModelFit = z.infer<typeof ModelFit>;

export const ModelView = ModelIdentity.extend({
  engine: EngineKind,
  /** `cloud`, `no_tools`: the code why no session can be started with it. */
  refused: z.string().nullable(),
  description: z.string(),
  loaded: z.boolean(),
  fit: ModelFit.nullable(),
});
export type ModelView = z.infer<typeof ModelView>;

/** A person's recorded approval of a server on this machine as engine for chat completions. */
export const EngineApproval = z.strictObject({
  host: z.string(),
  /** As asserted by the client. */
  reviewer: z.string(),
  channel: z.enum(['window', 'tty', 'script']),
  at: WallTime,
  /** The server's own word at the approval; another one later is a finding. */
  version: z.string().nullable(),
  revoked: z.boolean(),
});
export type EngineApproval = z.infer<typeof EngineApproval>;

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
