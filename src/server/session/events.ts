import type {
  ArtefactRef,
  AttemptId,
  CandidateDigest,
  ClientId,
  ContractDigest,
  FencingToken,
  FileEntry,
  IntegrationId,
  RelPath,
  RunId,
  Sha256,
  WallTime,
} from '../../protocol/primitives.ts';
import type { CheckResult, FileScope, FrozenContract } from '../../protocol/contract.ts';
import type {
  ActivityItem,
  AttemptEngine,
  LimitReceipt,
  Receipt,
  SettlementStep,
  SettlementTrigger,
} from '../../protocol/attempt.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { CandidateFile, DecisionView } from '../../protocol/views.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { UsePeaks } from '../sandbox/monitor.ts';
import type { Outcome } from './outcome.ts';
import type { SettlingPhase, WorkingPhase } from './state.ts';

type Facts = SettlementStep['facts'];

/** What was read out of the sandbox, as the record keeps it: bytes are artefacts, here are their references. */
export interface CollectionRecord {
  readonly state: 'complete' | 'partial' | 'none';
  readonly reason: string | null;
  readonly via: 'channel' | 'exec' | 'none';
  readonly files: readonly { readonly path: RelPath; readonly mode: number; readonly ref: ArtefactRef }[];
  readonly missing: readonly RelPath[];
  readonly manifest: readonly FileEntry[];
  readonly auditLog: ArtefactRef | null;
  readonly auditAgrees: boolean;
  readonly equalsAudit: boolean | null;
  readonly violations: readonly string[];
  /** What the sandbox used (`readMonitor` reads the artefact). Absent or null: not recorded, or no room for it. */
  readonly monitor?: { readonly ref: ArtefactRef; readonly peaks: UsePeaks } | null;
}

export interface ControllerRecord {
  readonly clientId: ClientId;
  readonly kind: 'window' | 'cli' | 'test';
  readonly name: string;
  readonly onClose: 'settle' | 'finishAttempt';
}

/** One contract under one binding: what a session is about, fixed at its creation. */
export interface SessionBasis {
  readonly contractDigest: ContractDigest;
  readonly root: string;
  readonly contractPath: string;
  readonly title: string;
  readonly binding: Binding;
  readonly budget: FrozenContract['budget'];
  /** Digest of the qualification key: with the contract digest it names the ledger that attempts are counted in. */
  readonly qualificationKey: Sha256;
}

/** Every event of a `session:<id>` stream. The names are part of the stored format: never reuse one for another meaning. */
export type SessionEvent =
  | {
      readonly type: 'session.created';
      readonly data: SessionBasis;
    }
  | {
      readonly type: 'control.granted';
      readonly data: {
        readonly controller: ControllerRecord;
        readonly token: FencingToken;
        readonly how: 'start' | 'attach' | 'take-over' | 'reload';
      };
    }
  | { readonly type: 'control.released'; readonly data: { readonly token: FencingToken; readonly reason: string } }
  | {
      readonly type: 'request.refused';
      readonly data: { readonly what: string; readonly by: string; readonly reason: string };
    }
  | {
      readonly type: 'attempt.queued';
      readonly data: { readonly attempt: AttemptId; readonly number: number; readonly feedback: string | null };
    }
  | { readonly type: 'attempt.unqueued'; readonly data: { readonly attempt: AttemptId; readonly reason: string } }
  | { readonly type: 'attempt.parked'; readonly data: { readonly attempt: AttemptId; readonly reason: string } }
  | { readonly type: 'attempt.unparked'; readonly data: { readonly attempt: AttemptId } }
  | {
      readonly type: 'attempt.reserved';
      readonly data: {
        readonly attempt: AttemptId;
        readonly epoch: number;
        readonly holder: string;
        /** Monotonic milliseconds of the holding Kernel; meaningless to any other (the epoch decides there). */
        readonly leaseUntil: number;
      };
    }
  | {
      readonly type: 'attempt.provisioning';
      readonly data: { readonly attempt: AttemptId; readonly container: string };
    }
  | {
      readonly type: 'attempt.container';
      readonly data: { readonly attempt: AttemptId; readonly state: 'created' | 'running'; readonly engineId: string };
    }
  | {
      readonly type: 'attempt.limits';
      readonly data: { readonly attempt: AttemptId; readonly limits: readonly LimitReceipt[] };
    }
  | {
      readonly type: 'attempt.running';
      readonly data: { readonly attempt: AttemptId; readonly files: number; readonly bytes: number };
    }
  | {
      readonly type: 'attempt.engine';
      readonly data: { readonly attempt: AttemptId; readonly engine: AttemptEngine };
    }
  | {
      readonly type: 'attempt.request';
      readonly data: {
        readonly attempt: AttemptId;
        readonly n: number;
        readonly boundTokens: number;
        readonly proven: boolean;
      };
    }
  | {
      readonly type: 'attempt.turn';
      readonly data: {
        readonly attempt: AttemptId;
        readonly n: number;
        readonly receipt: Receipt;
        readonly request: ArtefactRef;
        readonly response: ArtefactRef;
      };
    }
  | {
      readonly type: 'attempt.failure';
      readonly data: {
        readonly attempt: AttemptId;
        readonly n: number;
        readonly kind: string;
        readonly code: string;
        readonly message: string;
        readonly receipt: Receipt | null;
        readonly request: ArtefactRef | null;
        readonly response: ArtefactRef | null;
      };
    }
  | {
      readonly type: 'attempt.activity';
      readonly data: { readonly attempt: AttemptId; readonly item: Omit<ActivityItem, 'n' | 'at'> };
    }
  | {
      readonly type: 'attempt.witnessed';
      readonly data: { readonly attempt: AttemptId; readonly entries: number; readonly head: Sha256 | null };
    }
  | { readonly type: 'attempt.ended'; readonly data: { readonly attempt: AttemptId; readonly end: AgentEnd } }
  | {
      readonly type: 'attempt.settling';
      readonly data: {
        readonly attempt: AttemptId;
        readonly trigger: SettlementTrigger;
        readonly token: FencingToken;
        readonly phase: WorkingPhase;
      };
    }
  | {
      readonly type: 'attempt.step';
      readonly data: {
        readonly attempt: AttemptId;
        readonly step: SettlementStep['step'];
        readonly observed: boolean;
        readonly facts: Facts;
      };
    }
  | {
      readonly type: 'attempt.collected';
      readonly data: { readonly attempt: AttemptId; readonly collection: CollectionRecord };
    }
  | {
      readonly type: 'attempt.pending';
      readonly data: { readonly attempt: AttemptId; readonly blockedIn: SettlingPhase; readonly waitingFor: string };
    }
  | { readonly type: 'attempt.unblocked'; readonly data: { readonly attempt: AttemptId; readonly seen: string } }
  | {
      /** A person took an attempt out of `cancellation_pending` without the observation that it waited for. */
      readonly type: 'attempt.reconciled';
      readonly data: {
        readonly attempt: AttemptId;
        readonly by: string;
        readonly channel: 'window' | 'tty' | 'script';
        readonly why: string;
        /** What the engine said of the container at that moment, as the Kernel saw it. */
        readonly saw: string;
        readonly blockedIn: SettlingPhase;
        readonly waitingFor: string;
      };
    }
  | {
      readonly type: 'attempt.settled';
      readonly data: {
        readonly attempt: AttemptId;
        readonly outcome: Outcome;
        readonly confirmed: boolean;
        readonly unknown: readonly string[];
      };
    }
  | {
      readonly type: 'candidate.created';
      readonly data: {
        readonly digest: CandidateDigest;
        readonly attempt: AttemptId;
        readonly author: 'model' | 'rehearsal';
        readonly files: readonly CandidateFile[];
        readonly eligible: boolean;
      };
    }
  | {
      readonly type: 'verification.requested';
      readonly data: { readonly run: RunId; readonly candidate: CandidateDigest };
    }
  | { readonly type: 'verification.started'; readonly data: { readonly run: RunId } }
  | {
      readonly type: 'verification.done';
      readonly data: {
        readonly run: RunId;
        readonly result: 'passed' | 'failed' | 'incomplete';
        readonly reasons: readonly string[];
        readonly checks: readonly CheckResult[];
        /** Of each file whose symbols the contract names. Absent: recorded before symbols could be named. */
        readonly scope?: readonly FileScope[];
      };
    }
  | { readonly type: 'decision.recorded'; readonly data: Omit<DecisionView, 'at'> }
  | {
      readonly type: 'integration.intended';
      readonly data: {
        readonly id: IntegrationId;
        readonly candidate: CandidateDigest;
        readonly files: readonly RelPath[];
        readonly unsaved: 'none' | 'unknown';
      };
    }
  | { readonly type: 'integration.undoing'; readonly data: { readonly id: IntegrationId } }
  | {
      readonly type: 'integration.observed';
      readonly data: {
        readonly id: IntegrationId;
        readonly state: 'integrated' | 'refused' | 'undone' | 'undo_refused' | 'partial';
        readonly reason: string | null;
        readonly moved: readonly RelPath[];
        /** Folders that the integration made: an undo removes those that are empty again. */
        readonly newFolders: readonly string[];
      };
    }
  | {
      readonly type: 'budget.extended';
      readonly data: { readonly attempts: number; readonly by: string; readonly channel: 'window' | 'tty' | 'script' };
    }
  | { readonly type: 'session.closed'; readonly data: { readonly reason: string } };

/** An event with the wall time at which it was recorded. */
export type RecordedEvent = SessionEvent & { readonly at: WallTime; readonly seq: number };
