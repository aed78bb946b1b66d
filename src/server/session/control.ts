import type { ClientId, FencingToken, SessionId, WallTime } from '../../protocol/primitives.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { SettlementTrigger } from '../../protocol/attempt.ts';
import type { ControllerView } from '../../protocol/views.ts';
import type { Logger } from '../log.ts';
import type { ConnectedClient } from '../rpc/port.ts';
import type { ControllerRecord } from './events.ts';
import type { Sessions } from './sessions.ts';
import { openAttempt, type SessionState } from './state.ts';

export interface ControlDeps {
  readonly sessions: Sessions;
  /** Begins settlement of a session's running attempt. */
  readonly settle: (session: SessionId, trigger: SettlementTrigger) => void;
  /** A session's control changed: its waiting attempt may have to be parked or queued again. */
  readonly controlChanged: (session: SessionId) => void;
  /** Nobody is waited for any more who was: the Kernel may have become idle. */
  readonly expectationsChanged: () => void;
  readonly uiUnreachableMs: number;
  readonly log: Logger;
  readonly now: () => WallTime;
}

interface Presence {
  readonly kind: 'window' | 'cli' | 'test';
  readonly name: string;
  readonly graceMs: number;
  readonly onClose: 'settle' | 'finishAttempt';
  connections: Set<number>;
  ui: ControllerView['ui'];
  lastSeenAt: WallTime;
  /** Runs while the client is away and may still come back. */
  grace: NodeJS.Timeout | undefined;
}

/**
 * Who controls and who observes: the fencing token passes by `Sessions`, this holds what is not evidence (connections,
 * grace timers, the window's own proof of life). The end of a connection is the observation; a reload comes back under
 * the same client id within the grace, and then the end of the older connection means nothing.
 */
export class Control {
  readonly #deps: ControlDeps;
  readonly #clients = new Map<ClientId, Presence>();
  readonly #observers = new Map<SessionId, Set<ClientId>>();
  readonly #controlled = new Map<ClientId, Set<SessionId>>();

  constructor(deps: ControlDeps) {
    this.#deps = deps;
  }

  connected(client: ConnectedClient): void {
    const known = this.#clients.get(client.clientId);
    clearTimeout(known?.grace);
    const presence: Presence = {
      kind: client.hello.kind,
      name: client.hello.name,
      graceMs: client.hello.graceMs,
      onClose: client.hello.onClose,
      connections: known?.connections ?? new Set(),
      ui: known?.ui ?? 'unproven',
      lastSeenAt: this.#deps.now(),
      grace: undefined,
    };
    presence.connections.add(client.connection);
    this.#clients.set(client.clientId, presence);
  }

  gone(client: ConnectedClient): void {
    const presence = this.#clients.get(client.clientId);
    if (presence === undefined) return;
    presence.connections.delete(client.connection);
    presence.lastSeenAt = this.#deps.now();
    if (presence.connections.size === 0) this.#startGrace(client.clientId, presence);
  }

  /** `deactivate` said goodbye. A reload says it too, so this only starts the grace early. */
  closing(client: ConnectedClient): void {
    const presence = this.#clients.get(client.clientId);
    // A newer connection of the same window has come: the goodbye is the older host's.
    if (presence === undefined || [...presence.connections].some((c) => c > client.connection)) return;
    this.#startGrace(client.clientId, presence);
  }

  /** The window's proof of life. `stalledMs`: how long the renderer has not answered, gaps of the client's own timer left out. */
  presence(client: ConnectedClient, ui: 'present' | 'unreachable', stalledMs: number): void {
    const presence = this.#clients.get(client.clientId);
    if (presence === undefined) return;
    presence.ui = ui;
    presence.lastSeenAt = this.#deps.now();
    if (ui === 'unreachable' && stalledMs >= this.#deps.uiUnreachableMs)
      this.#leave(client.clientId, presence, 'ui_unreachable');
  }

  /** Gives control (with its token) or registers an observer. Throws EscrowError NotController, WrongState. */
  attach(
    client: ConnectedClient,
    id: SessionId,
    mode: 'control' | 'observe',
    takeOver: boolean,
    start = false,
  ): FencingToken | null {
    if (mode === 'observe') {
      this.#observersOf(id).add(client.clientId);
      return null;
    }
    const { sessions } = this.#deps;
    const held = sessions.get(id).controller;
    if (held !== null && held.clientId !== client.clientId && !this.#mayReturn(held.clientId)) {
      sessions.execute(id, { kind: 'release-control', clientId: held.clientId, reason: 'gone' });
    }
    const controller: ControllerRecord = {
      clientId: client.clientId,
      kind: client.hello.kind,
      name: client.hello.name,
      onClose: client.hello.onClose,
    };
    const how = start ? 'start' : takeOver ? 'take-over' : 'attach';
    const state = sessions.execute(id, { kind: 'grant-control', controller, how });
    if (held !== null) this.#controlled.get(held.clientId)?.delete(id);
    this.#controlledBy(client.clientId).add(id);
    this.#observersOf(id).delete(client.clientId);
    this.#deps.controlChanged(id);
    return state.token;
  }

  detach(client: ConnectedClient, id: SessionId): void {
    this.#observersOf(id).delete(client.clientId);
    if (this.#deps.sessions.get(id).controller?.clientId !== client.clientId) return;
    this.#deps.sessions.execute(id, { kind: 'release-control', clientId: client.clientId, reason: 'detached' });
    this.#controlled.get(client.clientId)?.delete(id);
    this.#deps.controlChanged(id);
  }

  /** Throws EscrowError StaleAuthority and records the refusal when the token is not the session's. */
  check(client: ConnectedClient, state: SessionState, token: FencingToken, what: string): void {
    if (token === state.token && state.controller?.clientId === client.clientId) return;
    this.#deps.sessions.recordRefusal(state.id, what, client.hello.name, 'stale token');
    throw new EscrowError(
      'StaleAuthority',
      'This request names a control token that is no longer valid.',
      'Attach to the session as its controller, then repeat the request.',
      { session: state.id },
    );
  }

  view(state: SessionState): ControllerView | null {
    const held = state.controller;
    if (held === null) return null;
    const presence = this.#clients.get(held.clientId);
    return {
      clientId: held.clientId,
      kind: held.kind,
      name: held.name,
      connected: (presence?.connections.size ?? 0) > 0,
      ui: presence?.ui ?? 'unproven',
      lastSeenAt: presence?.lastSeenAt ?? state.updatedAt,
    };
  }

  observers(id: SessionId): number {
    return [...(this.#observers.get(id) ?? [])].filter((c) => (this.#clients.get(c)?.connections.size ?? 0) > 0).length;
  }

  /** True while the session's controller is connected or may still come back; true also for a session without controller. */
  attended(state: SessionState): boolean {
    return state.controller === null ? false : this.#mayReturn(state.controller.clientId);
  }

  /** Any client that is connected, or away within its grace. */
  anyExpected(): boolean {
    return [...this.#clients.values()].some((p) => p.connections.size > 0 || p.grace !== undefined);
  }

  dispose(): void {
    for (const presence of this.#clients.values()) clearTimeout(presence.grace);
  }

  #mayReturn(clientId: ClientId): boolean {
    const presence = this.#clients.get(clientId);
    return presence !== undefined && (presence.connections.size > 0 || presence.grace !== undefined);
  }

  #startGrace(clientId: ClientId, presence: Presence): void {
    if (presence.grace !== undefined) return;
    presence.grace = setTimeout(() => {
      presence.grace = undefined;
      this.#leave(clientId, presence, presence.kind === 'window' ? 'window_close' : 'controller_lost');
      if (presence.connections.size === 0) this.#clients.delete(clientId);
      this.#deps.expectationsChanged();
    }, presence.graceMs);
  }

  #leave(clientId: ClientId, presence: Presence, trigger: SettlementTrigger): void {
    const { sessions } = this.#deps;
    for (const id of this.#controlled.get(clientId) ?? []) {
      const state = sessions.get(id);
      if (state.controller?.clientId !== clientId) continue;
      const settles = presence.onClose === 'settle' || trigger === 'ui_unreachable';
      if (openAttempt(state) !== undefined && settles) this.#deps.settle(id, trigger);
      try {
        sessions.execute(id, { kind: 'release-control', clientId, reason: trigger });
        this.#deps.controlChanged(id);
      } catch (error) {
        // The record can't be written (disk full). Whoever attaches next is not kept out by a client that is gone.
        this.#deps.log('error', 'a client went and it could not be recorded', { session: id, trigger, error });
      }
    }
    this.#controlled.delete(clientId);
    for (const set of this.#observers.values()) set.delete(clientId);
  }

  #observersOf(id: SessionId): Set<ClientId> {
    const set = this.#observers.get(id) ?? new Set();
    this.#observers.set(id, set);
    return set;
  }
  #controlledBy(id: ClientId): Set<SessionId> {
    const set = this.#controlled.get(id) ?? new Set();
    this.#controlled.set(id, set);
    return set;
  }
}
