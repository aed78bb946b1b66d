import { digestOf } from '../../protocol/hash.ts';
import type { ContractDigest, Sha256, WallTime } from '../../protocol/primitives.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { Store, StoredEvent, ViewRow } from '../store/port.ts';

/**
 * Digest of the qualification key: engine and version, model digest, options, switches, prompt and tools, executor,
 * profile. The image of a task is not part of it (the baseline vouches for that).
 */
export function qualificationKey(binding: Binding): Sha256 {
  return digestOf({
    engine: { kind: binding.engine.kind, version: binding.engine.version },
    // Without a digest nothing but what the engine said of the model tells it from another.
    model: binding.model.digest ?? { unproven: binding.model },
    options: binding.options,
    switches: binding.switches,
    prompt: binding.promptDigest,
    executor: binding.executorDigest,
    profile: binding.profile.digest,
  });
}

export interface Ledger {
  readonly spent: number;
  readonly extended: number;
}

export const noLedger: Ledger = { spent: 0, extended: 0 };

const keyOf = (contract: ContractDigest, key: Sha256): string => `${contract}:${key}`;

/** Attempts counted for (contract, qualification key), over all sessions. Opening another session resets nothing. */
export function readLedger(store: Store, contract: ContractDigest, key: Sha256): Ledger {
  const row = store.view('ledger', keyOf(contract, key));
  return row === undefined ? noLedger : (row.json as unknown as Ledger);
}

/** What events of a session add to its ledger. */
export function countedIn(events: readonly StoredEvent[]): Ledger {
  return {
    spent: events.filter((e) => e.type === 'attempt.reserved').length,
    extended: events.reduce(
      (sum, e) => (e.type === 'budget.extended' ? sum + (e.data as unknown as { attempts: number }).attempts : sum),
      0,
    ),
  };
}

export const ledgerSum = (a: Ledger, b: Ledger): Ledger => ({
  spent: a.spent + b.spent,
  extended: a.extended + b.extended,
});

/** The ledger's row, to be written in the same transaction as what changed it. */
export const ledgerRow = (contract: ContractDigest, key: Sha256, ledger: Ledger, at: WallTime): ViewRow => ({
  kind: 'ledger',
  key: keyOf(contract, key),
  root: '',
  createdAt: at,
  updatedAt: at,
  json: { ...ledger },
});
