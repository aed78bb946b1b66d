import { isAbsolute } from 'node:path';
import type * as z from 'zod';
import { EscrowError } from '../../protocol/errors.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';
import type { Health, ModelView } from '../../protocol/status.ts';
import { messageOf } from '../message-of.ts';
import { ollamaAnswerReader } from './chat-stream.ts';
import { canonicalTag, isCloudName, isWellFormedTag } from './cloud.ts';
import { cloudRefusal, timingOf, usableHost } from './engine-deps.ts';
import type { EngineDeps } from './engine-deps.ts';
import { Fault } from './fault.ts';
import { guardedChat } from './guarded-chat.ts';
import { ollamaPort } from './host.ts';
import { createHttpClient, HttpFault } from './http.ts';
import type { Inventory } from './inventory.ts';
import { hasRemote, identityOf, refusedReason, vouched, weightsOf } from './ollama-identity.ts';
import {
  inventoryFindings,
  loadedEntry,
  loadedFindingsAfter,
  loadedFindingsBefore,
  ollamaIdleLook,
  toldByOllama,
} from './ollama-receipt.ts';
import type { EngineSnapshot, OllamaLoaded } from './ollama-receipt.ts';
import { listStore, storeOf } from './ollama-store.ts';
import type { InferenceEngine } from './port.ts';
import { ask } from './small-answer.ts';
import type { WeightsReader } from './weights.ts';
import type { Chunk, ShowReply as Show, TagEntry } from './wire.ts';
import { encodeChat, isSupportedVersion, LoadedReply, ShowReply, TagsReply, VersionReply } from './wire.ts';

export interface OllamaEngineOptions extends EngineDeps {
  /** As people write it; loopback unless `allowRemote`. */
  readonly host: string;
  readonly kind: 'ollama' | 'rehearsal';
  /** Only a machine setting that names a host may set it. */
  readonly allowRemote?: boolean;
  /** Reads model files of this host; null where the engine is not on this host, or has none. */
  readonly weights?: WeightsReader | null;
}

/**
 * The engine port over Ollama's native API. It never pulls, deletes, unloads or retags; it sends nothing but chat
 * requests and reads. Throws EscrowError InferenceUnavailable where `host` may not be spoken to.
 */
export function createOllamaEngine(options: OllamaEngineOptions): InferenceEngine {
  const timing = timingOf(options);
  const host = usableHost(options.host, {
    allowRemote: options.allowRemote ?? false,
    port: ollamaPort,
    next: 'Name a loopback host, or set a remote one in the machine settings.',
  });
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
  const loaded = async (signal?: AbortSignal): Promise<readonly OllamaLoaded[]> =>
    ((await get('/api/ps', LoadedReply, signal)).models ?? []).map((m) => ({
      tag: m.name,
      digest: m.digest ?? null,
      contextLength: m.context_length ?? null,
      size: m.size ?? null,
      sizeVram: m.size_vram ?? null,
      expiresAt: m.expires_at ?? null,
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
      `The inference engine at ${host.origin} does not answer (${messageOf(error)}).`,
      rehearsal
        ? 'Restart the Kernel.'
        : 'Start Ollama, or name its host: "inferenceHost" in settings.json of the state folder, or the setting escrow.inference.ollamaHost.',
      { host: host.origin },
    );

  const nameProblem = (tag: string): string | null => {
    if (rehearsal && isAbsolute(tag)) return null;
    return isWellFormedTag(tag) ? null : 'not a model name';
  };

  const { chat, idle } = guardedChat<EngineSnapshot, Chunk>(
    {
      path: '/api/chat',
      probePath: '/api/version',
      framing: 'json-lines',
      sameName: (one, other) => canonicalTag(one) === canonicalTag(other),
      nameProblem,
      encode: encodeChat,
      reader: ollamaAnswerReader,
      look: snapshot,
      async findings(seen, before, { request, expected }) {
        if (before === null) {
          if (!isSupportedVersion(seen.version))
            throw new Fault('unsupported', 'engine_too_old', `version ${seen.version}: nothing was sent`);
          return [...inventoryFindings(seen, expected, request.engineVersion), ...loadedFindingsBefore(seen, expected)];
        }
        const alias = await sameWeightsElsewhere(seen, expected);
        return [
          ...inventoryFindings(seen, expected, before.version),
          ...loadedFindingsAfter(seen, expected, request.options.numCtx, alias),
        ];
      },
      told: (seen, { request, expected }) => toldByOllama({ ...seen, expected, numCtx: request.options.numCtx }),
      idleLook(model, before, answered) {
        const look = ollamaIdleLook(model, before, answered);
        return async () => look({ loaded: await loaded() });
      },
    },
    { http, timing, monotonic: options.monotonic, log: options.log, weights },
  );

  return {
    kind: options.kind,
    host: host.origin,
    synthetic: rehearsal,
    chat,
    idle,

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
          detail: messageOf(error),
          next: unreachable(error).next,
          observedAt,
          version: null,
        };
      }
    },

    async identity(tag: string): Promise<ModelIdentity> {
      if (isCloudName(tag)) throw cloudRefusal(tag);
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
  };
}

/** The blobs of a store, with names cut to what they say. */
async function listed(store: string): Promise<{ name: string; size: number }[] | null> {
  const files = await listStore(store);
  return files === null ? null : files.map((f) => ({ ...f }));
}
