import * as z from 'zod';
import { Sha256, Witness } from './primitives.ts';

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
