import { sha256 } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
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
  | 'model_substituted' // a chunk names another model than the one asked
  | 'weights_changed' // the file of the weights is not the one whose hash the binding has
  | 'template_changed'; // the engine renders prompts with another template than at the binding

/** Named remarks that void nothing: the consequence is that they are recorded and shown. */
export type Note =
  | 'partly_on_cpu' // less than all of the model lies on the GPU: slow, not wrong
  | 'context_larger'; // the runner holds more context than asked: another client loaded it

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

/** Remarks on the runner that answered. Pure. */
export function notesOf(entry: LoadedModel | null, numCtx: number): Note[] {
  const notes: Note[] = [];
  const share = gpuShareOf(entry);
  if (share !== null && share < 1) notes.push('partly_on_cpu');
  if (entry !== null && entry.contextLength !== null && entry.contextLength > numCtx) notes.push('context_larger');
  return notes;
}

/** Share of the model that lies on a GPU, 0 to 1 to three digits; null where it is not told. */
export function gpuShareOf(entry: LoadedModel | null): number | null {
  return entry === null || entry.size === null || entry.size <= 0 || entry.sizeVram === null
    ? null
    : Math.round((entry.sizeVram / entry.size) * 1000) / 1000;
}

/** The receipt of one request, complete or not. Durations in ms; engine's words where it says so. Pure. */
export function makeReceipt(facts: {
  readonly rawRequest: Uint8Array;
  readonly rawResponse: Uint8Array | null;
  /** Where it was taken already. */
  readonly rawDigest?: Sha256;
  readonly expected: ModelIdentity;
  readonly before: EngineSnapshot | null;
  readonly after: EngineSnapshot | null;
  readonly last: Chunk | null;
  readonly numCtx: number;
  readonly wallMs: number;
  readonly findings: readonly string[];
}): Receipt {
  const { before, after, last, expected } = facts;
  const entry = after === null ? null : loadedEntry(after, expected);
  return {
    requestDigest: sha256(facts.rawRequest),
    responseDigest: facts.rawDigest ?? (facts.rawResponse === null ? null : sha256(facts.rawResponse)),
    modelDigestBefore: before === null ? null : inventoryDigest(before, expected.tag),
    modelDigestAfter: after === null ? null : inventoryDigest(after, expected.tag),
    contextLoaded: entry?.contextLength ?? null,
    gpuShare: gpuShareOf(entry),
    promptTokens: last?.prompt_eval_count ?? null,
    outputTokens: last?.eval_count ?? null,
    doneReason: last?.done_reason ?? null,
    totalMs: ms(last?.total_duration),
    loadMs: ms(last?.load_duration),
    promptMs: ms(last?.prompt_eval_duration),
    outputMs: ms(last?.eval_duration),
    // Its count includes what came from the cache and does not say how much that was.
    cachedTokens: null,
    wallMs: Math.round(facts.wallMs * 100) / 100,
    verified: last !== null && facts.findings.length === 0,
    findings: [...facts.findings],
    notes: after === null ? [] : notesOf(entry, facts.numCtx),
    witness: expected.witness,
  };
}
