import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { Receipt } from '../../protocol/attempt.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';

/** What an engine told of one request, in its own words. Null: it did not tell. Durations in milliseconds. */
export type Told = Pick<
  Receipt,
  | 'modelDigestBefore'
  | 'modelDigestAfter'
  | 'contextLoaded'
  | 'gpuShare'
  | 'loadedBytes'
  | 'promptTokens'
  | 'outputTokens'
  | 'doneReason'
  | 'totalMs'
  | 'loadMs'
  | 'promptMs'
  | 'outputMs'
  | 'cachedTokens'
  | 'notes'
>;

/** The receipt of one request, complete or not. Pure. */
export function makeReceipt(facts: {
  readonly rawRequest: Uint8Array;
  readonly rawResponse: Uint8Array | null;
  /** Where it was taken already. */
  readonly rawDigest: Sha256 | null;
  readonly expected: ModelIdentity;
  readonly told: Told;
  /** The stream came to its proper end. */
  readonly ended: boolean;
  readonly wallMs: number;
  /** What was found wrong: any finding leaves the receipt unverified and the turn undelivered. */
  readonly findings: readonly string[];
}): Receipt {
  return {
    requestDigest: sha256(facts.rawRequest),
    responseDigest: facts.rawDigest ?? (facts.rawResponse === null ? null : sha256(facts.rawResponse)),
    ...facts.told,
    wallMs: hundredths(facts.wallMs),
    verified: facts.ended && facts.findings.length === 0,
    findings: [...facts.findings],
    witness: facts.expected.witness,
  };
}

/** Milliseconds to two digits. */
export function hundredths(ms: number): number {
  return Math.round(ms * 100) / 100;
}
