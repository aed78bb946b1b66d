import { join } from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import type { ParsedParams } from '../../protocol/methods.ts';
import { IntegrationId, type CandidateDigest, type RelPath, type SessionId } from '../../protocol/primitives.ts';
import type { IntegrationView } from '../../protocol/views.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import { withPoints } from '../crash-points.ts';
import type { Logger } from '../log.ts';
import type { ConnectedClient } from '../rpc/port.ts';
import type { Command } from '../session/commands.ts';
import { freshId, type Sessions } from '../session/sessions.ts';
import type { SessionState } from '../session/state.ts';
import type { ArtefactStore } from '../store/port.ts';
import {
  applyChanges,
  changesOf,
  movedFiles,
  recoverIntegrations,
  refuseUnsaved,
  reversed,
  standing,
  type Applied,
  type Standing,
} from './integrate.ts';
import { openJournalStore, type FileChange, type JournalStore } from './integration-journal.ts';
import { openTreeFiles, type TreeFiles } from './tree-files.ts';

export interface ReviewDeskDeps {
  readonly sessions: Sessions;
  readonly contracts: ContractBook;
  readonly artefacts: ArtefactStore;
  readonly home: string;
  readonly clients: () => readonly ConnectedClient[];
  readonly log: Logger;
  readonly at: (point: string) => void;
}

/** How long a window may take to say which editors are unsaved, ms; then that is `unknown`. */
const askMs = 2_000;

/** Calls that touch the user's tree. */
const treeCalls = new Set(['writeNew', 'replace', 'remove', 'makeFolder', 'removeFolder', 'syncFolder']);

/** What an interrupted integration or undo came to, by where its files stand. */
const integratedAt = { new: 'integrated', old: 'refused', between: 'partial' } as const;
const undoneAt = { old: 'undone', new: 'undo_refused', between: 'undo_refused' } as const;

type Reviewer = ParsedParams<'candidate/reject'>['reviewer'];

/** Decisions and what follows from them on the user's tree. Each is its own fact; one at a time on a session. */
export class ReviewDesk {
  readonly #deps: ReviewDeskDeps;
  readonly #journals: JournalStore;
  /** Integrations take turns: two on one tree would each see the other's bytes as a changed base. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(deps: ReviewDeskDeps) {
    this.#deps = deps;
    this.#journals = openJournalStore(join(deps.home, 'integrations'), deps.at);
  }

  async #openTree(root: string): Promise<TreeFiles> {
    return withPoints(await openTreeFiles(root), 'tree', treeCalls, this.#deps.at);
  }

  /** Records acceptance of exactly these bytes, then integrates unless told otherwise. Throws what the decider and `integrate` throw. */
  async accept(params: ParsedParams<'candidate/accept'>): Promise<IntegrationView | null> {
    const { session, candidate, verification, reviewer, comment, integrate } = params;
    const command: Command = {
      kind: 'decide',
      decision: {
        kind: 'accept',
        candidate,
        verification,
        reviewer: reviewer.name,
        channel: reviewer.channel,
        comment,
      },
    };
    this.#deps.sessions.ask(session, command);
    if (integrate) await this.#refuseBefore(session, candidate);
    this.#deps.sessions.execute(session, command);
    this.#deps.at('accepted');
    return integrate ? this.integrate(session, candidate) : null;
  }

  reject(session: SessionId, candidate: CandidateDigest, reviewer: Reviewer, comment: string): void {
    this.#deps.sessions.execute(session, {
      kind: 'decide',
      decision: {
        kind: 'reject',
        candidate,
        verification: null,
        reviewer: reviewer.name,
        channel: reviewer.channel,
        comment,
      },
    });
  }

  /**
   * Applies an accepted candidate to the working tree. A refusal (BaseChanged, UnsavedChanges, UnsafePath, Storage…) has
   * written nothing; it is recorded and thrown.
   */
  integrate(session: SessionId, candidate: CandidateDigest): Promise<IntegrationView> {
    return this.#inTurn(async () => {
      const { sessions } = this.#deps;
      const state = sessions.get(session);
      const changes = this.#changes(state, candidate);
      const unsaved = await this.#unsaved(state.root, changes);
      const id = IntegrationId.parse(freshId('int'));
      sessions.execute(session, {
        kind: 'intend-integration',
        id,
        candidate,
        unsaved: unsaved.known ? 'none' : 'unknown',
      });
      this.#deps.at('integration-intended');
      let applied: Applied;
      let moved: readonly RelPath[];
      try {
        refuseUnsaved(changes, unsaved.paths);
        const tree = await this.#openTree(state.root);
        moved = await movedFiles(
          tree,
          this.#deps.contracts.get(state.contractDigest, state.root).contract.files,
          this.#candidate(state, candidate).files,
        );
        applied = await applyChanges({
          id,
          purpose: 'integrate',
          tree,
          journals: this.#journals,
          changes,
          bytesOf: (sha256) => this.#deps.artefacts.get(sha256),
        });
      } catch (error) {
        this.#observe(session, id, 'refused', error);
        throw error;
      }
      this.#deps.at('integration-applied');
      const seen =
        applied.state === 'applied'
          ? { state: 'integrated' as const, reason: null, newFolders: applied.newFolders }
          : { state: 'partial' as const, reason: applied.reason, newFolders: [] };
      // Not a refusal where this can't be recorded: it stays intended, and the next start looks at the files.
      sessions.execute(session, { kind: 'observe-integration', id, moved, ...seen });
      return this.#row(session, id);
    });
  }

  /** Restores the former bytes if the files are still as integrated; else nothing is written and BaseChanged is thrown. */
  undo(session: SessionId, id: IntegrationId): Promise<IntegrationView> {
    return this.#inTurn(async () => {
      const { sessions } = this.#deps;
      const state = sessions.get(session);
      const owner = state.candidates.find((c) => c.integrations.some((i) => i.id === id));
      if (owner === undefined) {
        throw new EscrowError('NotFound', `There is no integration ${id}.`, 'Open the session again.');
      }
      sessions.execute(session, { kind: 'intend-undo', id });
      this.#deps.at('undo-intended');
      let applied: Applied;
      try {
        const changes = changesOf(owner.files);
        refuseUnsaved(changes, (await this.#unsaved(state.root, changes)).paths);
        const tree = await this.#openTree(state.root);
        // Put back by the person, as git can: there is nothing to write, and so it is undone.
        applied =
          (await standing(tree, changes)) === 'old'
            ? { state: 'applied', newFolders: [] }
            : await applyChanges({
                id,
                purpose: 'undo',
                emptyFolders: owner.newFolders,
                tree,
                journals: this.#journals,
                changes: reversed(changes),
                bytesOf: (sha256) => this.#deps.artefacts.get(sha256),
              });
      } catch (error) {
        this.#observe(session, id, 'undo_refused', error);
        throw error;
      }
      this.#deps.at('undo-applied');
      const [seen, reason] =
        applied.state === 'applied' ? (['undone', null] as const) : (['undo_refused', applied.reason] as const);
      sessions.execute(session, { kind: 'observe-integration', id, state: seen, reason, moved: [] });
      return this.#row(session, id);
    });
  }

  /**
   * After a crash, and whenever somebody looks: journals are finished or undone by looking at the files, then the record
   * says what was seen. What can't be looked at stays as it is: nothing is said of files that nobody saw.
   */
  reconcile(): Promise<void> {
    return this.#inTurn(() => this.#reconcile());
  }

  async #reconcile(): Promise<void> {
    const { sessions, log, artefacts } = this.#deps;
    const { recovered, left } = await recoverIntegrations({
      journals: this.#journals,
      openTree: (root) => this.#openTree(root),
      bytesOf: (sha256) => artefacts.get(sha256),
      isOpen: (id) =>
        sessions
          .open()
          .flatMap((session) => sessions.get(session).candidates)
          .some((c) => c.undoing === id || c.integrations.some((i) => i.id === id && i.state === 'intended')),
      log,
    });
    for (const entry of recovered) log('info', 'an integration was recovered', { ...entry });
    for (const session of sessions.open()) {
      const { root, candidates } = sessions.get(session);
      for (const { files, integrations, undoing } of candidates) {
        const waiting = [...integrations.filter((i) => i.state === 'intended').map((i) => i.id), undoing];
        for (const id of waiting) {
          if (id === null || left.has(id)) continue;
          const place = await this.#look(root, changesOf(files));
          if (place === undefined) continue;
          const state = id === undoing ? undoneAt[place] : integratedAt[place];
          sessions.execute(session, { kind: 'observe-integration', id, state, reason: 'interrupted', moved: [] });
        }
      }
    }
  }

  /** Undefined where the tree can't be opened: an unmounted disk, say. */
  async #look(root: string, changes: readonly FileChange[]): Promise<Standing | undefined> {
    try {
      return await standing(await openTreeFiles(root), changes);
    } catch (error) {
      this.#deps.log('warn', 'a working tree cannot be looked at', { root, error: String(error) });
      return undefined;
    }
  }

  /** What would refuse the integration anyway refuses the acceptance that includes it: nothing half-done stays. */
  async #refuseBefore(session: SessionId, candidate: CandidateDigest): Promise<void> {
    const state = this.#deps.sessions.get(session);
    const changes = this.#changes(state, candidate);
    refuseUnsaved(changes, (await this.#unsaved(state.root, changes)).paths);
    const tree = await openTreeFiles(state.root).catch((error: unknown) => {
      throw new EscrowError(
        'UnsafePath',
        `${state.root} cannot be opened: ${String(error)}`,
        'Open the folder that the contract was frozen in.',
      );
    });
    if ((await standing(tree, changes)) !== 'old') {
      throw new EscrowError(
        'BaseChanged',
        'The files are no longer what the candidate was made from. Nothing was recorded and nothing was written.',
        'Put the files back as they were, or accept without integrating.',
        { paths: changes.map((c) => c.path) },
      );
    }
  }

  #candidate(state: SessionState, digest: CandidateDigest): SessionState['candidates'][number] {
    const candidate = state.candidates.find((c) => c.digest === digest);
    if (candidate === undefined) {
      throw new EscrowError(
        'NotFound',
        'There is no such candidate.',
        'Open the session again: a newer one may have come.',
      );
    }
    return candidate;
  }
  #changes(state: SessionState, digest: CandidateDigest): readonly FileChange[] {
    return changesOf(this.#candidate(state, digest).files);
  }

  /** Asks every window. `known` is false when there was none, or one that did not answer in time. */
  async #unsaved(root: string, changes: readonly FileChange[]): Promise<{ known: boolean; paths: readonly RelPath[] }> {
    const windows = this.#deps.clients().filter((client) => client.hello.kind === 'window');
    const absolute = new Map(changes.map((change) => [join(root, change.path), change.path]));
    const answers = await Promise.all(
      windows.map((window) => window.ask('editor/unsaved', { paths: [...absolute.keys()] }, askMs)),
    );
    return {
      known: windows.length > 0 && answers.every((answer) => answer !== undefined),
      paths: answers.flatMap((answer) => (answer?.unsaved ?? []).flatMap((path) => absolute.get(path) ?? [])),
    };
  }

  #observe(session: SessionId, id: IntegrationId, state: 'refused' | 'undo_refused', error: unknown): void {
    const reason = EscrowError.is(error) ? error.code : 'internal';
    try {
      this.#deps.sessions.execute(session, { kind: 'observe-integration', id, state, reason, moved: [] });
    } catch (again) {
      this.#deps.log('error', 'a refused integration could not be recorded', { session, id, error: String(again) });
    }
  }

  #row(session: SessionId, id: IntegrationId): IntegrationView {
    const row = this.#deps.sessions
      .get(session)
      .candidates.flatMap((c) => c.integrations)
      .find((i) => i.id === id);
    if (row === undefined) throw new Error('an integration vanished from its session');
    return row;
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#turn;
    const mine = before.then(work, work);
    this.#turn = mine.catch(() => undefined);
    return mine;
  }
}
