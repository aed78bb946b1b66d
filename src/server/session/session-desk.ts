import { EscrowError } from '../../protocol/errors.ts';
import type { ParsedParams } from '../../protocol/methods.ts';
import { AttemptId, type FencingToken, type SessionId } from '../../protocol/primitives.ts';
import type { LiveInference, SettlementTrigger } from '../../protocol/attempt.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { SessionView } from '../../protocol/views.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import type { Logger } from '../log.ts';
import type { ConnectedClient } from '../rpc/port.ts';
import type { Sandbox } from '../sandbox/port.ts';
import type { Tasks } from '../tasks.ts';
import type { AttemptDriver } from './attempt-driver.ts';
import type { Control } from './control.ts';
import { qualificationKey } from './ledger.ts';
import { freshId, type Sessions } from './sessions.ts';
import type { Slots } from './slots.ts';
import { lastAttempt, openAttempt } from './state.ts';
import { sessionView } from './view.ts';

export interface SessionDeskDeps {
  readonly sessions: Sessions;
  readonly contracts: ContractBook;
  readonly slots: Slots;
  readonly tasks: Tasks;
  readonly log: Logger;
  readonly holder: string;
  readonly bind: (params: ParsedParams<'session/start'>, contract: ReturnType<ContractBook['get']>) => Promise<Binding>;
  readonly driver: (session: SessionId, attempt: AttemptId) => AttemptDriver;
  /** False while execution is turned off on this machine: what waits stays waiting. */
  readonly mayBegin: () => boolean;
  /** Called when an attempt settled as a candidate: verification follows by itself. */
  readonly candidateHeld: (session: SessionId) => void;
  readonly changed: (session: SessionId | null) => void;
  /** The request that runs at this moment, for views. */
  readonly live: (session: SessionId) => LiveInference | null;
  /** What the container engine says of an attempt's container now. Never rejects. */
  readonly sees: (session: SessionId, attempt: AttemptId) => Promise<string>;
}

/** The use cases of sessions: start, wait for the slot, attempt, cancel, close; owns the drivers of what runs. */
export class SessionDesk {
  readonly #deps: SessionDeskDeps;
  #control: Control | undefined;
  readonly #waiting = new Map<SessionId, AbortController>();
  readonly #drivers = new Map<SessionId, AttemptDriver>();
  /** Waiting attempts that could not be counted because the record could not be written. */
  readonly #stalled = new Set<SessionId>();
  /** Everything is being settled for good: nothing begins any more. */
  #ending = false;

  constructor(deps: SessionDeskDeps) {
    this.#deps = deps;
  }

  /** Control and desk need each other; the composition root ties the knot once. */
  useControl(control: Control): void {
    this.#control = control;
  }
  get control(): Control {
    if (this.#control === undefined) throw new Error('the desk has no control yet');
    return this.#control;
  }

  view(id: SessionId): SessionView {
    const state = this.#deps.sessions.get(id);
    return sessionView(state, {
      queuePosition: state.queued === null ? null : this.#deps.slots.position(state.queued.attempt),
      controller: this.control.view(state),
      observers: this.control.observers(id),
      ledger: this.#deps.sessions.ledger(state),
      live: this.#deps.live(id),
    });
  }

  /**
   * Every refusal comes before the first write, so nothing half-done stays. `signal` aborts when the client goes: then
   * nobody would control what is started, nor ever be told of it.
   */
  async start(
    client: ConnectedClient,
    params: ParsedParams<'session/start'>,
    signal: AbortSignal,
  ): Promise<{ session: SessionView; token: FencingToken | null }> {
    const { sessions, contracts } = this.#deps;
    const contract = contracts.get(params.digest, params.root);
    const binding = await this.#deps.bind(params, contract);
    if (this.#ending)
      throw new EscrowError(
        'KernelDraining',
        'The Kernel is settling its work and will end.',
        'Try again in a moment.',
      );
    if (signal.aborted)
      throw new EscrowError('Cancelled', 'The start of the session was cancelled.', 'Start it again when you want it.');
    contracts.requireBaseline(params.digest, binding.image.digest);
    const key = qualificationKey(binding);
    const { budget } = contract.contract;
    const ledger = sessions.ledger({ contractDigest: params.digest, qualificationKey: key, budget });
    if (ledger.spent >= ledger.allowed + (params.extend?.attempts ?? 0)) throw budgetSpent(ledger);
    const state = sessions.create({
      contractDigest: params.digest,
      root: contract.root,
      contractPath: contract.path,
      title: contract.contract.title,
      binding,
      budget,
      qualificationKey: key,
    });
    if (params.extend !== undefined) {
      const { attempts, reviewer } = params.extend;
      sessions.execute(state.id, { kind: 'extend-budget', attempts, by: reviewer.name, channel: reviewer.channel });
    }
    const token = params.control ? this.control.attach(client, state.id, 'control', false, true) : null;
    this.queue(state.id, null, token);
    return { session: this.view(state.id), token };
  }

  /** Throws what `queue` would throw now; writes nothing. */
  requireQueue(id: SessionId, feedback: string | null): void {
    const attempt = AttemptId.parse(freshId('att'));
    this.#deps.sessions.ask(id, { kind: 'queue', attempt, feedback, token: null });
  }

  /** Queues another attempt. Throws EscrowError BudgetSpent, WrongState, StaleAuthority. */
  queue(id: SessionId, feedback: string | null, token: FencingToken | null): void {
    const attempt = AttemptId.parse(freshId('att'));
    this.#deps.sessions.execute(id, { kind: 'queue', attempt, feedback, token });
    this.#enqueue(id);
  }

  cancel(client: ConnectedClient, id: SessionId, token: FencingToken): SessionView {
    const state = this.#deps.sessions.get(id);
    this.control.check(client, state, token, 'cancel');
    if (openAttempt(state) !== undefined) this.settle(id, 'cancel');
    else if (state.queued !== null) this.#unqueue(id, 'cancelled');
    else {
      throw new EscrowError(
        'WrongState',
        'Nothing of this session is running or waiting.',
        'Look at the session as it is now.',
      );
    }
    return this.view(id);
  }

  attempt(client: ConnectedClient, id: SessionId, token: FencingToken, feedback: string | null): SessionView {
    this.control.check(client, this.#deps.sessions.get(id), token, 'attempt');
    this.queue(id, feedback, token);
    return this.view(id);
  }

  close(client: ConnectedClient, id: SessionId, token: FencingToken): SessionView {
    const state = this.#deps.sessions.get(id);
    this.control.check(client, state, token, 'close');
    if (state.queued !== null) this.#unqueue(id, 'closed');
    this.#deps.sessions.execute(id, { kind: 'close', reason: 'closed by its controller' });
    return this.view(id);
  }

  /** Begins settlement of what runs. Safe to call again: the first trigger stands. */
  settle(id: SessionId, trigger: SettlementTrigger): void {
    const driver = this.#drivers.get(id);
    if (driver !== undefined) driver.settle(trigger);
    this.#deps.changed(id);
  }

  /** Control passed or ended: a waiting attempt of nobody is parked, one with a controller waits again. */
  controlChanged(id: SessionId): void {
    const state = this.#deps.sessions.get(id);
    if (state.queued !== null && state.queued.parked === null && state.controller === null) this.#park(id);
    else if (state.queued !== null && state.queued.parked !== null && state.controller !== null) {
      this.#deps.sessions.execute(id, { kind: 'unpark' });
      this.#enqueue(id);
    }
    this.#deps.changed(id);
  }

  /** The live sandbox of a session whose attempt is working, for an attached window. */
  liveSandbox(id: SessionId): Sandbox | undefined {
    const open = openAttempt(this.#deps.sessions.get(id));
    return open?.phase === 'running' ? this.#drivers.get(id)?.sandbox : undefined;
  }

  /** Looks again at everything that could not be observed. */
  nudge(): void {
    for (const driver of this.#drivers.values()) driver.nudge();
    for (const id of this.#stalled) {
      this.#stalled.delete(id);
      this.#enqueue(id);
    }
  }

  /**
   * A person ends the wait for an observation, after looking at the facts. Records who, why and what the engine says
   * at this moment. Throws EscrowError WrongState when the attempt is not pending, or waits for something else.
   */
  async resolvePending(params: ParsedParams<'session/reconcile'>): Promise<SessionView> {
    const { session, attempt, since, reviewer, why } = params;
    const saw = await this.#deps.sees(session, attempt);
    this.#deps.sessions.execute(session, {
      kind: 'reconcile',
      attempt,
      since,
      by: reviewer.name,
      channel: reviewer.channel,
      why,
      saw,
    });
    this.#drivers.get(session)?.nudge();
    this.#deps.changed(session);
    return this.view(session);
  }

  /**
   * After a restart: attempts of earlier Kernels are settled as interrupted (the agent is never run again), waiting
   * ones are parked until somebody attaches, or queued again where nobody ever controlled them.
   */
  reconcile(): void {
    for (const id of this.#deps.sessions.open()) {
      const state = this.#deps.sessions.get(id);
      const open = openAttempt(state);
      if (open !== undefined) {
        this.#deps.tasks.own('recovery of an attempt', this.#recover(id, open.id, state.title));
      } else if (state.queued !== null && state.queued.parked === null) {
        if (state.controller === null) this.#enqueue(id);
        else this.#park(id);
      }
    }
  }

  /** Settles all that runs with this trigger; what waits stays recorded as waiting. */
  settleAll(trigger: SettlementTrigger): void {
    this.#ending = true;
    for (const abort of this.#waiting.values()) abort.abort();
    for (const driver of this.#drivers.values()) driver.settle(trigger);
  }

  /** True when everything that still runs waits for an observation that does not come. */
  stuck(): boolean {
    return this.#drivers.size > 0 && [...this.#drivers.values()].every((d) => d.stuck);
  }

  /** Leaves what is not settled to the next Kernel. */
  leave(): void {
    for (const driver of this.#drivers.values()) driver.leave();
  }

  /** True when this process could not move anything further: nothing runs, or what is pending has been looked at often. */
  idle(): boolean {
    return this.#waiting.size === 0 && [...this.#drivers.values()].every((d) => d.exhausted);
  }

  #enqueue(id: SessionId): void {
    const queued = this.#deps.sessions.get(id).queued;
    if (this.#ending || !this.#deps.mayBegin() || queued === null || queued.parked !== null) return;
    if (this.#waiting.has(id) || this.#drivers.has(id)) return;
    const abort = new AbortController();
    this.#waiting.set(id, abort);
    this.#deps.tasks.own('an attempt', this.#waitAndRun(id, queued.attempt, abort));
    this.#deps.changed(id);
  }

  async #waitAndRun(id: SessionId, attempt: AttemptId, abort: AbortController): Promise<void> {
    const { sessions, slots } = this.#deps;
    let release: () => void;
    try {
      release = await slots.acquire({ what: 'attempt', id: attempt, label: sessions.get(id).title }, abort.signal);
    } catch (error) {
      if (EscrowError.is(error, 'Cancelled')) return;
      throw error;
    } finally {
      if (this.#waiting.get(id) === abort) this.#waiting.delete(id);
    }
    try {
      if (abort.signal.aborted || sessions.get(id).queued?.attempt !== attempt) return;
      if (!this.#reserve(id)) return;
      await this.#drive(id, attempt);
    } finally {
      release();
    }
    this.#afterSettlement(id);
  }

  /**
   * Counts the attempt. False where it may not begin: another session spent the budget meanwhile, and it leaves the
   * queue; or the record can't be written, and it stays recorded as waiting until somebody looks (`nudge`).
   */
  #reserve(id: SessionId): boolean {
    try {
      this.#deps.sessions.execute(id, { kind: 'reserve', holder: this.#deps.holder });
      return true;
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      this.#deps.log('warn', 'a waiting attempt could not begin', { session: id, code: error.code });
      if (error.code === 'StorageFull' || error.code === 'StorageUnwritable') this.#stalled.add(id);
      else this.#unqueue(id, error.code);
      return false;
    }
  }

  async #recover(id: SessionId, attempt: AttemptId, label: string): Promise<void> {
    const release = this.#deps.slots.occupy({ what: 'attempt', id: attempt, label });
    try {
      await this.#drive(id, attempt, 'kernel_restart');
    } finally {
      release();
    }
    this.#afterSettlement(id);
  }

  async #drive(id: SessionId, attempt: AttemptId, trigger?: SettlementTrigger): Promise<void> {
    const driver = this.#deps.driver(id, attempt);
    this.#drivers.set(id, driver);
    try {
      if (trigger !== undefined) driver.settle(trigger);
      await driver.drive();
    } finally {
      this.#drivers.delete(id);
      this.#deps.changed(id);
    }
  }

  #afterSettlement(id: SessionId): void {
    const last = lastAttempt(this.#deps.sessions.get(id));
    if (last?.settled?.outcome.kind === 'candidate') this.#deps.candidateHeld(id);
  }

  #unqueue(id: SessionId, reason: string): void {
    this.#waiting.get(id)?.abort();
    this.#waiting.delete(id);
    this.#deps.sessions.execute(id, { kind: 'unqueue', reason });
    this.#deps.changed(id);
  }

  #park(id: SessionId): void {
    this.#waiting.get(id)?.abort();
    this.#waiting.delete(id);
    this.#deps.sessions.execute(id, { kind: 'park', reason: 'no controller' });
    this.#deps.changed(id);
  }
}

function budgetSpent(ledger: { readonly spent: number; readonly allowed: number }): EscrowError {
  return new EscrowError(
    'BudgetSpent',
    `All ${ledger.allowed} attempts of this contract have been spent under this binding, over all sessions.`,
    'Allow more attempts (a recorded decision), or change the contract and freeze it again.',
    { ...ledger },
  );
}
