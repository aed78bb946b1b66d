import type { CheckResult, FileScope } from '../../protocol/contract.ts';
import type {
  ArtefactRef,
  AttemptId,
  CandidateDigest,
  ClientId,
  FencingToken,
  IntegrationId,
  RelPath,
  RunId,
  Sha256,
  WallTime,
} from '../../protocol/primitives.ts';
import type {
  ActivityItem,
  AttemptEngine,
  LimitReceipt,
  Receipt,
  SettlementStep,
  SettlementTrigger,
} from '../../protocol/attempt.ts';
import type { CandidateFile, DecisionView } from '../../protocol/views.ts';
import type { AgentEnd } from '../agent/port.ts';
import type { CollectionRecord, ControllerRecord } from './events.ts';

/** Commands to a session: who controls it, what waits, its end. */
export type SessionCommand =
  | {
      readonly kind: 'grant-control';
      readonly controller: ControllerRecord;
      readonly how: 'start' | 'attach' | 'take-over' | 'reload';
    }
  | { readonly kind: 'release-control'; readonly clientId: ClientId; readonly reason: string }
  | {
      readonly kind: 'queue';
      readonly attempt: AttemptId;
      readonly feedback: string | null;
      readonly token: FencingToken | null;
    }
  | { readonly kind: 'unqueue'; readonly reason: string }
  | { readonly kind: 'park'; readonly reason: string }
  | { readonly kind: 'unpark' }
  | { readonly kind: 'reserve'; readonly holder: string }
  | {
      readonly kind: 'extend-budget';
      readonly attempts: number;
      readonly by: string;
      readonly channel: 'window' | 'tty' | 'script';
    }
  | { readonly kind: 'close'; readonly reason: string };

/** Commands to the one attempt that they name. */
export type AttemptCommand =
  | { readonly kind: 'provision'; readonly attempt: AttemptId; readonly container: string }
  | {
      readonly kind: 'container';
      readonly attempt: AttemptId;
      readonly state: 'created' | 'running';
      readonly engineId: string;
    }
  | { readonly kind: 'limits'; readonly attempt: AttemptId; readonly limits: readonly LimitReceipt[] }
  | { readonly kind: 'run'; readonly attempt: AttemptId; readonly files: number; readonly bytes: number }
  | { readonly kind: 'engine'; readonly attempt: AttemptId; readonly engine: AttemptEngine }
  | {
      readonly kind: 'count-request';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly boundTokens: number;
      readonly proven: boolean;
    }
  | {
      readonly kind: 'turn';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly receipt: Receipt;
      readonly request: ArtefactRef;
      readonly response: ArtefactRef;
    }
  | {
      readonly kind: 'failure';
      readonly attempt: AttemptId;
      readonly n: number;
      readonly failure: { readonly kind: string; readonly code: string; readonly message: string };
      readonly receipt: Receipt | null;
      readonly request: ArtefactRef | null;
      readonly response: ArtefactRef | null;
    }
  | { readonly kind: 'activity'; readonly attempt: AttemptId; readonly item: Omit<ActivityItem, 'n' | 'at'> }
  | { readonly kind: 'witness'; readonly attempt: AttemptId; readonly entries: number; readonly head: Sha256 | null }
  | { readonly kind: 'end'; readonly attempt: AttemptId; readonly end: AgentEnd }
  | { readonly kind: 'settle'; readonly attempt: AttemptId; readonly trigger: SettlementTrigger }
  | {
      readonly kind: 'step';
      readonly attempt: AttemptId;
      /** What was read out is said by `collected`. */
      readonly step: Exclude<SettlementStep['step'], 'collect'>;
      readonly observed: boolean;
      readonly facts: SettlementStep['facts'];
    }
  | { readonly kind: 'collected'; readonly attempt: AttemptId; readonly collection: CollectionRecord }
  | { readonly kind: 'pend'; readonly attempt: AttemptId; readonly waitingFor: string }
  | { readonly kind: 'unblock'; readonly attempt: AttemptId; readonly seen: string }
  | {
      readonly kind: 'reconcile';
      readonly attempt: AttemptId;
      /** When the wait began that the person looked at: another wait is another fact. */
      readonly since: WallTime;
      readonly by: string;
      readonly channel: 'window' | 'tty' | 'script';
      readonly why: string;
      readonly saw: string;
    }
  | {
      readonly kind: 'finish-settlement';
      readonly attempt: AttemptId;
      /** What the collected bytes amount to; null when nothing changed or nothing was collected. */
      readonly candidate: { readonly digest: CandidateDigest; readonly files: readonly CandidateFile[] } | null;
    };

/** Commands to a candidate: its verifications, the decision on it, its way into the working tree and back. */
export type CandidateCommand =
  | { readonly kind: 'request-verification'; readonly run: RunId; readonly candidate: CandidateDigest }
  | { readonly kind: 'start-verification'; readonly run: RunId }
  | {
      readonly kind: 'finish-verification';
      readonly run: RunId;
      readonly result: 'passed' | 'failed' | 'incomplete';
      readonly reasons: readonly string[];
      readonly checks: readonly CheckResult[];
      readonly scope: readonly FileScope[];
    }
  | { readonly kind: 'decide'; readonly decision: Omit<DecisionView, 'at'> }
  | {
      readonly kind: 'intend-integration';
      readonly id: IntegrationId;
      readonly candidate: CandidateDigest;
      readonly unsaved: 'none' | 'unknown';
    }
  | { readonly kind: 'intend-undo'; readonly id: IntegrationId }
  | {
      readonly kind: 'observe-integration';
      readonly id: IntegrationId;
      readonly state: 'integrated' | 'refused' | 'undone' | 'undo_refused' | 'partial';
      readonly reason: string | null;
      readonly moved: readonly RelPath[];
      readonly newFolders?: readonly string[];
    };

export type Command = SessionCommand | AttemptCommand | CandidateCommand;
