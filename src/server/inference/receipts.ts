import { sha256 } from '../../protocol/hash.ts';
import type { ModelIdentity, Receipt } from '../../protocol/views.ts';
import { canonicalTag } from './cloud.ts';
import type { LoadedModel } from './port.ts';
import type { Chunk } from './wire.ts';

/** What the engine listed at one moment. */
export interface EngineSnapshot {
  readonly version: string;
  readonly tags: readonly { readonly name: string; readonly digest: string }[];
  readonly loaded: readonly LoadedModel[];
}

/** What was found wrong, each with its own consequence: any finding leaves the receipt unverified and the turn undelivered. */
export type Finding =
  | 'model_gone' // the tag is not in the inventory any more
  | 'digest_changed' // the tag names other bytes than the binding's
  | 'engine_changed' // another version answers than at the binding
  | 'loaded_digest_differs' // the loaded list shows the tag with another digest (re-created tag, old runner)
  | 'alias_loaded' // a runner with the same weights under another tag, possibly another template
  | 'not_loaded' // after the answer no runner of the model is listed: context and digest cannot be proven
  | 'context_smaller'
  | 'context_unknown'
  | 'model_substituted'; // a chunk names another model than the one asked

/** The tag's entry in an inventory; names compare as Ollama compares them. */
export function inventoryDigest(snapshot: EngineSnapshot, tag: string): string | null {
  return snapshot.tags.find((t) => canonicalTag(t.name) === canonicalTag(tag))?.digest ?? null;
}

/** The loaded entry that stands for the model: the same digest first (a copy is the same manifest), then the same name. */
export function loadedEntry(snapshot: EngineSnapshot, expected: ModelIdentity): LoadedModel | null {
  return (
    snapshot.loaded.find((m) => m.digest !== null && m.digest === expected.digest) ??
    snapshot.loaded.find((m) => canonicalTag(m.tag) === canonicalTag(expected.tag)) ??
    null
  );
}

/** Inventory against the binding; the same question before and after a request. */
export function inventoryFindings(
  snapshot: EngineSnapshot,
  expected: ModelIdentity,
  version: string | null,
): Finding[] {
  const findings: Finding[] = [];
  const digest = inventoryDigest(snapshot, expected.tag);
  if (digest === null) findings.push('model_gone');
  else if (digest !== expected.digest) findings.push('digest_changed');
  if (version !== null && snapshot.version !== version) findings.push('engine_changed');
  return findings;
}

/** Before a request: a runner that carries the tag's name but other bytes would serve it. */
export function loadedFindingsBefore(snapshot: EngineSnapshot, expected: ModelIdentity): Finding[] {
  const entry = loadedEntry(snapshot, expected);
  return entry !== null && entry.digest !== null && entry.digest !== expected.digest ? ['loaded_digest_differs'] : [];
}

/** After a request, when the runner that answered must be listed. `sameWeights` names a loaded tag with our weights file. */
export function loadedFindingsAfter(
  snapshot: EngineSnapshot,
  expected: ModelIdentity,
  numCtx: number,
  sameWeights: string | null,
): Finding[] {
  const entry = loadedEntry(snapshot, expected);
  if (entry === null) return [sameWeights === null ? 'not_loaded' : 'alias_loaded'];
  const findings: Finding[] = [];
  if (entry.digest !== expected.digest) findings.push('loaded_digest_differs');
  if (entry.contextLength === null) findings.push('context_unknown');
  else if (entry.contextLength < numCtx) findings.push('context_smaller');
  return findings;
}

const ms = (ns: number | null | undefined): number | null =>
  ns === null || ns === undefined ? null : Math.round(ns / 1e4) / 100;

/** The receipt of one request, complete or not. Durations in ms; engine's words where it says so. Pure. */
export function makeReceipt(facts: {
  readonly rawRequest: Uint8Array;
  readonly rawResponse: Uint8Array | null;
  readonly expected: ModelIdentity;
  readonly before: EngineSnapshot | null;
  readonly after: EngineSnapshot | null;
  readonly last: Chunk | null;
  readonly wallMs: number;
  readonly findings: readonly string[];
}): Receipt {
  const { before, after, last, expected } = facts;
  const entry = after === null ? null : loadedEntry(after, expected);
  const share =
    entry === null || entry.size === null || entry.size <= 0 || entry.sizeVram === null
      ? null
      : Math.round((entry.sizeVram / entry.size) * 1000) / 1000;
  return {
    requestDigest: sha256(facts.rawRequest),
    responseDigest: facts.rawResponse === null ? null : sha256(facts.rawResponse),
    modelDigestBefore: before === null ? null : inventoryDigest(before, expected.tag),
    modelDigestAfter: after === null ? null : inventoryDigest(after, expected.tag),
    contextLoaded: entry?.contextLength ?? null,
    gpuShare: share,
    promptTokens: last?.prompt_eval_count ?? null,
    outputTokens: last?.eval_count ?? null,
    doneReason: last?.done_reason ?? null,
    totalMs: ms(last?.total_duration),
    loadMs: ms(last?.load_duration),
    wallMs: Math.round(facts.wallMs * 100) / 100,
    verified: last !== null && facts.findings.length === 0,
    findings: [...facts.findings],
    witness: 'engine',
  };
}
