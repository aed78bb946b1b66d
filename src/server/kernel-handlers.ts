import { EscrowError } from '../protocol/errors.ts';
import type { KernelStatus } from '../protocol/status.ts';
import type { ContractBook } from './contract/contract-book.ts';
import { checkContract, freezeContract } from './contract/freeze-contract.ts';
import type { Engines } from './engines.ts';
import { eventOnWire, type EvidenceFeed } from './evidence-feed.ts';
import type { HealthWatch } from './health.ts';
import type { ImageService } from './image/image-service.ts';
import type { ReviewDesk } from './review/review-desk.ts';
import type { ConnectedClient, Handlers } from './rpc/port.ts';
import type { ScopeChecker } from './scope/port.ts';
import { awaySummary } from './session/away.ts';
import type { Control } from './session/control.ts';
import type { Leftovers } from './session/leftovers.ts';
import { applyRetention } from './session/retention.ts';
import type { SalvageBook } from './session/salvaged.ts';
import type { SessionDesk } from './session/session-desk.ts';
import type { Sessions } from './session/sessions.ts';
import type { Slots } from './session/slots.ts';
import { openAttempt } from './session/state.ts';
import { candidateView } from './session/view.ts';
import type { WorkspaceView } from './session/workspace-view.ts';
import type { Store } from './store/port.ts';
import type { Tasks } from './tasks.ts';
import type { Verifier } from './verification/verifier.ts';

export interface KernelParts {
  readonly store: Store;
  readonly sessions: Sessions;
  readonly contracts: ContractBook;
  readonly scope: ScopeChecker;
  readonly engines: Engines;
  readonly images: ImageService;
  readonly health: HealthWatch;
  readonly slots: Slots;
  readonly tasks: Tasks;
  readonly desk: SessionDesk;
  readonly control: Control;
  readonly verifier: Verifier;
  readonly review: ReviewDesk;
  readonly workspace: WorkspaceView;
  readonly leftovers: Leftovers;
  readonly salvaged: SalvageBook;
  readonly feed: EvidenceFeed;
  readonly clients: () => readonly ConnectedClient[];
  readonly status: () => Promise<KernelStatus>;
  /** Asks the shell to end the Kernel once this request has been answered. */
  readonly stop: (settle: boolean) => void;
}

/** Each method and the one use case that it asks for. */
export function kernelHandlers(parts: KernelParts): Handlers {
  const { store, sessions, contracts, scope, engines, images, health, slots, tasks, desk, control } = parts;
  const { verifier, review, workspace, leftovers, salvaged, feed, clients, status, stop } = parts;
  const session = (id: Parameters<SessionDesk['view']>[0]): ReturnType<SessionDesk['view']> => desk.view(id);

  return {
    'kernel/status': () => status(),
    'kernel/probe': async () => {
      await health.probe();
      desk.nudge();
      tasks.own('recovery of integrations', review.reconcile());
      verifier.reconcile();
      tasks.own('sweep of leftovers', leftovers.sweep());
      return status();
    },
    'kernel/stop': ({ settle }) => {
      if (
        !settle &&
        (slots.active.length > 0 || sessions.open().some((id) => openAttempt(sessions.get(id)) !== undefined))
      ) {
        throw new EscrowError(
          'WrongState',
          'Something is running or not settled.',
          'Stop with settling, or wait until it has ended.',
          {
            active: slots.active.map((a) => a.label),
          },
        );
      }
      stop(settle);
      return { stopping: true };
    },
    'kernel/verify': async () => {
      const [{ events, broken }, { checked, faults }] = await Promise.all([
        store.verifyLog(),
        store.artefacts.verify(),
      ]);
      return { events, broken: [...broken], artefacts: checked, damaged: [...faults] };
    },
    'kernel/backup': async ({ folder }) =>
      folder === undefined ? { folder: null, ...store.previewBackup() } : store.backUp(folder),
    'kernel/retention': ({ before, reviewer }) => applyRetention(sessions, store, { before, by: reviewer }),
    'kernel/models': () => engines.models(),
    'engine/list': () => ({ approvals: [...engines.approvals()] }),
    'engine/approve': ({ host, reviewer }) => engines.approve(host, reviewer),
    'engine/revoke': ({ host, reviewer }) => {
      engines.revoke(host, reviewer);
      return {};
    },

    'contract/check': async ({ path, text }) => {
      const { root, diagnostics } = await checkContract(path, scope, text);
      return { root, diagnostics: [...diagnostics] };
    },
    'contract/freeze': async ({ path }) => {
      const frozen = await freezeContract(path, scope);
      return contracts.record(frozen, await images.baseOf(frozen.contract));
    },
    'contract/get': ({ digest }) => contracts.get(digest),
    'contract/list': ({ root }) => ({ contracts: [...contracts.list(root)] }),
    'contract/baseline': ({ digest }, { signal, progress }) => verifier.baseline(digest, signal, progress),

    'image/plan': (params) => images.plan(params),
    'image/prepare': (params, { signal, progress }) => images.prepare(params, signal, progress),
    'image/decline': ({ plan, reviewer }) => {
      images.desk.decline(plan, reviewer.name, reviewer.channel);
      return {};
    },
    'image/list': () => images.list(),
    'image/prune': (params, { client }) => images.prune(params, client.hello.name),

    'session/start': (params, { client, signal }) => desk.start(client, params, signal),
    'session/list': ({ root, before, beforeSession, limit }) => {
      const rows = sessions.summaries({
        ...(root === undefined ? {} : { root }),
        ...(before === undefined ? {} : { before }),
        ...(beforeSession === undefined ? {} : { beforeKey: beforeSession }),
        limit: limit + 1,
      });
      return { sessions: rows.slice(0, limit), more: rows.length > limit };
    },
    'session/get': ({ session: id }) => session(id),
    'session/events': ({ session: id, after, limit }) => {
      sessions.get(id);
      const events = store.streamSince(`session:${id}`, after, limit + 1);
      return { events: events.slice(0, limit).map(eventOnWire), more: events.length > limit };
    },
    'session/attach': ({ session: id, mode, takeOver }, { client }) => {
      const held = sessions.get(id).controller;
      const token = control.attach(client, id, mode, takeOver);
      if (mode === 'control' && held !== null && held.clientId !== client.clientId) {
        for (const other of clients()) {
          if (other.clientId === held.clientId)
            other.notify('session/controlLost', { session: id, by: client.hello.name });
        }
      }
      return { session: session(id), token };
    },
    'session/detach': ({ session: id }, { client }) => {
      control.detach(client, id);
      return {};
    },
    'session/cancel': ({ session: id, token }, { client }) => {
      // Before anything is ended: a stale token changes nothing.
      control.check(client, sessions.get(id), token, 'cancel');
      return verifier.cancel(id) ? session(id) : desk.cancel(client, id, token);
    },
    'session/attempt': ({ session: id, token, feedback }, { client }) =>
      desk.attempt(client, id, token, feedback ?? null),
    'session/extend': ({ session: id, attempts, reviewer }) => {
      sessions.execute(id, { kind: 'extend-budget', attempts, by: reviewer.name, channel: reviewer.channel });
      return session(id);
    },
    'session/reconcile': (params) => desk.resolvePending(params),
    'session/close': ({ session: id, token }, { client }) => desk.close(client, id, token),

    'candidate/get': ({ session: id, candidate }) => {
      const view = candidateView(sessions.get(id), candidate);
      if (view === undefined)
        throw new EscrowError('NotFound', 'There is no such candidate.', 'Open the session again.');
      return view;
    },
    'candidate/verify': ({ session: id, candidate }, { signal }) => verifier.verify(id, candidate, signal),
    'candidate/accept': async (params) => {
      const integration = await review.accept(params);
      return { session: session(params.session), integration };
    },
    'candidate/reject': ({ session: id, candidate, reviewer, comment, correct }) => {
      // Refused before anything is recorded: a rejection that asks for a correction is one act.
      if (correct) desk.requireQueue(id, comment);
      review.reject(id, candidate, reviewer, comment);
      if (correct) desk.queue(id, comment, null);
      return session(id);
    },
    'candidate/integrate': async ({ session: id, candidate }) => {
      const integration = await review.integrate(id, candidate);
      return { session: session(id), integration };
    },
    'integration/undo': async ({ session: id, integration }) => {
      const undone = await review.undo(id, integration);
      return { session: session(id), integration: undone };
    },

    'artefact/read': async ({ sha256, offset, length }) => {
      const bytes = await store.artefacts.get(sha256);
      const part = bytes.subarray(offset, offset + length);
      return { artefact: { sha256, size: bytes.byteLength }, offset, base64: Buffer.from(part).toString('base64') };
    },
    'salvage/list': ({ before, limit }) => {
      const found = salvaged.list(limit + 1, before);
      return { containers: found.slice(0, limit), more: found.length > limit };
    },
    'salvage/get': ({ engineId, after, limit }) => {
      const { container, files, more } = salvaged.get(engineId, after, limit);
      return { container, files: [...files], more };
    },
    'workspace/list': ({ session: id }) => workspace.list(id),
    'workspace/read': ({ session: id, path }) => workspace.read(id, path),

    'evidence/subscribe': ({ lastSeenSeq }, { client }) => feed.subscribe(client, lastSeenSeq),
    'window/presence': ({ ui, stalledMs }, { client }) => {
      control.presence(client, ui, stalledMs);
      return {};
    },
    'window/closing': (_params, { client }) => {
      control.closing(client);
      return {};
    },
    'window/away': ({ since }) => awaySummary(sessions, since),
  };
}
