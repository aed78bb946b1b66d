import type { ContractView } from '../protocol/contract.ts';
import type { Result } from '../protocol/methods.ts';
import type { CandidateDigest, ContractDigest, SessionId } from '../protocol/primitives.ts';
import type { Fault } from './fault-words.ts';
import type { Unseen } from './review/unseen-changes.ts';
import type { KernelStatus } from '../protocol/status.ts';
import type { SessionSummary, SessionView, WorkspaceFile, WorkspaceSource } from '../protocol/views.ts';

/** What was said, and when this window heard it (wall clock, ms). */
export interface Observed<T> {
  readonly value: T;
  readonly at: number;
}

/** Why nothing is asked of a Kernel yet. */
export type Missing = 'folder' | 'trust' | 'git' | 'nothing';

export type ConnectionState =
  | { readonly kind: 'off' }
  | { readonly kind: 'connecting'; readonly attempt: number }
  /**
   * `catchingUp`: a gap in the events was seen, what is shown may be behind. `updatePending`: the Kernel is older than
   * this extension. `answering`: false while a question has waited long for its answer, though the socket is open.
   */
  | {
      readonly kind: 'connected';
      readonly updatePending: boolean;
      readonly catchingUp: boolean;
      readonly answering: boolean;
    }
  /** `retrying` false: a person has to start the Kernel. */
  | { readonly kind: 'lost'; readonly fault: Fault; readonly retrying: boolean };

/** What is asked for again when it may have changed. */
export type RefreshKey =
  'status' | 'models' | 'list' | SessionId | `workspace:${SessionId}` | `contract:${ContractDigest}`;

/** Work that this window asked for and waits for: a baseline, mostly. */
export interface Operation {
  readonly id: number;
  readonly label: string;
  readonly detail: string;
  readonly startedAt: number;
  readonly cancellable: boolean;
}

/** All that this window knows of the Kernel's state. Nothing in it is decided here. */
export interface WindowState {
  readonly missing: Missing;
  readonly connection: ConnectionState;
  /** Any word from the Kernel; null before the first. */
  readonly lastHeardAt: number | null;
  readonly status: Observed<KernelStatus> | null;
  /** `silent`: engines that could not be asked. Their models are not known to be none. */
  readonly models: Observed<Result<'kernel/models'>> | null;
  readonly summaries: Observed<readonly SessionSummary[]> | null;
  readonly sessions: ReadonlyMap<SessionId, Observed<SessionView>>;
  readonly workspaces: ReadonlyMap<SessionId, Observed<WorkspaceListing>>;
  /** Contracts of sessions that have a candidate, with their baselines. */
  readonly contracts: ReadonlyMap<ContractDigest, ContractView>;
  /** What the diff of a candidate does not show of its bytes; without an entry: not looked at yet. */
  readonly unseen: ReadonlyMap<CandidateDigest, readonly UnseenFile[]>;
  /** Sessions whose fencing token this window holds. */
  readonly controls: ReadonlySet<SessionId>;
  readonly operations: readonly Operation[];
  /** What was asked for again and refused, with why: what is known of it is an earlier answer. */
  readonly unrefreshed: ReadonlyMap<RefreshKey, Fault>;
}

export interface UnseenFile {
  readonly path: string;
  readonly unseen: readonly Unseen[];
}

export interface WorkspaceListing {
  readonly source: WorkspaceSource;
  readonly files: readonly WorkspaceFile[];
}

export const initialState: WindowState = {
  missing: 'nothing',
  connection: { kind: 'off' },
  lastHeardAt: null,
  status: null,
  models: null,
  summaries: null,
  sessions: new Map(),
  workspaces: new Map(),
  contracts: new Map(),
  unseen: new Map(),
  controls: new Set(),
  operations: [],
  unrefreshed: new Map(),
};

/** Whether what is shown is what the Kernel says now. Otherwise it is greyed, and nothing looks alive. */
export function isCurrent(state: WindowState): boolean {
  const { connection } = state;
  return connection.kind === 'connected' && !connection.catchingUp && connection.answering;
}

/** Why nothing can be recorded now, as the Kernel saw it; null where it can, or where it is not known. */
export function recordBlocked(state: WindowState): 'full' | 'unwritable' | null {
  switch (state.status?.value.storage.code) {
    case 'disk_full':
      return 'full';
    case 'not_writable':
      return 'unwritable';
    default:
      return null;
  }
}

/**
 * Whether what is shown of a session is so now. Not where its last refresh was refused; nor where it was at work and
 * nothing can be recorded: what became of that work is then nowhere to be read.
 */
export function isSessionCurrent(state: WindowState, session: SessionSummary | SessionView): boolean {
  if (!isCurrent(state) || state.unrefreshed.has(session.id)) return false;
  const atWork = session.state === 'running' || session.state === 'settling';
  return !(atWork && recordBlocked(state) !== null);
}

/** Holds the state of one window and tells who shows it. */
export class StateStore {
  #state: WindowState = initialState;
  readonly #listeners = new Set<(state: WindowState, before: WindowState) => void>();

  get state(): WindowState {
    return this.#state;
  }

  update(change: Partial<WindowState>): void {
    const before = this.#state;
    this.#state = { ...before, ...change };
    for (const listener of this.#listeners) listener(this.#state, before);
  }

  onChange(listener: (state: WindowState, before: WindowState) => void): { dispose(): void } {
    this.#listeners.add(listener);
    return { dispose: () => this.#listeners.delete(listener) };
  }
}

/** A copy of `map` with one entry set. */
export function withEntry<K, V>(map: ReadonlyMap<K, V>, key: K, value: V): ReadonlyMap<K, V> {
  return new Map(map).set(key, value);
}
