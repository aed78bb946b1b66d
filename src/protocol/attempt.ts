import * as z from 'zod';
import { AttemptId, CandidateDigest, Sha256, WallTime, Witness } from './primitives.ts';

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
