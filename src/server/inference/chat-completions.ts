import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';
import type { Health, ModelView } from '../../protocol/status.ts';
import { messageOf } from '../message-of.ts';
import { isCloudName } from './cloud.ts';
import { completionReader, encodeCompletion, ModelsReply, PropsReply, SlotsReply } from './completions-wire.ts';
import type { CompletionEnd, Props, ServedModel } from './completions-wire.ts';
import { cloudRefusal, timingOf, usableHost } from './engine-deps.ts';
import type { EngineDeps } from './engine-deps.ts';
import { faultCode } from './fault.ts';
import { guardedChat } from './guarded-chat.ts';
import type { Asked, Seen } from './guarded-chat.ts';
import { createHttpClient } from './http.ts';
import type { Inventory } from './inventory.ts';
import type { Idle, InferenceEngine } from './port.ts';
import { hundredths, type Told } from './receipts.ts';
import { ask, readAnswer } from './small-answer.ts';
import type { WeightsReader } from './weights.ts';

export interface ChatCompletionsOptions extends EngineDeps {
  /** Loopback only, whatever the settings say: the approval is for a server on this machine. */
  readonly host: string;
  readonly weights: WeightsReader;
}

/** llama.cpp's own port where the text names none. */
export const completionsPort = 8080;

/** What the server tells at one moment. `props` null: it has no such page, so most cannot be proven. */
interface Shown {
  readonly models: readonly ServedModel[];
  readonly props: Props | null;
}

const known = <T>(value: T | null | undefined): T | null => value ?? null;
/** What a server is called that does not tell its build. */
const untold = 'not told';
const versionOf = (seen: Shown): string => known(seen.props?.build_info) ?? untold;
const contextOf = (seen: Shown): number | null => known(seen.props?.default_generation_settings?.n_ctx);
const served = (seen: Shown, tag: string): ServedModel | undefined =>
  seen.models.find((m) => m.id === tag) ?? seen.models.find((m) => m.aliases?.includes(tag) === true);
const templateOf = (seen: Shown): ModelIdentity['templateDigest'] => {
  const template = known(seen.props?.chat_template);
  return template === null || template === '' ? null : sha256(template);
};

/**
 * The engine port over a loopback server that speaks `/v1/chat/completions`, with llama.cpp's server as the reference.
 * The server has one model with the context it was started with; nothing is loaded, unloaded or set by us. What it can't
 * prove is named in the identity and in each receipt's notes. Throws EscrowError InferenceUnavailable where the host may
 * not be spoken to.
 */
export function createChatCompletionsEngine(options: ChatCompletionsOptions): InferenceEngine {
  const timing = timingOf(options);
  const host = usableHost(options.host, {
    allowRemote: false,
    port: completionsPort,
    next: 'Name a server on this machine, such as http://127.0.0.1:8080.',
  });
  const http = createHttpClient(host);

  const look = async (signal?: AbortSignal): Promise<Shown> => {
    const small = { timeoutMs: timing.answerMs, signal };
    const [models, props] = await Promise.all([
      ask(http, '/v1/models', ModelsReply, small),
      // 404, or 401 where it is locked: told nothing, which is not the same as silent.
      http
        .fetch('GET', '/props', null, timing.answerMs, signal)
        .then((reply) => (reply.status === 200 ? readAnswer('/props', reply.bytes, PropsReply) : null)),
    ]);
    return { models: models.data, props };
  };
  /** llama.cpp says of each slot whether it works; whoever has no such page is `unknown`. */
  const slotsIdle = async (): Promise<Idle> => {
    try {
      const slots = await ask(http, '/slots', SlotsReply, { timeoutMs: timing.answerMs });
      if (slots.length === 0) return 'unknown';
      return slots.some((slot) => slot.is_processing) ? 'busy' : 'idle';
    } catch {
      return 'unknown';
    }
  };
  const unreachable = (error: unknown): EscrowError =>
    EscrowError.is(error)
      ? error
      : new EscrowError(
          'InferenceUnavailable',
          `The server at ${host.origin} does not answer (${messageOf(error)}).`,
          'Start it with a model, or approve another one with "escrow engine approve".',
          { host: host.origin },
        );

  /** Where this process may read the weights, their hash and what the file says of itself. */
  const identityOf = async (seen: Shown, served: ServedModel, read: boolean): Promise<ModelIdentity> => {
    const path = known(seen.props?.model_path);
    const file = path === null ? null : read ? await options.weights.read(path) : await options.weights.known(path);
    const context = contextOf(seen);
    const template = templateOf(seen);
    const tools = known(seen.props?.chat_template_caps?.supports_tools);
    const parameters = known(served.meta?.n_params);
    return {
      tag: served.id,
      digest: file?.sha256 ?? null,
      quantisation: known(served.meta?.ftype) ?? known(seen.props?.model_ftype),
      parameterSize: parameters === null ? null : shortCount(parameters),
      // Only the file says it; a family that is not known leaves the admission bound unproven.
      family: file?.gguf?.architecture ?? null,
      contextAdvertised: context,
      capabilities: tools === null ? [] : tools ? ['completion', 'tools'] : ['completion'],
      sizeBytes: file?.sizeBytes ?? known(served.meta?.size),
      templateDigest: template,
      weights:
        path === null
          ? null
          : { path, sizeBytes: file?.sizeBytes ?? null, claimed: null, hashed: file?.sha256 ?? null },
      unproven: [
        // The server names the file it loaded; that the bytes in its memory are those is its word.
        ...(file === null ? ['digest'] : []),
        ...(context === null ? ['context'] : []),
        ...(template === null ? ['template'] : []),
        ...(seen.props?.build_info ? [] : ['version', 'truncation']),
        'thinking_switch',
      ],
      witness: file === null ? 'engine' : 'both',
    };
  };

  const { chat, idle } = guardedChat<Shown, CompletionEnd>(
    {
      path: '/v1/chat/completions',
      probePath: '/v1/models',
      framing: 'events',
      sameName: (one, other) => one === other,
      nameProblem: () => null,
      encode: encodeCompletion,
      reader: completionReader,
      look,
      findings: (seen, _before, asked) => findingsOf(seen, asked),
      told: toldBy,
      idleLook: () => slotsIdle,
    },
    { http, timing, monotonic: options.monotonic, log: options.log, weights: options.weights },
  );

  return {
    kind: 'chat-completions',
    host: host.origin,
    synthetic: false,
    chat,
    idle,

    async health(): Promise<Health & { readonly version: string | null }> {
      const observedAt = options.now();
      try {
        const seen = await look();
        refuseProxy(seen);
        return { state: 'ok', code: null, detail: versionOf(seen), next: '', observedAt, version: versionOf(seen) };
      } catch (error) {
        const told = unreachable(error);
        const code = EscrowError.is(error) ? 'engine_has_proxy' : faultCode(error);
        return { state: 'unavailable', code, detail: told.message, next: told.next, observedAt, version: null };
      }
    },

    async identity(tag: string): Promise<ModelIdentity> {
      if (isCloudName(tag)) throw cloudRefusal(tag);
      let seen: Shown;
      try {
        seen = await look();
      } catch (error) {
        throw unreachable(error);
      }
      refuseProxy(seen);
      const found = served(seen, tag);
      if (found === undefined)
        throw new EscrowError(
          'ModelNotFound',
          `The server at ${host.origin} has no model "${tag}".`,
          `It has: ${
            seen.models
              .map((m) => m.id)
              .slice(0, 12)
              .join(', ') || 'none'
          }.`,
          { tag, installed: seen.models.map((m) => m.id) },
        );
      return identityOf(seen, found, true);
    },

    async inventory(): Promise<readonly ModelView[]> {
      let seen: Shown;
      try {
        seen = await look();
      } catch (error) {
        throw unreachable(error);
      }
      return Promise.all(
        seen.models.slice(0, 100).map(async (m): Promise<ModelView> => {
          const identity = await identityOf(seen, m, false);
          const noTools = identity.capabilities.length > 0 && !identity.capabilities.includes('tools');
          return {
            ...identity,
            engine: 'chat-completions',
            refused: isCloudName(m.id) ? 'cloud' : noTools ? 'no_tools' : null,
            description: '',
            // llama.cpp has what it was started with; of others it is not known.
            loaded: seen.props !== null,
            fit: null,
          };
        }),
      );
    },

    async loaded() {
      try {
        const seen = await look();
        return seen.models.map((m) => ({
          tag: m.id,
          digest: null,
          contextLength: contextOf(seen),
          size: known(m.meta?.size),
          sizeVram: null,
        }));
      } catch (error) {
        throw unreachable(error);
      }
    },

    async survey(): Promise<Inventory> {
      try {
        const seen = await look();
        const context = contextOf(seen);
        return {
          host: host.origin,
          version: versionOf(seen),
          models: seen.models.map((m) => ({ name: m.id, digest: null })),
          loaded: seen.models.map((m) => ({ name: m.id, digest: null, context })),
          store: null,
        };
      } catch (error) {
        throw unreachable(error);
      }
    },
  };
}

/** A server that fetches for others is no engine that keeps prompts on this machine. */
function refuseProxy(seen: Shown): void {
  if (seen.props?.cors_proxy_enabled !== true) return;
  throw new EscrowError(
    'InferenceUnavailable',
    'The server has its proxy for outside tools (MCP) turned on.',
    'Start it again without that proxy.',
  );
}

/** 4,021,000,000 as `4.0B`, as engines write it. */
function shortCount(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}B`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : `${(n / 1e3).toFixed(1)}K`;
}

/** What is not as it was bound, as codes; the same question before and after a request. */
function findingsOf(seen: Shown, { request, expected }: Pick<Asked, 'request' | 'expected'>): readonly string[] {
  const context = contextOf(seen);
  const bound = expected.weights;
  return [
    ...(served(seen, expected.tag) === undefined ? ['model_gone'] : []),
    ...(request.engineVersion !== null && versionOf(seen) !== request.engineVersion ? ['engine_changed'] : []),
    ...(bound !== null && known(seen.props?.model_path) !== bound.path ? ['digest_changed'] : []),
    ...(expected.templateDigest !== null && templateOf(seen) !== expected.templateDigest ? ['template_changed'] : []),
    ...(context !== null && context < request.options.numCtx ? ['context_smaller'] : []),
    ...(context === null && !expected.unproven.includes('context') ? ['context_unknown'] : []),
    ...(seen.props?.cors_proxy_enabled === true ? ['engine_has_proxy'] : []),
  ];
}

/** What the server told of one request. */
function toldBy(
  { before, after, last, findings }: Seen<Shown, CompletionEnd>,
  { expected }: Pick<Asked, 'expected'>,
): Told {
  const promptMs = known(last?.promptMs);
  const outputMs = known(last?.outputMs);
  // The digest is of the file that the server names, as this host read it; without findings it is the bound one.
  const digest = findings.includes('weights_changed') ? null : expected.digest;
  return {
    modelDigestBefore: before === null ? null : digest,
    modelDigestAfter: after === null ? null : digest,
    contextLoaded: after === null ? null : contextOf(after),
    gpuShare: null,
    loadedBytes: null,
    promptTokens: known(last?.promptTokens),
    outputTokens: known(last?.outputTokens),
    doneReason: known(last?.doneReason),
    totalMs: promptMs === null && outputMs === null ? null : hundredths((promptMs ?? 0) + (outputMs ?? 0)),
    loadMs: null,
    promptMs: promptMs === null ? null : hundredths(promptMs),
    outputMs: outputMs === null ? null : hundredths(outputMs),
    cachedTokens: known(last?.cachedTokens),
    notes: expected.unproven.map((what) => `${what}_unproven`),
  };
}
