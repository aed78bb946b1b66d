import { sha256 } from '../../protocol/hash.ts';
import type { BaselineView, ContractView, FrozenContract } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { ContractDigest, FileEntry, RelPath, WallTime } from '../../protocol/primitives.ts';
import type { ImageWanted } from '../sandbox/port.ts';
import { dependencyEntries, languageOf } from './contract-image.ts';
import type { Frozen } from './freeze-contract.ts';
import type { Json, NewEvent, Store, ViewRow } from '../store/port.ts';

type FreezeRecord = Omit<ContractView, 'baseline'>;

/** Files that are written or read at once: twice what the thread pool takes. */
const filesAtOnce = 8;

/** The stream of a contract's record, and the owner of its snapshot's bytes. */
export const contractStream = (digest: ContractDigest): string => `contract:${digest}`;
/** One contract may be frozen in several folders: each is its own record, the digest and the baseline are shared. */
const recordKey = (digest: ContractDigest, root: string): string => `${digest}:${sha256(root)}`;

/** A file of a contract with its bytes. */
export interface KeptFile {
  readonly path: RelPath;
  readonly mode: number;
  readonly bytes: Uint8Array;
}

/** Frozen contracts and their baselines: the record, and the bytes as artefacts. */
export class ContractBook {
  readonly #store: Store;
  readonly #now: () => WallTime;
  readonly #shipped: ReadonlySet<string>;

  constructor(store: Store, now: () => WallTime, shipped: ReadonlySet<string>) {
    this.#store = store;
    this.#now = now;
    this.#shipped = shipped;
  }

  /**
   * Makes all bytes durable, then the record. Freezing the same file again changes nothing, unless its base stands for
   * another image by now: `base` is what it stands for, null where that can't be told.
   */
  async record(frozen: Frozen, base: FreezeRecord['base'] | null = null): Promise<ContractView> {
    const { contract, digest, root, path, sourceSha256 } = frozen;
    const all = [...frozen.bytes.values(), ...frozen.supplementalBytes.values(), ...frozen.imageBytes.values()];
    await this.#store.artefacts.putAll(all, contractStream(digest));
    const known = this.#store.view('contract', recordKey(digest, root));
    const before = known === undefined ? undefined : (known.json as unknown as FreezeRecord);
    const sameBase = base === null || before?.base?.digest === base.digest;
    if (before !== undefined && before.path === path && before.sourceSha256 === sourceSha256 && sameBase) {
      return this.#view(before);
    }
    const frozenAt = this.#now();
    const record: FreezeRecord = {
      digest,
      root,
      path,
      frozenAt,
      contract,
      sourceSha256,
      shipped: this.#shipped.has(digest),
      ...(base === null ? (before?.base === undefined ? {} : { base: before.base }) : { base }),
    };
    // Members that are absent stay absent in JSON.
    const json = record as unknown as Json;
    this.#append(digest, { type: 'contract.frozen', data: json }, [
      {
        kind: 'contract',
        key: recordKey(digest, root),
        root,
        createdAt: known?.createdAt ?? frozenAt,
        updatedAt: frozenAt,
        json,
      },
    ]);
    return this.#view(record);
  }

  /** Throws EscrowError ContractNotFrozen; where several folders froze the same contract, `root` must say which. */
  get(digest: ContractDigest, root?: string): ContractView {
    if (root !== undefined) {
      const row = this.#store.view('contract', recordKey(digest, root));
      if (row !== undefined) return this.#view(row.json as unknown as FreezeRecord);
      throw notFrozen(digest);
    }
    const records = this.#records(digest);
    const [only, ...others] = records;
    if (only === undefined) throw notFrozen(digest);
    if (others.length > 0) {
      throw new EscrowError(
        'InvalidParams',
        'This contract was frozen in more than one folder.',
        'Name the folder that is meant (root).',
        { roots: records.map((r) => r.root) },
      );
    }
    return this.#view(only);
  }

  /** The contract itself, the same in every folder that froze it. Throws EscrowError ContractNotFrozen. */
  anyOf(digest: ContractDigest): FrozenContract {
    const record = this.#records(digest)[0];
    if (record === undefined) throw notFrozen(digest);
    return record.contract;
  }

  /**
   * What the image of a contract is made of. The base is what its reference stood for when it was frozen last, wherever
   * that was; where nothing was there then, what it stands for now.
   */
  imageWanted(contract: FrozenContract, digest: ContractDigest): ImageWanted {
    const record = this.#records(digest).findLast(({ base }) => base?.digest !== undefined && base.digest !== null);
    return {
      base: contract.imageBase,
      pinned: record?.base?.digest ?? null,
      language: languageOf(contract),
      dependencies: contract.imageDependencies ?? null,
      steps: contract.imageSteps ?? [],
    };
  }

  /** Fixes what the base stands for where nothing was there at the freeze: from now on that image counts. */
  fixBase(digest: ContractDigest, base: NonNullable<FreezeRecord['base']>): void {
    for (const record of this.#records(digest)) {
      if (record.base?.digest !== undefined && record.base.digest !== null) continue;
      const fixed = { ...record, base };
      const row = this.#store.view('contract', recordKey(digest, record.root));
      this.#append(digest, { type: 'contract.base-fixed', data: { root: record.root, base } }, [
        {
          kind: 'contract',
          key: recordKey(digest, record.root),
          root: record.root,
          createdAt: row?.createdAt ?? record.frozenAt,
          updatedAt: this.#now(),
          json: fixed as unknown as Json,
        },
      ]);
    }
  }

  /** Lock files and manifests that the image's packages are made from: nothing else of the repository is near. */
  async dependencyFiles(contract: FrozenContract): Promise<readonly KeptFile[]> {
    return eachOf(dependencyEntries(contract), async ({ path, mode, sha256: digest }) => ({
      path,
      mode,
      bytes: await this.#store.artefacts.get(digest),
    }));
  }

  list(root?: string): readonly ContractView[] {
    return this.#store
      .views('contract', { ...(root === undefined ? {} : { root }), limit: 500 })
      .map((row) => this.#view(row.json as unknown as FreezeRecord));
  }

  recordBaseline(view: BaselineView): void {
    const at = this.#now();
    this.#append(view.contractDigest, { type: 'baseline.recorded', data: view }, [
      {
        kind: 'baseline',
        key: view.contractDigest,
        root: '',
        createdAt: at,
        updatedAt: at,
        json: view,
      },
    ]);
  }

  baseline(digest: ContractDigest): BaselineView | null {
    const row = this.#store.view('baseline', digest);
    return row === undefined ? null : (row.json as unknown as BaselineView);
  }

  /** Throws EscrowError BaselineMissing or BaselineNotDiscriminating unless the contract's checks were shown to tell. */
  requireBaseline(digest: ContractDigest, imageDigest: string): BaselineView {
    const baseline = this.baseline(digest);
    if (baseline === null || baseline.imageDigest !== imageDigest) {
      throw new EscrowError(
        'BaselineMissing',
        baseline === null
          ? 'The baseline of this contract has not been checked.'
          : 'The baseline was checked in another image than the one that is there now.',
        'Check the baseline, then start the session.',
        { digest },
      );
    }
    if (baseline.result !== 'discriminates') {
      throw new EscrowError(
        'BaselineNotDiscriminating',
        'The checks of this contract do not tell broken from fixed on the untouched files.',
        'Read the output of the checks, mend the contract, and freeze it again.',
        { problems: baseline.problems },
      );
    }
    return baseline;
  }

  /** The bytes of a file of a snapshot, re-hashed on the way. Throws EscrowError NotFound, ArtefactDamaged. */
  readonly bytesOf = (file: FileEntry): Promise<Uint8Array> => this.#store.artefacts.get(file.sha256);

  #records(digest: ContractDigest): readonly FreezeRecord[] {
    const latest = new Map<string, FreezeRecord>();
    for (const { type, data } of this.#store.load(contractStream(digest))) {
      if (type === 'contract.frozen') {
        const record = data as unknown as FreezeRecord;
        latest.set(record.root, record);
      } else if (type === 'contract.base-fixed') {
        const { root, base } = data as unknown as Required<Pick<FreezeRecord, 'root' | 'base'>>;
        const record = latest.get(root);
        if (record !== undefined) latest.set(root, { ...record, base });
      }
    }
    return [...latest.values()];
  }

  #view(record: FreezeRecord): ContractView {
    return { ...record, baseline: this.baseline(record.digest) };
  }

  #append(digest: ContractDigest, event: NewEvent, rows: readonly ViewRow[]): void {
    const stream = contractStream(digest);
    this.#store.append(stream, this.#store.load(stream).length, [event], () => rows);
  }
}

/** Some at once: each waits for the disk, and a repository has thousands of files. Results in the order of the input. */
async function eachOf<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = [];
  for (let n = 0; n < items.length; n += filesAtOnce) {
    results.push(...(await Promise.all(items.slice(n, n + filesAtOnce).map(work))));
  }
  return results;
}

const notFrozen = (digest: ContractDigest): EscrowError =>
  new EscrowError(
    'ContractNotFrozen',
    `No frozen contract ${digest} is known here.`,
    'Freeze the contract file first.',
  );
