import { digestOf } from '../../protocol/hash.ts';
import type { ContractDigest, Sha256 } from '../../protocol/primitives.ts';
import type { Binding } from '../../protocol/views.ts';
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

const keyOf = (contract: ContractDigest, key: Sha256): string => `${contract}:${key}`;

/** Attempts counted for (contract, qualification key), over all sessions. Opening another session resets nothing. */
export function readLedger(store: Store, contract: ContractDigest, key: Sha256): Ledger {
  const row = store.view('ledger', keyOf(contract, key));
  return row === undefined ? { spent: 0, extended: 0 } : (row.json as unknown as Ledger);
}

/** The ledger's row after some events of a session, to be written in the same transaction; undefined when unchanged. */
export function ledgerRow(
  store: Store,
  contract: ContractDigest,
  key: Sha256,
  events: readonly StoredEvent[],
): ViewRow | undefined {
  const before = readLedger(store, contract, key);
  const spent = events.filter((e) => e.type === 'attempt.reserved').length;
  const extended = events.reduce(
    (sum, e) => (e.type === 'budget.extended' ? sum + (e.data as unknown as { attempts: number }).attempts : sum),
    0,
  );
  const at = events.at(-1)?.at;
  if (at === undefined || (spent === 0 && extended === 0)) return undefined;
  return {
    kind: 'ledger',
    key: keyOf(contract, key),
    root: '',
    createdAt: at,
    updatedAt: at,
    json: { spent: before.spent + spent, extended: before.extended + extended },
  };
}
