import type { Notification, NotificationParams } from '../../protocol/methods.ts';
import { ContractDigest, SessionId, type ClientId, type FencingToken } from '../../protocol/primitives.ts';
import type { KernelStatus } from '../../protocol/status.ts';
import type { AwaySummary, EvidenceEvent, SessionView } from '../../protocol/views.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { Fault } from '../fault-words.ts';
import { withEntry, type RefreshKey, type StateStore } from '../window-state.ts';
import type { KernelLink } from './kernel-link.ts';
import { Refresher } from './refresher.ts';

export interface KernelObserverOptions {
  readonly store: StateStore;
  readonly link: KernelLink;
  readonly clientId: ClientId;
  /** When a window of this folder was last seen; null when never. */
  readonly awaySince: number | null;
  readonly now: () => number;
  readonly logError: (what: string, error: unknown) => void;
  /** Each event once, in order. */
  readonly onEvents: (events: readonly EvidenceEvent[]) => void;
  /** Called once a window, when there is something to tell. */
  readonly onAway: (summary: AwaySummary) => void;
  readonly onControlLost: (session: SessionId, by: string) => void;
}

/** Sessions whose full view is fetched at once; the others when somebody opens them. */
const openedAtStart = 30;

function faultOf(error: unknown): Fault {
  return EscrowError.is(error) ? error : { code: null, message: '', next: '', details: {} };
}

function sessionOf(event: EvidenceEvent): SessionId | undefined {
  const parsed = SessionId.safeParse(/^session:(.*)$/.exec(event.stream)?.[1]);
  return parsed.success ? parsed.data : undefined;
}

/** Keeps the store as the Kernel says it is: asks after connecting, follows events, asks again at a gap. */
export class KernelObserver {
  readonly #options: KernelObserverOptions;
  readonly #refresher: Refresher<RefreshKey>;
  readonly #tokens = new Map<SessionId, FencingToken>();
  /** The newest view of each session that came over this connection: another Kernel may have a restored, older record. */
  readonly #newest = new Map<SessionId, number>();
  /** Workspaces that somebody looks at. */
  readonly #watched = new Set<SessionId>();
  #lastSeq = 0;
  #toldAway = false;
  #catchingUp: Promise<void> | undefined;
  /** Events were missed, and nobody has brought what they say. */
  #behind = false;

  constructor(options: KernelObserverOptions) {
    this.#options = options;
    this.#refresher = new Refresher(
      async (key) => {
        await this.#fetch(key);
        this.#refreshed(key, undefined);
      },
      (key, error) => {
        options.logError(`refresh of ${key}`, error);
        // A connection that ended says that for everything.
        if (!EscrowError.is(error, 'NoKernel')) this.#refreshed(key, faultOf(error));
      },
    );
  }

  /** The fencing token of a session that this window controls. Throws EscrowError NotController. */
  token(session: SessionId): FencingToken {
    const token = this.#tokens.get(session);
    if (token === undefined) {
      throw new EscrowError(
        'NotController',
        'This window observes the session.',
        'Attach to the session with control.',
      );
    }
    return token;
  }

  /** What a start or an attach answered. */
  took(view: SessionView, token: FencingToken | null): void {
    if (token === null) this.#tokens.delete(view.id);
    else this.#tokens.set(view.id, token);
    this.#publishControls();
    this.put(view);
  }

  released(session: SessionId): void {
    this.#tokens.delete(session);
    this.#publishControls();
  }

  /** Takes a view that a request answered with; an older one than what is known is dropped. */
  put(view: SessionView): void {
    const { store, now } = this.#options;
    if ((this.#newest.get(view.id) ?? 0) > view.seq) return;
    this.#newest.set(view.id, view.seq);
    store.update({ sessions: withEntry(store.state.sessions, view.id, { value: view, at: now() }) });
    // What a candidate's checks are compared with.
    if (view.candidates.length > 0 && !store.state.contracts.has(view.contractDigest)) {
      void this.refresh(`contract:${view.contractDigest}`);
    }
  }

  /** Asks for a session and for the contract that its evidence is read against. */
  async refreshEvidence(session: SessionId): Promise<void> {
    await this.refresh(session);
    const known = this.#options.store.state.sessions.get(session)?.value;
    if (known !== undefined) await this.refresh(`contract:${known.contractDigest}`);
  }

  putStatus(value: KernelStatus): void {
    this.#options.store.update({ status: { value, at: this.#options.now() } });
  }

  refresh(key: RefreshKey): Promise<void> {
    return this.#refresher.refresh(key);
  }

  /** Asks once more for what was refused the last time, events that were missed among it. */
  retry(): void {
    if (this.#behind && this.#catchingUp === undefined) this.#tryToCatchUp();
    for (const key of this.#options.store.state.unrefreshed.keys()) void this.refresh(key);
  }

  #refreshed(key: RefreshKey, refused: Fault | undefined): void {
    const { store } = this.#options;
    const { unrefreshed } = store.state;
    if (refused !== undefined) store.update({ unrefreshed: withEntry(unrefreshed, key, refused) });
    else if (unrefreshed.has(key))
      store.update({ unrefreshed: new Map([...unrefreshed].filter(([other]) => other !== key)) });
  }

  /** Keeps the listing of a session's workspace fresh from now on. */
  async watchWorkspace(session: SessionId): Promise<void> {
    this.#watched.add(session);
    await this.refresh(`workspace:${session}`);
  }

  async refreshAll(): Promise<void> {
    await Promise.all([this.refresh('status'), this.refresh('list'), this.refresh('models')]);
  }

  /** After each connection: everything may have changed, and a restarted Kernel knows nothing of us. */
  async connected(): Promise<void> {
    this.#tokens.clear();
    this.#newest.clear();
    this.#options.store.update({ unrefreshed: new Map() });
    this.#publishControls();
    await this.#catchUp();
    await this.#resumeControl();
    if (this.#toldAway) return;
    this.#toldAway = true;
    const summary = await this.#options.link.request('window/away', { since: this.#options.awaySince });
    if (summary.items.length > 0) this.#options.onAway(summary);
  }

  receive<N extends Notification>(name: N, params: NotificationParams<N>): void {
    const notification = { name, params } as {
      [K in Notification]: { readonly name: K; readonly params: NotificationParams<K> };
    }[Notification];
    switch (notification.name) {
      case 'evidence/events':
        this.#receiveEvents(notification.params.events);
        return;
      case 'kernel/changed':
        void this.refresh(notification.params.session ?? 'status');
        if (notification.params.what === 'session') void this.refresh('list');
        return;
      case 'session/live': {
        const { store } = this.#options;
        const { session, live } = notification.params;
        const known = store.state.sessions.get(session);
        if (known === undefined) return;
        const value: SessionView = { ...known.value, live };
        store.update({ sessions: withEntry(store.state.sessions, session, { value, at: known.at }) });
        return;
      }
      case 'session/controlLost':
        this.released(notification.params.session);
        this.#options.onControlLost(notification.params.session, notification.params.by);
        return;
      case 'kernel/stopping':
        return; // the link's own matter
      default:
        notification satisfies never;
    }
  }

  #receiveEvents(events: readonly EvidenceEvent[]): void {
    const fresh = events.filter((event) => event.seq > this.#lastSeq);
    const first = fresh[0];
    const last = fresh.at(-1);
    if (first === undefined || last === undefined) return;
    if (first.seq !== this.#lastSeq + 1) {
      this.#behind = true;
      this.#tryToCatchUp();
      return;
    }
    this.#lastSeq = last.seq;
    this.#apply(fresh);
  }

  #apply(events: readonly EvidenceEvent[]): void {
    this.#options.onEvents(events);
    const sessions = new Set(events.map(sessionOf).filter((session) => session !== undefined));
    for (const session of sessions) {
      void this.refresh(session);
      if (this.#watched.has(session)) void this.refresh(`workspace:${session}`);
    }
  }

  #tryToCatchUp(): void {
    void this.#catchUp().catch((error: unknown) => this.#options.logError('catching up', error));
  }

  /** Asks for what was missed; several gaps at once are one question. */
  #catchUp(): Promise<void> {
    this.#catchingUp ??= this.#catchUpOnce().finally(() => {
      this.#catchingUp = undefined;
    });
    return this.#catchingUp;
  }

  async #catchUpOnce(): Promise<void> {
    const { store, link } = this.#options;
    this.#setCatchingUp(true);
    const first = this.#lastSeq === 0;
    const missed = await link.request('evidence/subscribe', { lastSeenSeq: this.#lastSeq });
    this.#lastSeq = missed.seq;
    // Before anything else is asked: a gap that opens while the views are brought is another one.
    this.#behind = false;
    // At the first time the past is not news: the views say what it came to.
    if (!first && !missed.snapshot) this.#apply(missed.events);
    await this.refreshAll();
    const open = (store.state.summaries?.value ?? []).filter((summary) => summary.state !== 'closed');
    const needed = new Set([...open.slice(0, openedAtStart).map(({ id }) => id), ...store.state.sessions.keys()]);
    await Promise.all([
      ...[...needed].map((session) => this.refresh(session)),
      ...[...this.#watched].map((session) => this.refresh(`workspace:${session}`)),
    ]);
    this.#setCatchingUp(false);
  }

  #setCatchingUp(catchingUp: boolean): void {
    const { store } = this.#options;
    const connection = store.state.connection;
    if (connection.kind === 'connected' && connection.catchingUp !== catchingUp) {
      store.update({ connection: { ...connection, catchingUp } });
    }
  }

  /** After a reload or a lost connection: control of what this same client controlled is ours to take back. */
  async #resumeControl(): Promise<void> {
    const { store, link, clientId, logError } = this.#options;
    const ours = [...store.state.sessions.values()].filter(
      ({ value }) => value.controller?.clientId === clientId && value.state !== 'closed',
    );
    for (const { value } of ours) {
      try {
        const { session, token } = await link.request('session/attach', { session: value.id, mode: 'control' });
        this.took(session, token);
      } catch (error) {
        logError(`taking back control of ${value.id}`, error);
      }
    }
  }

  #publishControls(): void {
    this.#options.store.update({ controls: new Set(this.#tokens.keys()) });
  }

  async #fetch(key: RefreshKey): Promise<void> {
    const { store, link, now } = this.#options;
    switch (key) {
      case 'status': {
        this.putStatus(await link.request('kernel/status', {}));
        return;
      }
      case 'models': {
        const value = await link.request('kernel/models', {});
        store.update({ models: { value, at: now() } });
        return;
      }
      case 'list': {
        const { sessions } = await link.request('session/list', { limit: 200 });
        store.update({ summaries: { value: sessions, at: now() } });
        return;
      }
      default: {
        if (key.startsWith('workspace:')) {
          const session = key.slice('workspace:'.length) as SessionId;
          await this.#unlessGone(session, async () => {
            const listing = await link.request('workspace/list', { session });
            store.update({ workspaces: withEntry(store.state.workspaces, session, { value: listing, at: now() }) });
          });
          return;
        }
        if (key.startsWith('contract:')) {
          const digest = ContractDigest.parse(key.slice('contract:'.length));
          const contract = await link.request('contract/get', { digest });
          store.update({ contracts: withEntry(store.state.contracts, digest, contract) });
          return;
        }
        const session = key as SessionId;
        await this.#unlessGone(session, async () => this.put(await link.request('session/get', { session })));
      }
    }
  }

  /** A session that the Kernel's record does not have (any more) is not shown as if it were there. */
  async #unlessGone(session: SessionId, fetch: () => Promise<void>): Promise<void> {
    try {
      await fetch();
      return;
    } catch (error) {
      if (!EscrowError.is(error, 'NotFound')) throw error;
    }
    const { store } = this.#options;
    const without = <V>(map: ReadonlyMap<SessionId, V>): ReadonlyMap<SessionId, V> =>
      new Map([...map].filter(([id]) => id !== session));
    this.#watched.delete(session);
    this.#newest.delete(session);
    store.update({ sessions: without(store.state.sessions), workspaces: without(store.state.workspaces) });
  }
}
