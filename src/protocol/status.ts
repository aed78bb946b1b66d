import * as z from 'zod';
import { EngineKind, ModelIdentity } from './binding.ts';
import { AttemptId, ClientId, SessionId, WallTime } from './primitives.ts';

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
