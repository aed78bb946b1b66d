import type { Receipt } from '../../protocol/attempt.ts';

/** What the receipts of an attempt add up to. Null: none of them told it. */
export interface Usage {
  readonly failed: number;
  readonly promptTokens: number | null;
  readonly outputTokens: number | null;
  readonly cachedTokens: number | null;
  readonly providerMs: number | null;
  readonly loadMs: number | null;
  readonly inferenceMs: number;
}

export const noUsage: Usage = {
  failed: 0,
  promptTokens: null,
  outputTokens: null,
  cachedTokens: null,
  providerMs: null,
  loadMs: null,
  inferenceMs: 0,
};

const plus = (sum: number | null, told: number | null): number | null => (told === null ? sum : (sum ?? 0) + told);

/** Adds one receipt; a request that failed before any receipt counts as failed alone. Pure. */
export function used(before: Usage, receipt: Receipt | null, failed: boolean): Usage {
  return {
    failed: before.failed + (failed ? 1 : 0),
    promptTokens: plus(before.promptTokens, receipt?.promptTokens ?? null),
    outputTokens: plus(before.outputTokens, receipt?.outputTokens ?? null),
    cachedTokens: plus(before.cachedTokens, receipt?.cachedTokens ?? null),
    providerMs: plus(before.providerMs, receipt?.totalMs ?? null),
    loadMs: plus(before.loadMs, receipt?.loadMs ?? null),
    inferenceMs: before.inferenceMs + (receipt?.wallMs ?? 0),
  };
}
