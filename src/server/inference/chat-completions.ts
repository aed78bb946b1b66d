import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { Sha256, WallTime } from '../../protocol/primitives.ts';
import type { Health, ModelIdentity, ModelView, Receipt } from '../../protocol/views.ts';
import { isCloudName } from './cloud.ts';
import { completionReader, encodeCompletion, ModelsReply, PropsReply, SlotsReply } from './completions-wire.ts';
import type { CompletionEnd, Props, ServedModel } from './completions-wire.ts';
import { defaultTiming, exchange } from './exchange.ts';
import { Fault, faultCode } from './fault.ts';
import { parseHost } from './host.ts';
import { createHttpClient } from './http.ts';
import type { Inventory } from './inventory.ts';
import { InferenceFailure } from './port.ts';
import type { ChatTurn, InferenceEngine } from './port.ts';
import { ask } from './small-answer.ts';
import type { WeightsReader } from './weights.ts';
import { droppedKeywords } from './wire.ts';

export interface ChatCompletionsOptions {
  /** Loopback only, whatever the settings say: the approval is for a server on this machine. */
  readonly host: string;
  readonly now: () => WallTime;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  readonly log: (
    level: 'debug' | 'info' | 'warn' | 'error',
    message: string,
    data?: Readonly<Record<string, unknown>>,
  ) => void;
  readonly weights: WeightsReader;
  readonly stallMs?: number;
  readonly loadMs?: number;
  readonly probeMs?: number;
  readonly answerMs?: number;
}

/** llama.cpp's own port where the text names none. */
export const completionsPort = 8080;

/** What the server tells at one moment. `props` null: it has no such page, so most cannot be proven. */
interface Seen {
  readonly models: readonly ServedModel[];
  readonly props: Props | null;
}

const known = <T>(value: T | null | undefined): T | null => value ?? null;
/** What a server is called that does not tell its build. */
const untold = 'not told';
const versionOf = (seen: Seen): string => known(seen.props?.build_info) ?? untold;
const contextOf = (seen: Seen): number | null => known(seen.props?.default_generation_settings?.n_ctx);
const templateOf = (seen: Seen): ModelIdentity['templateDigest'] => {
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
  const timing = {
    stallMs: options.stallMs ?? defaultTiming.stallMs,
    loadMs: options.loadMs ?? defaultTiming.loadMs,
    probeMs: options.probeMs ?? defaultTiming.probeMs,
    answerMs: options.answerMs ?? defaultTiming.answerMs,
  };
  const host = hostOf(options.host);
  const http = createHttpClient(host);

  const look = async (signal?: AbortSignal): Promise<Seen> => {
    const small = { timeoutMs: timing.answerMs, signal };
    const [models, props] = await Promise.all([
      ask(http, '/v1/models', ModelsReply, small),
      // 404, or 401 where it is locked: told nothing, which is not the same as silent.
      http
        .fetch('GET', '/props', null, timing.answerMs, signal)
        .then((reply) => (reply.status === 200 ? parsedProps(reply.bytes) : null)),
    ]);
    return { models: models.data, props };
  };
  const unreachable = (error: unknown): EscrowError =>
    EscrowError.is(error)
      ? error
      : new EscrowError(
          'InferenceUnavailable',
          `The server at ${host.origin} does not answer (${text(error)}).`,
          'Start it with a model, or approve another one with "escrow engine approve".',
          { host: host.origin },
        );

  /** Where this process may read the weights, their hash and what the file says of itself. */
  const identityOf = async (seen: Seen, served: ServedModel, read: boolean): Promise<ModelIdentity> => {
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

  const served = (seen: Seen, tag: string): ServedModel | undefined =>
    seen.models.find((m) => m.id === tag) ?? seen.models.find((m) => m.aliases?.includes(tag) === true);

  return {
    kind: 'chat-completions',
    host: host.origin,
    synthetic: false,

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
      if (isCloudName(tag))
        throw new EscrowError(
          'CloudModelRefused',
          `"${tag}" is named like a cloud model: its prompts could leave this machine.`,
          'Choose a model that runs on this machine.',
          { tag },
        );
      let seen: Seen;
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
      let seen: Seen;
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

    async chat(request, expected, onEvent, signal): Promise<ChatTurn> {
      if (isCloudName(request.model))
        throw new InferenceFailure(
          'unsupported',
          'cloud_name',
          `"${request.model}" is a cloud model: nothing was sent`,
        );
      if (request.model !== expected.tag)
        throw new InferenceFailure('identity', 'model_substituted', 'the request names another model than the binding');
      const dropped = droppedKeywords(request.tools);
      if (dropped.length > 0)
        throw new InferenceFailure(
          'unsupported',
          'schema_keyword_dropped',
          `an engine would drop ${dropped.slice(0, 5).join(', ')}: nothing was sent`,
        );

      const started = options.monotonic();
      const rawRequest = encodeCompletion(request);
      let before: Seen | null = null;
      const fail = (
        kind: InferenceFailure['kind'],
        code: string,
        message: string,
        parts: {
          readonly raw?: Uint8Array | null;
          readonly after?: Seen | null;
          readonly last?: CompletionEnd | null;
          readonly findings?: readonly string[];
        } = {},
      ): InferenceFailure => {
        const raw = parts.raw ?? null;
        return new InferenceFailure(kind, code, message, {
          rawRequest,
          ...(raw === null ? {} : { rawResponse: raw }),
          receipt: receiptOf({
            rawRequest,
            raw,
            expected,
            before,
            after: parts.after ?? null,
            last: parts.last ?? null,
            wallMs: options.monotonic() - started,
            findings: parts.findings ?? [code],
          }),
        });
      };
      const aborted = (when: string, parts: Parameters<typeof fail>[3] = {}): InferenceFailure => {
        const fault: unknown = signal.reason;
        return fault instanceof Fault
          ? fail(fault.kind, fault.code, fault.message, parts)
          : fail('cancelled', 'cancelled', `cancelled ${when}`, parts);
      };
      const findingsOf = async (seen: Seen): Promise<string[]> => {
        const context = contextOf(seen);
        const path = known(seen.props?.model_path);
        const bound = expected.weights;
        const hashed = bound?.hashed ?? null;
        const file = bound === null || hashed === null ? null : await options.weights.read(bound.path);
        return [
          ...(served(seen, expected.tag) === undefined ? ['model_gone'] : []),
          ...(request.engineVersion !== null && versionOf(seen) !== request.engineVersion ? ['engine_changed'] : []),
          ...(bound !== null && path !== bound.path ? ['digest_changed'] : []),
          ...(hashed !== null && file?.sha256 !== hashed ? ['weights_changed'] : []),
          ...(expected.templateDigest !== null && templateOf(seen) !== expected.templateDigest
            ? ['template_changed']
            : []),
          ...(context !== null && context < request.options.numCtx ? ['context_smaller'] : []),
          ...(context === null && !expected.unproven.includes('context') ? ['context_unknown'] : []),
          ...(seen.props?.cors_proxy_enabled === true ? ['engine_has_proxy'] : []),
        ];
      };

      let wrong: readonly string[];
      try {
        before = await look(signal);
        wrong = await findingsOf(before);
      } catch (error) {
        throw signal.aborted
          ? aborted('before sending')
          : fail('transport', faultCode(error), `before sending: ${text(error)}`);
      }
      const firstWrong = wrong[0];
      if (firstWrong !== undefined)
        throw fail('identity', firstWrong, `before sending: ${wrong.join(', ')}`, { findings: wrong });

      const outcome = await exchange(http, rawRequest, completionReader(expected.tag, onEvent), {
        path: '/v1/chat/completions',
        probePath: '/v1/models',
        framing: 'events',
        numPredict: request.options.numPredict,
        timing,
        monotonic: options.monotonic,
        onEvent,
        signal,
      });
      if (!outcome.ok) {
        options.log('warn', 'inference failed', { code: outcome.code, kind: outcome.kind });
        throw fail(outcome.kind, outcome.code, outcome.message, { raw: outcome.raw, last: outcome.last });
      }
      const { answer, raw } = outcome;
      let after: Seen;
      let findings: readonly string[];
      try {
        after = await look(signal);
        findings = await findingsOf(after);
      } catch (error) {
        throw signal.aborted
          ? aborted('before the receipt was verified', { raw, last: answer.last })
          : fail('transport', faultCode(error), `identity after: ${text(error)}`, { raw, last: answer.last });
      }
      const first = findings[0];
      if (first !== undefined)
        throw fail('identity', first, `after the answer: ${findings.join(', ')}`, {
          raw,
          after,
          last: answer.last,
          findings,
        });
      return {
        content: answer.content,
        thinking: answer.thinking,
        toolCalls: answer.toolCalls,
        doneReason: answer.last.doneReason ?? '',
        rawRequest,
        rawResponse: raw,
        receipt: receiptOf({
          rawRequest,
          raw,
          rawDigest: outcome.rawDigest,
          expected,
          before,
          after,
          last: answer.last,
          wallMs: options.monotonic() - started,
          findings: [],
        }),
      };
    },

    /** llama.cpp says of each slot whether it works; whoever has no such page is `unknown`. */
    async idle(): Promise<'idle' | 'busy' | 'unknown'> {
      const deadline = options.monotonic() + 2000;
      for (;;) {
        try {
          const slots = await ask(http, '/slots', SlotsReply, { timeoutMs: timing.answerMs });
          if (slots.length === 0) return 'unknown';
          if (!slots.some((slot) => slot.is_processing)) return 'idle';
        } catch {
          return 'unknown';
        }
        if (options.monotonic() >= deadline) return 'busy';
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },
  };
}

function hostOf(given: string): ReturnType<typeof parseHost> {
  try {
    return parseHost(given, false, completionsPort);
  } catch (error) {
    throw new EscrowError(
      'InferenceUnavailable',
      `The server cannot be used: ${text(error)}.`,
      'Name a server on this machine, such as http://127.0.0.1:8080.',
      { host: given },
    );
  }
}

/** A server that fetches for others is no engine that keeps prompts on this machine. */
function refuseProxy(seen: Seen): void {
  if (seen.props?.cors_proxy_enabled !== true) return;
  throw new EscrowError(
    'InferenceUnavailable',
    'The server has its proxy for outside tools (MCP) turned on.',
    'Start it again without that proxy.',
  );
}

function parsedProps(bytes: Uint8Array): Props {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw new Error('/props did not answer JSON');
  }
  const parsed = PropsReply.safeParse(value);
  if (!parsed.success) throw new Error('/props answered in an unknown shape');
  return parsed.data;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** 4,021,000,000 as `4.0B`, as engines write it. */
function shortCount(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}B`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : `${(n / 1e3).toFixed(1)}K`;
}

function receiptOf(facts: {
  readonly rawRequest: Uint8Array;
  readonly raw: Uint8Array | null;
  /** Where it was taken already. */
  readonly rawDigest?: Sha256;
  readonly expected: ModelIdentity;
  readonly before: Seen | null;
  readonly after: Seen | null;
  readonly last: CompletionEnd | null;
  readonly wallMs: number;
  readonly findings: readonly string[];
}): Receipt {
  const { expected, before, after, last } = facts;
  const promptMs = last?.promptMs ?? null;
  const outputMs = last?.outputMs ?? null;
  const sum = promptMs === null && outputMs === null ? null : (promptMs ?? 0) + (outputMs ?? 0);
  const round = (ms: number | null): number | null => (ms === null ? null : Math.round(ms * 100) / 100);
  return {
    requestDigest: sha256(facts.rawRequest),
    responseDigest: facts.rawDigest ?? (facts.raw === null ? null : sha256(facts.raw)),
    // The digest is of the file that the server names, as this host read it; without findings it is the bound one.
    modelDigestBefore: before === null || facts.findings.includes('weights_changed') ? null : expected.digest,
    modelDigestAfter: after === null || facts.findings.includes('weights_changed') ? null : expected.digest,
    contextLoaded: after === null ? null : contextOf(after),
    gpuShare: null,
    promptTokens: last?.promptTokens ?? null,
    outputTokens: last?.outputTokens ?? null,
    doneReason: last?.doneReason ?? null,
    totalMs: round(sum),
    loadMs: null,
    promptMs: round(promptMs),
    outputMs: round(outputMs),
    cachedTokens: last?.cachedTokens ?? null,
    wallMs: Math.round(facts.wallMs * 100) / 100,
    verified: last !== null && facts.findings.length === 0,
    findings: [...facts.findings],
    notes: expected.unproven.map((what) => `${what}_unproven`),
    witness: expected.witness,
  };
}
