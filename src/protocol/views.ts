import * as z from 'zod';
import { AttemptOutcome, AttemptPhase, AttemptView, LiveInference, SettlementTrigger } from './attempt.ts';
import { Binding } from './binding.ts';
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
} from './primitives.ts';

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
