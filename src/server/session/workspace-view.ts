import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { FrozenContract } from '../../protocol/contract.ts';
import type { RelPath, SessionId, Sha256 } from '../../protocol/primitives.ts';
import type { Result } from '../../protocol/methods.ts';
import type { WorkspaceFile, WorkspaceSource } from '../../protocol/views.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import { SandboxFault } from '../sandbox/port.ts';
import type { ArtefactStore } from '../store/port.ts';
import type { SessionDesk } from './session-desk.ts';
import type { Sessions } from './sessions.ts';
import { lastAttempt, type SessionState } from './state.ts';

export interface WorkspaceViewDeps {
  readonly sessions: Sessions;
  readonly contracts: ContractBook;
  readonly desk: SessionDesk;
  readonly artefacts: ArtefactStore;
  readonly now: () => number;
}

interface Entry {
  readonly mode: number;
  readonly size: number;
  readonly sha256: Sha256;
}

/**
 * The Kernel-owned workspace of a session for an attached window: the sandbox's live bytes while an attempt runs, else
 * what was collected over the snapshot, else the snapshot. Supplemental files are in none of them.
 */
export class WorkspaceView {
  readonly #deps: WorkspaceViewDeps;
  constructor(deps: WorkspaceViewDeps) {
    this.#deps = deps;
  }

  async list(id: SessionId): Promise<Result<'workspace/list'>> {
    const { state, contract } = this.#of(id);
    const { source, entries } = await this.#entries(state, contract);
    const snapshot = new Map(contract.files.map((f) => [f.path, f.sha256]));
    const files = [...entries].map(([path, entry]): WorkspaceFile => ({
      path,
      ...entry,
      access: accessOf(contract, path),
      changed: snapshot.get(path) !== entry.sha256,
    }));
    return { source, files: files.toSorted((a, b) => (a.path < b.path ? -1 : 1)) };
  }

  /** Throws EscrowError NotFound for a path that the workspace does not have. */
  async read(id: SessionId, path: RelPath): Promise<Result<'workspace/read'>> {
    const { state, contract } = this.#of(id);
    const live = this.#deps.desk.liveSandbox(id);
    if (live !== undefined) {
      try {
        const file = await live.read(path, 'person');
        return {
          source: this.#source('live', state),
          mode: file.mode,
          sha256: file.sha256,
          base64: Buffer.from(file.bytes).toString('base64'),
        };
      } catch (error) {
        if (!SandboxFault.is(error)) throw error;
        if (error.code === 'not-found' || error.code === 'denied') throw notFound(path);
        // The attempt ended meanwhile: what was collected, or the snapshot, is the truth now.
      }
    }
    const { source, entries } = this.#recorded(state, contract);
    const entry = entries.get(path);
    if (entry === undefined) throw notFound(path);
    const bytes = await this.#deps.artefacts.get(entry.sha256);
    return { source, mode: entry.mode, sha256: sha256(bytes), base64: Buffer.from(bytes).toString('base64') };
  }

  #of(id: SessionId): { state: SessionState; contract: FrozenContract } {
    const state = this.#deps.sessions.get(id);
    return { state, contract: this.#deps.contracts.get(state.contractDigest, state.root).contract };
  }

  async #entries(
    state: SessionState,
    contract: FrozenContract,
  ): Promise<{ source: WorkspaceSource; entries: ReadonlyMap<RelPath, Entry> }> {
    const live = this.#deps.desk.liveSandbox(state.id);
    if (live !== undefined) {
      try {
        const manifest = await live.manifest();
        return {
          source: this.#source('live', state),
          entries: new Map(
            manifest.map(({ path, mode, size, sha256: digest }) => [path, { mode, size, sha256: digest }]),
          ),
        };
      } catch (error) {
        if (!SandboxFault.is(error)) throw error;
      }
    }
    return this.#recorded(state, contract);
  }

  #recorded(
    state: SessionState,
    contract: FrozenContract,
  ): { source: WorkspaceSource; entries: ReadonlyMap<RelPath, Entry> } {
    const entries = new Map<RelPath, Entry>(
      contract.files.map((f) => [f.path, { mode: f.mode, size: f.size, sha256: f.sha256 }]),
    );
    const collection = lastAttempt(state)?.collection ?? null;
    if (collection === null || collection.state === 'none') return { source: this.#source('snapshot', state), entries };
    for (const file of collection.files) {
      entries.set(file.path, { mode: file.mode, size: file.ref.size, sha256: file.ref.sha256 });
    }
    if (collection.state === 'complete') for (const path of collection.missing) entries.delete(path);
    return { source: this.#source('candidate', state), entries };
  }

  #source(kind: WorkspaceSource['kind'], state: SessionState): WorkspaceSource {
    return {
      kind,
      attempt: kind === 'snapshot' ? null : (lastAttempt(state)?.id ?? null),
      observedAt: this.#deps.now(),
    };
  }
}

function accessOf(contract: FrozenContract, path: RelPath): WorkspaceFile['access'] {
  if (contract.writable.some((w) => w.path === path)) return 'writable';
  if (contract.files.some((f) => f.path === path && f.protected)) return 'protected';
  return contract.readable.includes(path) ? 'readable' : 'hidden';
}

const notFound = (path: RelPath): EscrowError =>
  new EscrowError('NotFound', `The workspace has no file ${path}.`, 'List the workspace again.', { path });
