import { join } from 'node:path';
import type { ParsedParams } from '../protocol/methods.ts';
import type { SessionId } from '../protocol/primitives.ts';
import type { Binding } from '../protocol/binding.ts';
import type { KernelStatus } from '../protocol/status.ts';
import { defaultOptions, withSwitches } from './agent/defaults.ts';
import { runAgent } from './agent/loop.ts';
import { offeredTools, promptDigest } from './agent/prompt.ts';
import { ContractBook } from './contract/contract-book.ts';
import { createLanguageService } from './contract/language.ts';
import { shippedContracts } from './contract/shipped.ts';
import { Engines } from './engines.ts';
import { EvidenceFeed } from './evidence-feed.ts';
import { HealthWatch } from './health.ts';
import { ImageService } from './image/image-service.ts';
import { makeBinding } from './inference/binding.ts';
import { kernelHandlers } from './kernel-handlers.ts';
import type { KernelShellDeps } from './kernel-process.ts';
import { kernelStatus } from './kernel-status.ts';
import { candidateOf } from './review/candidate.ts';
import { ReviewDesk } from './review/review-desk.ts';
import type { Kernel } from './rpc/port.ts';
import { RunLedger } from './sandbox/run-ledger.ts';
import { createSandboxService } from './sandbox/service.ts';
import { scopeGuard } from './scope/scope-guard.ts';
import { ScopeDesk } from './scope/scope-desk.ts';
import { AttemptDriver } from './session/attempt-driver.ts';
import { AttemptInference } from './session/attempt-inference.ts';
import { attemptSpec } from './session/attempt-spec.ts';
import { Control } from './session/control.ts';
import { LiveBoard } from './session/live-board.ts';
import { SalvageBook } from './session/salvaged.ts';
import { SessionDesk } from './session/session-desk.ts';
import { Sessions } from './session/sessions.ts';
import { Slots } from './session/slots.ts';
import { Leftovers } from './session/leftovers.ts';
import { WorkspaceView } from './session/workspace-view.ts';
import { Tasks } from './tasks.ts';
import { Verifier } from './verification/verifier.ts';

/** How long a drain may take to settle what runs, ms: the bounds of each settlement step added up. */
const drainMs = 120_000;
/** Engine, image and inference are looked at anew this often while somebody is connected, ms. */
const probeEveryMs = 30_000;
/** Between looks for containers that nobody owns: a look at what is listed, and rarely more (design 20: periodic). */
const sweepEveryMs = 300_000;

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
  const scope = new ScopeDesk({ program: join(distDir, 'scope.cjs'), grammars: join(distDir, 'grammars'), log });
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
    scope,
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
        scopeOf: (contract) => scopeGuard(contract, scope, (entry) => store.artefacts.get(entry.sha256)),
        specFor: (state, open, contract) =>
          attemptSpec(state, open, contract, contracts, store.artefacts.room(state.id)),
        candidateOf,
        epoch: store.epoch,
        unrecorded: () => broadcast('status', null),
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
      promptDigest: promptDigest(offeredTools(contract.contract)),
      image: await sandbox.image(contracts.imageWanted(contract.contract, contract.digest)),
      profile: { name: contract.contract.profile, digest: sandbox.profileDigest(contract.contract.profile) },
    });
  };

  const salvaged = new SalvageBook(store);
  const leftovers = new Leftovers({ sandbox, sessions, runs, store, salvaged, monotonic, log });
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

  const feed = new EvidenceFeed(store, clients, () => idleListener());

  const status = (): Promise<KernelStatus> =>
    kernelStatus({
      store,
      home,
      instanceId,
      settings,
      startedAt,
      draining: () => draining,
      clients,
      health,
      sandbox,
      sessions,
      runs,
      slots,
      salvaged,
    });
  const handlers = kernelHandlers({
    store,
    sessions,
    contracts,
    scope,
    engines,
    images,
    health,
    slots,
    tasks,
    desk,
    control,
    verifier,
    review,
    workspace,
    leftovers,
    salvaged,
    feed,
    clients,
    status,
    stop: (settle) => stopListener(settle),
  });

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
  const sweeping = setInterval(() => tasks.own('sweep of leftovers', leftovers.sweep()), sweepEveryMs);
  sweeping.unref();

  return {
    handlers,
    language: createLanguageService(scope),
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
      feed.gone(client);
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
      clearInterval(sweeping);
      control.dispose();
      feed.dispose();
      await scope.dispose();
      await engines.dispose();
    },
  };
}
