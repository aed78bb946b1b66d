import { isAbsolute } from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { unreachable as unreachableCase } from '../../protocol/primitives.ts';
import type { WallTime } from '../../protocol/primitives.ts';
import type { Health, ModelIdentity, ModelView } from '../../protocol/views.ts';
import { canonicalTag, isCloudName, isWellFormedTag } from './cloud.ts';
import { streamChat } from './chat-stream.ts';
import { parseHost } from './host.ts';
import type { InferenceHost } from './host.ts';
import { createHttpClient, HttpFault } from './http.ts';
import { InferenceFailure } from './port.ts';
import type { ChatTurn, InferenceEngine, LoadedModel } from './port.ts';
import { inventoryFindings, loadedEntry, loadedFindingsAfter, loadedFindingsBefore, makeReceipt } from './receipts.ts';
import type { EngineSnapshot } from './receipts.ts';
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
  /** Longest pause between two lines once the answer has begun. */
  readonly stallMs?: number;
  /** Longest wait for the first line: loading and reading the prompt, while the engine goes on answering probes. */
  readonly loadMs?: number;
  /** Interval of the probes during that wait. */
  readonly probeMs?: number;
  /** Wait for a small answer (version, tags, ps, show). */
  readonly answerMs?: number;
}

/** A big model from a slow disk loads in minutes; 120 s without a token is far beyond any model that is of use. */
const defaults = { stallMs: 120_000, loadMs: 600_000, probeMs: 2000, answerMs: 10_000 } as const;

/**
 * The engine port over Ollama's native API. It never pulls, deletes, unloads or retags; it sends nothing but chat
 * requests and reads. Throws EscrowError InferenceUnavailable where `host` may not be spoken to.
 */
export function createOllamaEngine(options: OllamaEngineOptions): InferenceEngine {
  const timing = { ...defaults, ...options };
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
  /** Version that answered when a digest was bound; a later change of it is a finding. */
  const boundVersions = new Map<string, string>();

  const get = async <T extends z.ZodType>(path: string, schema: T, signal?: AbortSignal): Promise<z.output<T>> =>
    readJson(await http.fetch('GET', path, null, timing.answerMs, signal), path, schema);
  const show = async (tag: string, signal?: AbortSignal): Promise<Show> =>
    readJson(
      await http.fetch('POST', '/api/show', Buffer.from(JSON.stringify({ model: tag })), timing.answerMs, signal),
      '/api/show',
      ShowReply,
    );
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
      boundVersions.set(entry.digest, found);
      return identityOf(entry, shown);
    },

    async inventory(): Promise<readonly ModelView[]> {
      let list: readonly TagEntry[];
      try {
        list = await tags();
      } catch (error) {
        throw unreachable(error);
      }
      const views: ModelView[] = [];
      for (const entry of list.slice(0, 500)) {
        const refused = refusedReason(entry);
        // Recent engines list capabilities with the tags; older ones need a look at each local model.
        const shown =
          refused === null && (entry.capabilities ?? null) === null ? await show(entry.name).catch(() => null) : null;
        views.push({
          ...identityOf(entry, shown),
          engine: options.kind,
          refused,
          description: typeof entry['description'] === 'string' ? entry['description'].slice(0, 400) : '',
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
            wallMs: options.monotonic() - started,
            findings,
          }),
        });

      try {
        before = await snapshot(signal);
      } catch (error) {
        throw signal.aborted
          ? fail('cancelled', 'cancelled', 'cancelled before sending')
          : fail('transport', faultCode(error), `before sending: ${text(error)}`);
      }
      if (!isSupportedVersion(before.version))
        throw fail('unsupported', 'engine_too_old', `version ${before.version}: nothing was sent`);
      const wrong = [
        ...inventoryFindings(before, expected, boundVersions.get(expected.digest ?? '') ?? null),
        ...loadedFindingsBefore(before, expected),
      ];
      const firstWrong = wrong[0];
      if (firstWrong !== undefined)
        throw fail('identity', firstWrong, `before sending: ${wrong.join(', ')}`, null, null, null, wrong);

      const outcome = await streamChat(http, rawRequest, {
        model: expected.tag,
        numPredict: request.options.numPredict,
        stallMs: timing.stallMs,
        loadMs: timing.loadMs,
        probeMs: timing.probeMs,
        answerMs: timing.answerMs,
        monotonic: options.monotonic,
        onEvent,
        signal,
      });
      if (!outcome.ok) {
        options.log('warn', 'inference failed', { code: outcome.code, kind: outcome.kind });
        throw fail(outcome.kind, outcome.code, outcome.message, outcome.raw, null, outcome.last);
      }

      let after: EngineSnapshot;
      let alias: string | null;
      try {
        after = await snapshot(signal);
        alias = await sameWeightsElsewhere(after, expected);
      } catch (error) {
        throw signal.aborted
          ? fail('cancelled', 'cancelled', 'cancelled before the receipt was verified', outcome.raw, null, outcome.last)
          : fail('transport', faultCode(error), `identity after: ${text(error)}`, outcome.raw, null, outcome.last);
      }
      const findings = [
        ...inventoryFindings(after, expected, before.version),
        ...loadedFindingsAfter(after, expected, request.options.numCtx, alias),
      ];
      const first = findings[0];
      if (first !== undefined) {
        throw fail(
          'identity',
          first,
          `after the answer: ${findings.join(', ')}`,
          outcome.raw,
          after,
          outcome.last,
          findings,
        );
      }
      return {
        content: outcome.content,
        thinking: outcome.thinking,
        toolCalls: outcome.toolCalls,
        doneReason: outcome.last.done_reason ?? '',
        rawRequest,
        rawResponse: outcome.raw,
        receipt: makeReceipt({
          rawRequest,
          rawResponse: outcome.raw,
          expected,
          before,
          after,
          last: outcome.last,
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

function readJson<T extends z.ZodType>(
  reply: { readonly status: number; readonly bytes: Uint8Array },
  path: string,
  schema: T,
): z.output<T> {
  if (reply.status !== 200) throw new Error(`${path} answered ${reply.status}`);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(reply.bytes));
  } catch {
    throw new Error(`${path} did not answer JSON`);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw new Error(`${path} answered in an unknown shape`);
  return parsed.data;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function faultCode(error: unknown): string {
  if (!(error instanceof HttpFault)) return 'engine_not_understood';
  switch (error.code) {
    case 'unreachable':
      return 'engine_not_reachable';
    case 'timeout':
      return 'engine_silent';
    case 'redirect':
      return 'redirect_refused';
    case 'cut':
    case 'too_long':
    case 'encoded':
      return 'engine_not_understood';
    default:
      return unreachableCase(error.code);
  }
}

function hasRemote(entry: { readonly remote_host?: unknown; readonly remote_model?: unknown }): boolean {
  return Boolean(entry.remote_host) || Boolean(entry.remote_model);
}

/** A code why the entry may not be used, or null. */
function refusedReason(entry: TagEntry): string | null {
  return isCloudName(entry.name) || hasRemote(entry) ? 'cloud' : null;
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

/** The FROM line of a modelfile names the weights: a blob path with the digest in it. */
function weightsOf(shown: Show): string | null {
  return /^FROM\s+(.+)$/m.exec(shown.modelfile ?? '')?.[1]?.trim() ?? null;
}

function identityOf(entry: TagEntry, shown: Show | null): ModelIdentity {
  const details = entry.details ?? shown?.details ?? null;
  const info = shown?.model_info ?? {};
  const context = Object.entries(info).find(([key]) => key.endsWith('.context_length'))?.[1];
  return {
    tag: entry.name,
    digest: entry.digest,
    quantisation: details?.quantization_level ?? null,
    parameterSize: details?.parameter_size ?? null,
    family: details?.family ?? null,
    contextAdvertised:
      typeof context === 'number' && Number.isInteger(context)
        ? context
        : (entry.context_length ?? details?.context_length ?? null),
    capabilities: [...(shown?.capabilities ?? entry.capabilities ?? [])],
    sizeBytes: entry.size ?? null,
    witness: 'engine',
  };
}
