import type { FrozenContract } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';

/** What a verification is made of: see `verificationFiles`. */
export interface VerificationInput<F> {
  readonly contract: FrozenContract;
  readonly snapshot: readonly F[];
  /** Every writable file that the candidate has; one that is missing here was deleted. */
  readonly candidate: readonly F[];
  readonly supplemental: readonly F[];
}

/**
 * Snapshot, then the candidate's writable files over it, then the protected files from the snapshot again, then the
 * supplemental ones: a candidate can neither bring a file that the contract does not let it write nor replace one that
 * judges it. Throws on a candidate that names any other file: it was not made from this contract. Pure.
 */
export function verificationFiles<F extends { readonly path: RelPath }>(input: VerificationInput<F>): readonly F[] {
  const { contract } = input;
  const writable = new Set<RelPath>(contract.writable.map((w) => w.path));
  const placed = new Map<RelPath, F>();
  for (const file of input.snapshot) if (!writable.has(file.path)) placed.set(file.path, file);
  for (const file of input.candidate) {
    if (!writable.has(file.path)) throw new Error(`the candidate holds ${file.path}, which is not writable`);
    placed.set(file.path, file);
  }
  const originals = new Map(input.snapshot.map((file) => [file.path, file]));
  for (const entry of contract.files) {
    if (!entry.protected) continue;
    const original = originals.get(entry.path);
    if (original === undefined) throw new Error(`the protected file ${entry.path} is not in the snapshot`);
    placed.set(entry.path, original);
  }
  for (const file of input.supplemental) placed.set(file.path, file);
  return [...placed.values()];
}
