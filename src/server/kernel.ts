import { join } from 'node:path';
import { EscrowError } from '../protocol/errors.ts';
import type { ParsedParams } from '../protocol/methods.ts';
import { protocolVersion } from '../protocol/methods.ts';
import type { SessionId } from '../protocol/primitives.ts';
import { productVersion } from '../protocol/version.ts';
import type { Binding, KernelStatus } from '../protocol/views.ts';
import { defaultOptions, withSwitches } from './agent/defaults.ts';
import { runAgent } from './agent/loop.ts';
import { promptDigest } from './agent/prompt.ts';
import { ContractBook } from './contract/contract-book.ts';
import { checkContract, freezeContract } from './contract/freeze-contract.ts';
import { createLanguageService } from './contract/language.ts';
import { shippedContracts } from './contract/shipped.ts';
import { Engines } from './engines.ts';
import { HealthWatch } from './health.ts';
import { ImageService } from './image/image-service.ts';
import { makeBinding } from './inference/binding.ts';
import type { KernelShellDeps } from './kernel-process.ts';
import { candidateOf } from './review/candidate.ts';
import { ReviewDesk } from './review/review-desk.ts';
import type { Handlers, Kernel } from './rpc/port.ts';
import { RunLedger } from './sandbox/run-ledger.ts';
import { createSandboxService } from './sandbox/service.ts';
import { AttemptDriver } from './session/attempt-driver.ts';
import { AttemptInference } from './session/attempt-inference.ts';
import { attemptSpec } from './session/attempt-spec.ts';
import { awaySummary } from './session/away.ts';
import { Control } from './session/control.ts';
import { LiveBoard } from './session/live-board.ts';
import { applyRetention } from './session/retention.ts';
import { SessionDesk } from './session/session-desk.ts';
import { Sessions } from './session/sessions.ts';
import { Slots } from './session/slots.ts';
import { openAttempt } from './session/state.ts';
import { Leftovers } from './session/leftovers.ts';
import { candidateView } from './session/view.ts';
import { WorkspaceView } from './session/workspace-view.ts';
import type { StoredEvent } from './store/port.ts';
import { Tasks } from './tasks.ts';
import { Verifier } from './verification/verifier.ts';

/** Missed events beyond this are not replayed one by one: the client fetches views anew. */
const replayLimit = 500;
/** How long a drain may take to settle what runs, ms: the bounds of each settlement step added up. */
const drainMs = 120_000;
/** Engine, image and inference are looked at anew this often while somebody is connected, ms. */
const probeEveryMs = 30_000;

/** Composes the Kernel: the only place where its parts meet. */
export function createKernel(deps: KernelShellDeps): Kernel {
  const { store, home, instanceId, now, monotonic, log, distDir, settings, clients, at } = deps;
  const startedAt = now();
  const broadcast = (what: 'status' | 'session', session: SessionId | null): void => {
    for (const client of clients()) client.notify('kernel/changed', { what, session });
    idleListener();
  };
  let idleListener: () => void = () => undefined;
  let stopListener: (settle: boolean) => void = () => undefined;
  let draining = false;

  const tasks = new Tasks(log);
  const executorPath = join(distDir, 'executor.cjs');
  const containers = createSandboxService({
    homeId: store.homeId,
    instanceId,
    executorPath,
    engineHost: settings.engineHost,
    stateFolder: home,
    hostMemory: () => engines.memory.read(),
    at,
    now,
    log,
  });
  const engines = new Engines({
    settings,
    scriptsDirs: settings.rehearsalDir === null ? [join(distDir, 'examples')] : [settings.rehearsalDir],
    store,
    env: process.env,
    log,
    now,
    monotonic,
  });
  const live = new LiveBoard((session, newest) => {
    for (const client of clients()) client.notify('session/live', { session, live: newest });
  });
  const sessions = new Sessions(store, monotonic);
  const slots = new Slots(settings.concurrentSandboxes, () => broadcast('status', null));
  const contracts = new ContractBook(store, now, new Set(Object.values(shippedContracts)));
  const runs = new RunLedger(store, now);
  const images = new ImageService({
    engineHost: settings.engineHost,
    executorPath,
    home,
    store,
    contracts,
    sandbox: containers,
    bound: () => {
      const live = sessions.summaries({ limit: 100_000 }).filter(({ state }) => state !== 'closed');
      return new Set(live.map(({ id }) => sessions.get(id).binding.image.digest));
    },
    changed: () => tasks.own('health', health.probe()),
    tasks,
    log,
    now,
  });
  const sandbox = images.checking();
  const health = new HealthWatch({
    sandbox,
    engines,
    settings,
    store,
    home,
    now,
    changed: () => broadcast('status', null),
  });
  const changed = (session: SessionId | null): void => broadcast(session === null ? 'status' : 'session', session);

  const mayBegin = (): boolean => settings.executionEnabled;
  const verifier = new Verifier({
    sessions,
    contracts,
    sandbox,
    slots,
    tasks,
    runs,
    artefacts: store.artefacts,
    epoch: store.epoch,
    mayBegin,
    log,
    now,
    at,
  });
  const review = new ReviewDesk({ sessions, contracts, artefacts: store.artefacts, home, clients, log, at });

  const driver = (
    session: SessionId,
    attempt: Parameters<ConstructorParameters<typeof SessionDesk>[0]['driver']>[1],
  ): AttemptDriver =>
    new AttemptDriver(
      {
        sessions,
        sandbox,
        artefacts: store.artefacts,
        engineFor: (state) => engines.engineOf(state.binding),
        inferenceFor: async (state, id) =>
          new AttemptInference({
            engine: await engines.engineOf(state.binding),
            binding: state.binding,
            session: state.id,
            attempt: id,
            inventories: engines.inventories,
            memory: engines.memory,
            ceilings: engines.ceilings,
            live: (newest) => live.put(state.id, newest),
            record: (engine) => void sessions.execute(state.id, { kind: 'engine', attempt: id, engine }),
            log,
            monotonic,
          }),
        runAgent,
        contractOf: (state) => contracts.get(state.contractDigest, state.root).contract,
        specFor: (state, open, contract) => attemptSpec(state, open, contract, contracts),
        candidateOf,
        epoch: store.epoch,
        monotonic,
        log,
        at,
      },
      session,
      attempt,
    );

  const bind = async (
    params: ParsedParams<'session/start'>,
    contract: ReturnType<ContractBook['get']>,
  ): Promise<Binding> => {
    const engine = await engines.engine(params.engine);
    // The model is looked at first: a refused tag is said before a missing image is.
    await engine.identity(params.model);
    return makeBinding({
      engine,
      model: params.model,
      defaults: defaultOptions,
      asked: { ...params.options, numPredict: contract.contract.budget.outputTokensPerRequest },
      switches: withSwitches(params.switches),
      promptDigest,
      image: await sandbox.image(contracts.imageWanted(contract.contract, contract.digest)),
      profile: { name: contract.contract.profile, digest: sandbox.profileDigest(contract.contract.profile) },
    });
  };

  const leftovers = new Leftovers({ sandbox, sessions, runs, store, log });
  const desk = new SessionDesk({
    sessions,
    contracts,
    slots,
    tasks,
    log,
    holder: instanceId,
    bind,
    driver,
    mayBegin,
    candidateHeld: (id) => verifier.verifyOwed(id),
    changed,
    live: (id) => live.get(id),
    sees: (id, attempt) => leftovers.sees(id, attempt),
  });
  const control = new Control({
    sessions,
    settle: (id, trigger) => desk.settle(id, trigger),
    controlChanged: (id) => desk.controlChanged(id),
    expectationsChanged: () => idleListener(),
    uiUnreachableMs: settings.uiUnreachableMs,
    log,
    now,
  });
  desk.useControl(control);
  const workspace = new WorkspaceView({ sessions, contracts, desk, artefacts: store.artefacts, now });

  const toWire = ({ hash: _, ...event }: StoredEvent): Omit<StoredEvent, 'hash'> => event;
  const subscribed = new Set<number>();
  const stopListening = store.onAppended((events) => {
    const wire = events.map(toWire);
    for (const client of clients()) {
      if (subscribed.has(client.connection)) client.notify('evidence/events', { events: wire });
    }
    idleListener();
  });

  const status = async (): Promise<KernelStatus> => {
    const { engine, image, inference } = health.parts;
    const containers = await sandbox.list().catch(() => null);
    const ours = containers?.filter((c) => c.ours) ?? null;
    const known = new Set([
      ...sessions.open().flatMap((id) => openAttempt(sessions.get(id))?.id ?? []),
      ...runs.live(),
    ]);
    return {
      version: productVersion,
      protocol: protocolVersion,
      pid: process.pid,
      instanceId,
      epoch: store.epoch,
      startedAt,
      home,
      clients: clients().map(({ clientId, hello }) => ({ clientId, kind: hello.kind, name: hello.name })),
      executionEnabled: settings.executionEnabled,
      draining,
      engine,
      image,
      inference,
      storage: health.storage(),
      queue: [...slots.waiting],
      active: [...slots.active],
      pending: sessions.open().flatMap((id) => {
        const open = openAttempt(sessions.get(id));
        return open === undefined || open.pending === null
          ? []
          : [{ session: id, attempt: open.id, waitingFor: open.pending.waitingFor }];
      }),
      strays: (ours ?? [])
        .filter((c) => c.owner === null || !known.has(c.owner))
        .map(({ name, engineId }) => ({ name, engineId })),
      containers: ours === null ? null : ours.length,
    };
  };

  const session = (id: SessionId): ReturnType<SessionDesk['view']> => desk.view(id);

  const handlers: Handlers = {
    'kernel/status': () => status(),
    'kernel/probe': async () => {
      await health.probe();
      desk.nudge();
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
      stopListener(settle);
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
      const { root, diagnostics } = await checkContract(path, text);
      return { root, diagnostics: [...diagnostics] };
    },
    'contract/freeze': async ({ path }) => {
      const frozen = await freezeContract(path);
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
      return { events: events.slice(0, limit).map(toWire), more: events.length > limit };
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
    'workspace/list': ({ session: id }) => workspace.list(id),
    'workspace/read': ({ session: id, path }) => workspace.read(id, path),

    'evidence/subscribe': ({ lastSeenSeq }, { client }) => {
      subscribed.add(client.connection);
      const missed = store.since(lastSeenSeq, replayLimit + 1);
      const snapshot = lastSeenSeq > store.head() || missed.length > replayLimit;
      return { seq: store.head(), snapshot, events: snapshot ? [] : missed.map(toWire) };
    },
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

  /** Files of a Kernel that died before it could record them. */
  const sweepArtefacts = async (): Promise<void> => {
    const swept = await store.artefacts.sweepOrphans();
    if (swept.files > 0) log('warn', 'swept artefact files without a record', swept);
  };

  const probing = setInterval(() => {
    if (clients().length > 0) tasks.own('health', health.probe());
    // Patience with what cannot be seen runs out without an event of its own.
    idleListener();
  }, probeEveryMs);
  probing.unref();

  return {
    handlers,
    language: createLanguageService(),
    async reconcile() {
      tasks.own('health', health.probe());
      tasks.own('sweep of preparations', images.desk.sweep());
      await review.reconcile();
      verifier.reconcile();
      desk.reconcile();
      tasks.own('sweep of leftovers', leftovers.sweep());
      tasks.own('sweep of artefact files', sweepArtefacts());
      log('info', 'reconciled', { open: sessions.open().length, runs: runs.live().length });
    },
    clientConnected(client) {
      control.connected(client);
      broadcast('status', null);
    },
    clientGone(client) {
      subscribed.delete(client.connection);
      control.gone(client);
      broadcast('status', null);
    },
    idle: () => desk.idle() && verifier.idle() && !control.anyExpected(),
    onIdleChanged(listener) {
      idleListener = listener;
    },
    onStopRequested(listener) {
      stopListener = listener;
    },
    async drain(reason) {
      draining = true;
      log('info', 'draining', { reason });
      for (const client of clients()) client.notify('kernel/stopping', { reason });
      broadcast('status', null);
      verifier.cancelAll();
      images.end();
      desk.settleAll('kernel_drain');
      // What waits for a sight that does not come is the next Kernel's: it is recorded as pending.
      const watch = setInterval(() => {
        if (desk.stuck()) desk.leave();
      }, 500);
      const settled = await tasks.settled(drainMs);
      clearInterval(watch);
      desk.leave();
      if (!settled) log('warn', 'drained with work left: the next Kernel reconciles it', { tasks: tasks.count });
      clearInterval(probing);
      control.dispose();
      stopListening();
      await engines.dispose();
    },
  };
}
