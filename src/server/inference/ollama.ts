import { isAbsolute } from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import type { WallTime } from '../../protocol/primitives.ts';
import type { Health, ModelIdentity, ModelView } from '../../protocol/views.ts';
import { canonicalTag, isCloudName, isWellFormedTag } from './cloud.ts';
import { ollamaAnswerReader } from './chat-stream.ts';
import { defaultTiming, exchange } from './exchange.ts';
import { parseHost } from './host.ts';
import type { InferenceHost } from './host.ts';
import { createHttpClient, HttpFault } from './http.ts';
import { listStore, storeOf } from './ollama-store.ts';
import { InferenceFailure } from './port.ts';
import { Fault, faultCode } from './fault.ts';
import type { Inventory } from './inventory.ts';
import { hasRemote, identityOf, refusedReason, vouched, weightsOf } from './ollama-identity.ts';
import type { ChatTurn, InferenceEngine, LoadedModel } from './port.ts';
import { inventoryFindings, loadedEntry, loadedFindingsAfter, loadedFindingsBefore, makeReceipt } from './receipts.ts';
import type { EngineSnapshot, Finding } from './receipts.ts';
import { ask } from './small-answer.ts';
import type { WeightsReader } from './weights.ts';
import type { Chunk, ShowReply as Show, TagEntry } from './wire.ts';
import {
  droppedKeywords,
  encodeChat,
  isSupportedVersion,
  LoadedReply,
  ShowReply,
  TagsReply,
  VersionReply,
} from './wire.ts';
import type * as z from 'zod';

export interface OllamaEngineOptions {
  /** As people write it; loopback unless `allowRemote`. */
  readonly host: string;
  readonly kind: 'ollama' | 'rehearsal';
  readonly now: () => WallTime;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  readonly log: (
    level: 'debug' | 'info' | 'warn' | 'error',
    message: string,
    data?: Readonly<Record<string, unknown>>,
  ) => void;
  /** Only a machine setting that names a host may set it. */
  readonly allowRemote?: boolean;
  /** Reads model files of this host; null where the engine is not on this host, or has none. */
  readonly weights?: WeightsReader | null;
  /** Longest pause between two lines once the answer has begun. */
  readonly stallMs?: number;
  /** Longest wait for the first line: loading and reading the prompt, while the engine goes on answering probes. */
  readonly loadMs?: number;
  /** Interval of the probes during that wait. */
  readonly probeMs?: number;
  /** Wait for a small answer (version, tags, ps, show). */
  readonly answerMs?: number;
}

/**
 * The engine port over Ollama's native API. It never pulls, deletes, unloads or retags; it sends nothing but chat
 * requests and reads. Throws EscrowError InferenceUnavailable where `host` may not be spoken to.
 */
export function createOllamaEngine(options: OllamaEngineOptions): InferenceEngine {
  const timing = {
    stallMs: options.stallMs ?? defaultTiming.stallMs,
    loadMs: options.loadMs ?? defaultTiming.loadMs,
    probeMs: options.probeMs ?? defaultTiming.probeMs,
    answerMs: options.answerMs ?? defaultTiming.answerMs,
  };
  let host: InferenceHost;
  try {
    host = parseHost(options.host, options.allowRemote ?? false);
  } catch (error) {
    throw new EscrowError(
      'InferenceUnavailable',
      `The inference host cannot be used: ${error instanceof Error ? error.message : String(error)}.`,
      'Name a loopback host, or set a remote one in the machine settings.',
      { host: options.host },
    );
  }
  const http = createHttpClient(host);
  const rehearsal = options.kind === 'rehearsal';
  const weights = host.loopbackOnly ? (options.weights ?? null) : null;

  const get = async <T extends z.ZodType>(path: string, schema: T, signal?: AbortSignal): Promise<z.output<T>> =>
    ask(http, path, schema, { timeoutMs: timing.answerMs, signal });
  const show = async (tag: string, signal?: AbortSignal): Promise<Show> =>
    ask(http, '/api/show', ShowReply, { timeoutMs: timing.answerMs, signal, body: { model: tag } });
  const version = async (signal?: AbortSignal): Promise<string> =>
    (await get('/api/version', VersionReply, signal)).version;
  const tags = async (signal?: AbortSignal): Promise<readonly TagEntry[]> =>
    (await get('/api/tags', TagsReply, signal)).models ?? [];
  const loaded = async (signal?: AbortSignal): Promise<readonly LoadedModel[]> =>
    ((await get('/api/ps', LoadedReply, signal)).models ?? []).map((m) => ({
      tag: m.name,
      digest: m.digest ?? null,
      contextLength: m.context_length ?? null,
      size: m.size ?? null,
      sizeVram: m.size_vram ?? null,
    }));
  const snapshot = async (signal?: AbortSignal): Promise<EngineSnapshot> => {
    const [v, t, l] = await Promise.all([version(signal), tags(signal), loaded(signal)]);
    return { version: v, tags: t, loaded: l };
  };

  /** A loaded tag other than ours whose weights file is ours; asked only when ours is not listed. */
  const sameWeightsElsewhere = async (after: EngineSnapshot, expected: ModelIdentity): Promise<string | null> => {
    if (loadedEntry(after, expected) !== null || after.loaded.length === 0) return null;
    const ours = weightsOf(await show(expected.tag));
    if (ours === null) return null;
    for (const other of after.loaded.slice(0, 8)) if (weightsOf(await show(other.tag)) === ours) return other.tag;
    return null;
  };

  const unreachable = (error: unknown): EscrowError =>
    new EscrowError(
      'InferenceUnavailable',
      `The inference engine at ${host.origin} does not answer (${error instanceof Error ? error.message : String(error)}).`,
      rehearsal ? 'Restart the Kernel.' : 'Start Ollama, or set the host under "escrow.inference.ollamaHost".',
      { host: host.origin },
    );

  const nameProblem = (tag: string): string | null => {
    if (rehearsal && isAbsolute(tag)) return null;
    return isWellFormedTag(tag) ? null : 'not a model name';
  };

  return {
    kind: options.kind,
    host: host.origin,
    synthetic: rehearsal,

    async health(): Promise<Health & { readonly version: string | null }> {
      const observedAt = options.now();
      try {
        const found = await version();
        if (!isSupportedVersion(found)) {
          return {
            state: 'degraded',
            code: 'engine_too_old',
            detail: `version ${found}`,
            next: 'Update Ollama to 0.30 or newer.',
            observedAt,
            version: found,
          };
        }
        return { state: 'ok', code: null, detail: `version ${found}`, next: '', observedAt, version: found };
      } catch (error) {
        const code = error instanceof HttpFault ? `engine_${error.code}` : 'engine_not_understood';
        return {
          state: 'unavailable',
          code: code === 'engine_unreachable' ? 'engine_not_reachable' : code,
          detail: error instanceof Error ? error.message : String(error),
          next: unreachable(error).next,
          observedAt,
          version: null,
        };
      }
    },

    async identity(tag: string): Promise<ModelIdentity> {
      refuseCloud(tag);
      const problem = nameProblem(tag);
      if (problem !== null)
        throw new EscrowError('ModelNotFound', `"${tag}" is ${problem}.`, 'Choose one of the listed models.', { tag });
      let found: string;
      let list: readonly TagEntry[];
      try {
        [found, list] = await Promise.all([version(), tags()]);
      } catch (error) {
        throw unreachable(error);
      }
      if (!isSupportedVersion(found))
        throw new EscrowError(
          'InferenceTooOld',
          `Ollama ${found} is too old: 0.30 or newer is needed.`,
          'Update Ollama and try again.',
          { version: found },
        );
      const entry = list.find((t) => canonicalTag(t.name) === canonicalTag(tag));
      const installed = list.filter((t) => refusedReason(t) === null).map((t) => t.name);
      if (entry === undefined)
        throw new EscrowError(
          'ModelNotFound',
          `The model "${tag}" is not installed.`,
          installed.length === 0
            ? 'No model is installed. Escrow never downloads one: use "ollama pull".'
            : `Installed: ${installed.slice(0, 12).join(', ')}.`,
          { tag, installed },
        );
      if (refusedReason(entry) !== null) throw cloudRefusal(entry.name);
      let shown: Show;
      try {
        shown = await show(entry.name);
      } catch (error) {
        throw unreachable(error);
      }
      if (hasRemote(shown)) throw cloudRefusal(entry.name);
      return vouched(identityOf(entry, shown), weights);
    },

    async inventory(): Promise<readonly ModelView[]> {
      let list: readonly TagEntry[];
      try {
        list = await tags();
      } catch (error) {
        throw unreachable(error);
      }
      const inMemory = new Set((await loaded().catch(() => [])).map((m) => canonicalTag(m.tag)));
      const views: ModelView[] = [];
      for (const entry of list.slice(0, 500)) {
        const refused = refusedReason(entry);
        const described = entry['description'];
        // Recent engines list capabilities with the tags; older ones need a look at each local model.
        const shown =
          refused === null && (entry.capabilities ?? null) === null ? await show(entry.name).catch(() => null) : null;
        const identity = identityOf(entry, shown);
        const noTools = identity.capabilities.length > 0 && !identity.capabilities.includes('tools');
        views.push({
          ...identity,
          engine: options.kind,
          refused: refused ?? (noTools ? 'no_tools' : null),
          description: typeof described === 'string' ? described.slice(0, 400) : '',
          loaded: inMemory.has(canonicalTag(entry.name)),
          fit: null,
        });
      }
      return views;
    },

    loaded: async () => {
      try {
        return await loaded();
      } catch (error) {
        throw unreachable(error);
      }
    },

    async survey(model): Promise<Inventory> {
      try {
        const seen = await snapshot();
        const store = weights === null ? null : storeOf(model?.weights?.path ?? null);
        return {
          host: host.origin,
          version: seen.version,
          models: seen.tags.map((t) => ({ name: t.name, digest: t.digest })),
          loaded: seen.loaded.map((m) => ({ name: m.tag, digest: m.digest, context: m.contextLength })),
          store: store === null ? null : { path: store, files: await listed(store) },
        };
      } catch (error) {
        throw unreachable(error);
      }
    },

    async chat(request, expected, onEvent, signal): Promise<ChatTurn> {
      if (isCloudName(request.model))
        throw new InferenceFailure(
          'unsupported',
          'cloud_name',
          `"${request.model}" is a cloud model: nothing was sent`,
        );
      if (nameProblem(request.model) !== null)
        throw new InferenceFailure('unsupported', 'bad_tag', 'not a model name: nothing was sent');
      if (canonicalTag(request.model) !== canonicalTag(expected.tag))
        throw new InferenceFailure('identity', 'model_substituted', 'the request names another model than the binding');
      const dropped = droppedKeywords(request.tools);
      if (dropped.length > 0)
        throw new InferenceFailure(
          'unsupported',
          'schema_keyword_dropped',
          `the engine would drop ${dropped.slice(0, 5).join(', ')}: nothing was sent`,
        );

      const started = options.monotonic();
      const rawRequest = encodeChat(request);
      let before: EngineSnapshot | null = null;
      const fail = (
        kind: InferenceFailure['kind'],
        code: string,
        message: string,
        rawResponse: Uint8Array | null = null,
        after: EngineSnapshot | null = null,
        last: Chunk | null = null,
        findings: readonly string[] = [code],
      ): InferenceFailure =>
        new InferenceFailure(kind, code, message, {
          rawRequest,
          ...(rawResponse === null ? {} : { rawResponse }),
          receipt: makeReceipt({
            rawRequest,
            rawResponse,
            expected,
            before,
            after,
            last,
            numCtx: request.options.numCtx,
            wallMs: options.monotonic() - started,
            findings,
          }),
        });

      // A person's cancel ends as cancelled; an abort for a reason of its own (the memory watch) ends with that.
      const aborted = (when: string, raw: Uint8Array | null = null, last: Chunk | null = null): InferenceFailure => {
        const fault: unknown = signal.reason;
        return fault instanceof Fault
          ? fail(fault.kind, fault.code, fault.message, raw, null, last)
          : fail('cancelled', 'cancelled', `cancelled ${when}`, raw, null, last);
      };
      let file: Finding[];
      try {
        [before, file] = await Promise.all([snapshot(signal), weightsFindings(expected, weights)]);
      } catch (error) {
        throw signal.aborted
          ? aborted('before sending')
          : fail('transport', faultCode(error), `before sending: ${text(error)}`);
      }
      if (!isSupportedVersion(before.version))
        throw fail('unsupported', 'engine_too_old', `version ${before.version}: nothing was sent`);
      const wrong = [
        ...inventoryFindings(before, expected, request.engineVersion),
        ...loadedFindingsBefore(before, expected),
        ...file,
      ];
      const firstWrong = wrong[0];
      if (firstWrong !== undefined)
        throw fail('identity', firstWrong, `before sending: ${wrong.join(', ')}`, null, null, null, wrong);

      const outcome = await exchange(http, rawRequest, ollamaAnswerReader(expected.tag, onEvent), {
        path: '/api/chat',
        probePath: '/api/version',
        framing: 'json-lines',
        numPredict: request.options.numPredict,
        timing,
        monotonic: options.monotonic,
        onEvent,
        signal,
      });
      if (!outcome.ok) {
        options.log('warn', 'inference failed', { code: outcome.code, kind: outcome.kind });
        throw fail(outcome.kind, outcome.code, outcome.message, outcome.raw, null, outcome.last);
      }
      const { answer, raw } = outcome;

      let after: EngineSnapshot;
      let alias: string | null;
      try {
        [after, file] = await Promise.all([snapshot(signal), weightsFindings(expected, weights)]);
        alias = await sameWeightsElsewhere(after, expected);
      } catch (error) {
        throw signal.aborted
          ? aborted('before the receipt was verified', raw, answer.last)
          : fail('transport', faultCode(error), `identity after: ${text(error)}`, raw, null, answer.last);
      }
      const findings = [
        ...inventoryFindings(after, expected, before.version),
        ...loadedFindingsAfter(after, expected, request.options.numCtx, alias),
        ...file,
      ];
      const first = findings[0];
      if (first !== undefined) {
        throw fail('identity', first, `after the answer: ${findings.join(', ')}`, raw, after, answer.last, findings);
      }
      return {
        content: answer.content,
        thinking: answer.thinking,
        toolCalls: answer.toolCalls,
        doneReason: answer.last.done_reason ?? '',
        rawRequest,
        rawResponse: raw,
        receipt: makeReceipt({
          rawRequest,
          rawResponse: raw,
          rawDigest: outcome.rawDigest,
          expected,
          before,
          after,
          last: answer.last,
          numCtx: request.options.numCtx,
          wallMs: options.monotonic() - started,
          findings: [],
        }),
      };
    },

    async idle(tag: string): Promise<'idle' | 'busy' | 'unknown'> {
      // The loaded list tells whether a runner exists, not whether it works. No runner: nothing of ours can be running.
      try {
        const entries = await loaded();
        return entries.some((m) => canonicalTag(m.tag) === canonicalTag(tag)) ? 'unknown' : 'idle';
      } catch {
        return 'unknown';
      }
    },
  };
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The blobs of a store, with names cut to what they say. */
async function listed(store: string): Promise<{ name: string; size: number }[] | null> {
  const files = await listStore(store);
  return files === null ? null : files.map((f) => ({ ...f }));
}

/** Whether the file of the weights is still the one whose hash is bound. Nothing bound: nothing to find. */
async function weightsFindings(expected: ModelIdentity, weights: WeightsReader | null): Promise<Finding[]> {
  const bound = expected.weights;
  if (weights === null || bound === null || bound.hashed === null) return [];
  const now = await weights.read(bound.path);
  return now?.sha256 === bound.hashed ? [] : ['weights_changed'];
}

function cloudRefusal(tag: string): EscrowError {
  return new EscrowError(
    'CloudModelRefused',
    `"${tag}" is a cloud model: its prompts would leave this machine.`,
    'Choose a model that is installed on this machine.',
    { tag },
  );
}

function refuseCloud(tag: string): void {
  if (isCloudName(tag)) throw cloudRefusal(tag);
}
