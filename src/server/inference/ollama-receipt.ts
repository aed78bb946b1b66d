import type { ModelIdentity } from '../../protocol/binding.ts';
import { canonicalTag } from './cloud.ts';
import type { IdleLook, LoadedModel } from './port.ts';
import { hundredths, type Told } from './receipts.ts';
import type { Chunk } from './wire.ts';

/** What the engine listed at one moment. */
export interface EngineSnapshot {
  readonly version: string;
  readonly tags: readonly { readonly name: string; readonly digest: string }[];
  readonly loaded: readonly OllamaLoaded[];
}

/** A runner as `/api/ps` lists it. */
export interface OllamaLoaded extends LoadedModel {
  /** When it is unloaded unless a request comes; set anew whenever the last request lets go of it. */
  readonly expiresAt: string | null;
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
  | 'context_unknown';

/** Named remarks that void nothing: the consequence is that they are recorded and shown. */
export type Note =
  | 'partly_on_cpu' // less than all of the model lies on the GPU: slow, not wrong
  | 'context_larger'; // the runner holds more context than asked: another client loaded it

/** The tag's entry in an inventory; names compare as Ollama compares them. */
function inventoryDigest(snapshot: EngineSnapshot, tag: string): string | null {
  return snapshot.tags.find((t) => canonicalTag(t.name) === canonicalTag(tag))?.digest ?? null;
}

/** The loaded entry that stands for the model: the same digest first (a copy is the same manifest), then the same name. */
export function loadedEntry(
  snapshot: Pick<EngineSnapshot, 'loaded'>,
  expected: Pick<ModelIdentity, 'tag' | 'digest'>,
): OllamaLoaded | null {
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
  ns === null || ns === undefined ? null : hundredths(ns / 1e6);

/** Remarks on the runner that answered. Pure. */
function notesOf(entry: LoadedModel | null, numCtx: number): Note[] {
  const notes: Note[] = [];
  const share = gpuShareOf(entry);
  if (share !== null && share < 1) notes.push('partly_on_cpu');
  if (entry !== null && entry.contextLength !== null && entry.contextLength > numCtx) notes.push('context_larger');
  return notes;
}

/** Share of the model that lies on a GPU, 0 to 1 to three digits; null where it is not told. */
function gpuShareOf(entry: LoadedModel | null): number | null {
  return entry === null || entry.size === null || entry.size <= 0 || entry.sizeVram === null
    ? null
    : Math.round((entry.sizeVram / entry.size) * 1000) / 1000;
}

/** What Ollama told of one request. Pure. */
export function toldByOllama(facts: {
  readonly expected: ModelIdentity;
  readonly before: EngineSnapshot | null;
  readonly after: EngineSnapshot | null;
  readonly last: Chunk | null;
  readonly numCtx: number;
}): Told {
  const { before, after, last, expected } = facts;
  const entry = after === null ? null : loadedEntry(after, expected);
  return {
    modelDigestBefore: before === null ? null : inventoryDigest(before, expected.tag),
    modelDigestAfter: after === null ? null : inventoryDigest(after, expected.tag),
    contextLoaded: entry?.contextLength ?? null,
    gpuShare: gpuShareOf(entry),
    loadedBytes: entry?.size ?? null,
    promptTokens: last?.prompt_eval_count ?? null,
    outputTokens: last?.eval_count ?? null,
    doneReason: last?.done_reason ?? null,
    totalMs: ms(last?.total_duration),
    loadMs: ms(last?.load_duration),
    promptMs: ms(last?.prompt_eval_duration),
    outputMs: ms(last?.eval_duration),
    // Its count includes what came from the cache and does not say how much that was.
    cachedTokens: null,
    notes: after === null ? [] : notesOf(entry, facts.numCtx),
  };
}

/**
 * Whether Ollama let go of our request, from looks at its loaded list one after the other (read and seen in 0.33.1). Its
 * scheduler sets a runner's expiry anew when no request holds it any more: an expiry that is another than before our
 * request, and the same in two looks, says so. While a request holds a runner that was loaded for it, each look computes
 * another expiry. No runner: nothing of ours can be running. `unknown`: no expiry is told, or no request of ours is known.
 * The expiry of before, where the request was `answered` with anything: it is held. Where it was not, its runner may
 * still read the prompt, or it never came that far (given up on its way): `unclear`.
 */
export function ollamaIdleLook(
  expected: Pick<ModelIdentity, 'tag' | 'digest'>,
  before: EngineSnapshot | null,
  answered: boolean,
): (now: Pick<EngineSnapshot, 'loaded'>) => IdleLook {
  const former = before === null ? null : (loadedEntry(before, expected)?.expiresAt ?? null);
  let lastSeen: string | null = null;
  return (now) => {
    const entry = loadedEntry(now, expected);
    if (entry === null) return 'idle';
    const seen = entry.expiresAt;
    if (seen === null || before === null) return 'unknown';
    if (seen === former) return answered ? 'busy' : 'unclear';
    const released = seen === lastSeen;
    lastSeen = seen;
    return released ? 'idle' : 'busy';
  };
}
