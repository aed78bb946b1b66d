import { setTimeout as wait } from 'node:timers/promises';
import type { BaselineView, CheckResult, FileScope, FrozenContract } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import {
  RunId,
  type CandidateDigest,
  type ContractDigest,
  type FileEntry,
  type RelPath,
  type SessionId,
} from '../../protocol/primitives.ts';
import type { VerificationView } from '../../protocol/views.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import { dependencyEnvironment, moduleFolders } from '../contract/contract-image.ts';
import type { Logger } from '../log.ts';
import type { ImageIdentity, SandboxService } from '../sandbox/port.ts';
import type { RunLedger, RunPurpose } from '../sandbox/run-ledger.ts';
import type { ScopeChecker } from '../scope/port.ts';
import { scopeGuard, scopeOf } from '../scope/scope-guard.ts';
import { containerName } from '../session/attempt-spec.ts';
import type { Command } from '../session/commands.ts';
import { freshId, type Sessions } from '../session/sessions.ts';
import type { SlotEntry, Slots } from '../session/slots.ts';
import { recordedVerificationOf, verificationTable } from '../session/recovery-table.ts';
import { interrupted, type SessionState } from '../session/state.ts';
import { candidateView } from '../session/view.ts';
import type { ArtefactStore } from '../store/port.ts';
import type { Tasks } from '../tasks.ts';
import { judgeBaseline, judgeVerification } from './judge.ts';
import { runChecks, type CheckRun } from './run-checks.ts';
import { verificationFiles } from './verification-files.ts';

export interface VerifierDeps {
  readonly sessions: Sessions;
  readonly contracts: ContractBook;
  readonly scope: ScopeChecker;
  readonly sandbox: SandboxService;
  readonly slots: Slots;
  readonly tasks: Tasks;
  readonly runs: RunLedger;
  readonly artefacts: ArtefactStore;
  readonly epoch: number;
  /** False while execution is turned off on this machine: nothing is begun that was not asked for. */
  readonly mayBegin: () => boolean;
  readonly log: Logger;
  readonly now: () => number;
  readonly at: (point: string) => void;
}

type Progress = (code: string, detail: string, percent: number | null) => void;

/** Waits between looks at a container whose end was not seen, ms; after so many a Kernel without clients may exit. */
const sweep = { everyMs: 15_000, patientTries: 4 } as const;

/** Baselines and verifications: each in a sandbox of its own, each its own record, one at a time with the attempts. */
export class Verifier {
  readonly #deps: VerifierDeps;
  readonly #active = new Map<string, AbortController>();
  /** Runs whose container this process is using right now: not for the sweep. */
  readonly #running = new Set<string>();
  readonly #ending = new AbortController();
  #sweeping: Promise<void> | undefined;
  #sweeps = 0;

  constructor(deps: VerifierDeps) {
    this.#deps = deps;
  }

  /** Runs the acceptance on the untouched snapshot. Throws EscrowError Cancelled, ContractNotFrozen, ImageUnavailable, EngineUnavailable. */
  async baseline(digest: ContractDigest, outer: AbortSignal, progress: Progress): Promise<BaselineView> {
    // A drain ends it, and waits until its container has been seen gone.
    const work = this.#baseline(digest, AbortSignal.any([outer, this.#ending.signal]), progress);
    this.#deps.tasks.own(
      'baseline',
      work.catch((error: unknown) => {
        if (!EscrowError.is(error)) throw error;
      }),
    );
    return work;
  }

  async #baseline(digest: ContractDigest, signal: AbortSignal, progress: Progress): Promise<BaselineView> {
    const { contracts, sandbox, slots, now } = this.#deps;
    // The digest is the same in every folder, and so is everything a baseline needs.
    const contract = contracts.anyOf(digest);
    const image = await sandbox.image(contracts.imageWanted(contract, digest));
    const run = RunId.parse(freshId('run'));
    progress('waiting', '', null);
    const release = await slots.acquire({ what: 'baseline', id: run, label: contract.title }, signal);
    try {
      const checks = contract.checks.filter((c) => c.kind === 'acceptance');
      const { files } = contract;
      const facts = await this.#run(
        { run, purpose: 'baseline', session: null, subject: digest, owner: `contract:${digest}` },
        { contract, image, files, checks, baseline: null, signal, progress },
      );
      if (facts.fault?.code === 'cancelled') {
        throw new EscrowError('Cancelled', 'The baseline was cancelled.', 'Check it again when you want it.');
      }
      if (facts.fault?.code === 'engine') {
        throw new EscrowError('EngineUnavailable', facts.fault.message, 'Run `escrow doctor` and do what it says.');
      }
      const view: BaselineView = {
        contractDigest: digest,
        runId: run,
        imageDigest: image.digest,
        at: now(),
        ...judgeBaseline(contract.checks, facts),
        checks: [...facts.checks],
      };
      contracts.recordBaseline(view);
      return view;
    } finally {
      release();
    }
  }

  /** Verifies a candidate (again) and gives the finished record. Throws EscrowError IncompleteCollection, WrongState. */
  async verify(session: SessionId, candidate: CandidateDigest, signal?: AbortSignal): Promise<VerificationView> {
    const run = RunId.parse(freshId('run'));
    this.#deps.sessions.execute(session, { kind: 'request-verification', run, candidate });
    await this.#verifyRun(session, run, candidate, signal);
    const view = candidateView(this.#deps.sessions.get(session), candidate)?.verifications.find((v) => v.runId === run);
    if (view === undefined) throw new Error('a verification vanished from its session');
    return view;
  }

  /** Begins what the record of a session owes: verifications that nobody has to ask for. */
  verifyOwed(session: SessionId): void {
    const { mayBegin, sessions, tasks } = this.#deps;
    if (!mayBegin() || this.#ending.signal.aborted) return;
    const state = sessions.get(session);
    for (const candidate of state.candidates) {
      if (verificationTable[recordedVerificationOf(state, candidate)] === 'verify')
        tasks.own('verification', this.verify(session, candidate.digest));
    }
  }

  /** Cancels what verifies candidates of a session. False when nothing did. */
  cancel(session: SessionId): boolean {
    const runs = this.#deps.sessions.get(session).verifications.filter((v) => v.state !== 'done');
    let any = false;
    for (const { run } of runs) {
      const abort = this.#active.get(run);
      abort?.abort();
      any ||= abort !== undefined;
    }
    return any;
  }

  cancelAll(): void {
    this.#ending.abort();
    for (const abort of this.#active.values()) abort.abort();
  }

  /**
   * After a start, and whenever somebody looks: verifications that nobody runs are incomplete, never passed, and what is
   * owed begins. Containers that were left are ended and seen absent.
   */
  reconcile(): void {
    const { runs, sessions, tasks } = this.#deps;
    for (const id of sessions.open()) {
      for (const { run, state } of sessions.get(id).verifications) {
        if (state !== 'done' && !this.#active.has(run))
          this.#finish(id, run, { result: 'incomplete', reasons: [interrupted], checks: [], scope: [] });
      }
      this.verifyOwed(id);
    }
    if (runs.live().length > 0) tasks.own('sweep of runs', this.#sweep());
  }

  idle(): boolean {
    return this.#active.size === 0 && (this.#deps.runs.live().length === 0 || this.#sweeps >= sweep.patientTries);
  }

  async #verifyRun(session: SessionId, run: RunId, candidate: CandidateDigest, outer?: AbortSignal): Promise<void> {
    const { sessions, contracts, slots } = this.#deps;
    const abort = new AbortController();
    this.#active.set(run, abort);
    // One that follows an attempt which ended during a drain begins no new work either.
    const signal = AbortSignal.any([abort.signal, this.#ending.signal, ...(outer === undefined ? [] : [outer])]);
    /** One that a drain ended is the next Kernel's; one that a person ended is not begun again. */
    const ended = (): readonly string[] => (this.#ending.signal.aborted ? [interrupted] : []);
    let release: (() => void) | undefined;
    let scope: readonly FileScope[] = [];
    try {
      const state = sessions.get(session);
      release = await slots.acquire({ what: 'verification', id: run, label: state.title }, signal);
      sessions.execute(session, { kind: 'start-verification', run });
      const { contract } = contracts.get(state.contractDigest, state.root);
      const candidateFiles = filesOf(state, contract, candidate);
      // First, and whatever comes of it the checks run: what they show is evidence, too.
      scope = await this.#scope(contract, candidateFiles);
      const files = verificationFiles<FileEntry>({
        contract,
        snapshot: contract.files,
        candidate: candidateFiles,
        supplemental: contract.supplementalFiles,
      });
      const image: ImageIdentity = { ...state.binding.image, executorDigest: state.binding.executorDigest };
      const facts = await this.#run(
        { run, purpose: 'verification', session, subject: candidate, owner: session },
        {
          contract,
          image,
          files,
          checks: contract.checks,
          baseline: contracts.baseline(state.contractDigest)?.checks ?? null,
          signal,
          progress: () => undefined,
        },
      );
      const { result, reasons } = judgeVerification(contract.checks, facts, scope);
      const all = [...(result === 'incomplete' ? ended() : []), ...reasons];
      this.#finish(session, run, { result, reasons: all, checks: facts.checks, scope });
    } catch (error) {
      const reasons = [...ended(), EscrowError.is(error) ? error.code : 'internal'];
      this.#finish(session, run, { result: 'incomplete', reasons, checks: [], scope });
      if (!EscrowError.is(error)) throw error;
    } finally {
      this.#active.delete(run);
      release?.();
    }
  }

  #finish(
    session: SessionId,
    run: RunId,
    found: Omit<Extract<Command, { kind: 'finish-verification' }>, 'kind' | 'run'>,
  ): void {
    this.#deps.sessions.execute(session, { kind: 'finish-verification', run, ...found });
  }

  /** The snapshot's bytes against the candidate's, of every file whose symbols the contract names; each read alone. */
  #scope(contract: FrozenContract, candidate: readonly FileEntry[]): Promise<readonly FileScope[]> {
    const { bytesOf } = this.#deps.contracts;
    const now = new Map<RelPath, FileEntry>(candidate.map((file) => [file.path, file]));
    const guard = scopeGuard(contract, this.#deps.scope, bytesOf);
    return scopeOf(contract, guard, async (path) => {
      const file = now.get(path);
      return { bytes: file === undefined ? null : await bytesOf(file), executable: ((file?.mode ?? 0) & 0o111) > 0 };
    });
  }

  async #run(
    record: { run: RunId; purpose: RunPurpose; session: SessionId | null; subject: string; owner: string },
    input: {
      contract: FrozenContract;
      image: ImageIdentity;
      files: readonly FileEntry[];
      checks: FrozenContract['checks'];
      baseline: readonly CheckResult[] | null;
      signal: AbortSignal;
      progress: Progress;
    },
  ): Promise<CheckRun> {
    const { runs, sandbox, artefacts, epoch, at, tasks } = this.#deps;
    const { run, purpose, session, subject, owner } = record;
    const name = containerName(purpose, run);
    runs.intend(run, { purpose, container: name, session, subject });
    this.#running.add(run);
    at(`${purpose}-intended`);
    const facts = await runChecks({
      service: sandbox,
      artefacts,
      artefactOwner: owner,
      name,
      purpose,
      owner: run,
      session,
      epoch,
      image: input.image,
      profile: input.contract.profile,
      files: input.files,
      bytesOf: this.#deps.contracts.bytesOf,
      scratch: input.contract.scratch,
      modules: moduleFolders(input.contract),
      environment: dependencyEnvironment(input.contract),
      checks: input.checks,
      baseline: input.baseline,
      hooks: {
        onProvision: (fact) => {
          runs.provisioned(run, fact);
          at(`${purpose}-${fact.kind}`);
        },
        onCheckStarted: (id, index, of) => input.progress('check', id, Math.round((100 * index) / of)),
        onStop: (seen) => {
          runs.stopped(run, seen);
          at(`${purpose}-stopped`);
        },
        onAbsent: (seen) => runs.absent(run, seen),
      },
      signal: input.signal,
    }).finally(() => this.#running.delete(run));
    if (runs.live().includes(run)) tasks.own('sweep of runs', this.#sweep());
    return facts;
  }

  /** Ends what runs left behind, with bounded patience; only a seen absence takes a run off the list. */
  #sweep(): Promise<void> {
    this.#sweeping ??= this.#sweepLeftovers().finally(() => {
      this.#sweeping = undefined;
    });
    return this.#sweeping;
  }

  #placeOf(run: string): SlotEntry {
    const { purpose, session } = this.#deps.runs.intentOf(run);
    return { what: purpose, id: run, label: session === null ? '' : this.#titleOf(session) };
  }

  /** Empty for a session whose record is damaged: its container is ended all the same. */
  #titleOf(session: SessionId): string {
    try {
      return this.#deps.sessions.get(session).title;
    } catch {
      return '';
    }
  }

  async #sweepLeftovers(): Promise<void> {
    const { runs, sandbox, slots, log } = this.#deps;
    const left = (): readonly string[] => runs.live().filter((run) => !this.#running.has(run));
    for (this.#sweeps = 0; this.#sweeps < sweep.patientTries && !this.#ending.signal.aborted; this.#sweeps += 1) {
      // Each takes its place at once: what begins meanwhile waits until it is gone.
      const places = left().map((run) => ({ run, release: slots.occupy(this.#placeOf(run)) }));
      try {
        for (const { run, release } of places) {
          const gone = await runs.settle(run, sandbox);
          log(gone ? 'info' : 'warn', 'swept a run', { run, gone });
          release();
        }
      } finally {
        for (const { release } of places) release();
      }
      if (left().length === 0) return;
      await wait(sweep.everyMs, undefined, { signal: this.#ending.signal }).catch(() => undefined);
    }
  }
}

/** Every writable file of a candidate: as it was collected where that changed it, else as it was. */
function filesOf(state: SessionState, contract: FrozenContract, digest: CandidateDigest): readonly FileEntry[] {
  const candidate = state.candidates.find((c) => c.digest === digest);
  if (candidate === undefined) throw new Error(`candidate ${digest} is not in its session`);
  const changes = new Map(candidate.files.map((f) => [f.path, f]));
  const originals = new Map<RelPath, FileEntry>(contract.files.map((f) => [f.path, f]));
  return contract.writable.flatMap(({ path }): FileEntry[] => {
    const change = changes.get(path);
    const original = originals.get(path);
    if (change === undefined) return original === undefined ? [] : [original];
    if (change.after === null) return [];
    return [{ path, mode: change.afterMode ?? original?.mode ?? 0o644, ...change.after }];
  });
}
