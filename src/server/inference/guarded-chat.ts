import { setTimeout as wait } from 'node:timers/promises';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { ModelIdentity } from '../../protocol/binding.ts';
import { messageOf } from '../message-of.ts';
import { isCloudName } from './cloud.ts';
import type { EngineDeps, EngineTiming } from './engine-deps.ts';
import { exchange } from './exchange.ts';
import type { AnswerReader } from './exchange.ts';
import { Fault, faultCode } from './fault.ts';
import type { HttpClient } from './http.ts';
import { InferenceFailure } from './port.ts';
import type { ChatEvent, ChatRequest, ChatTurn, Idle, IdleLook, InferenceEngine } from './port.ts';
import { makeReceipt, type Told } from './receipts.ts';
import type { Framing } from './stream-reader.ts';
import { weightsFindings, type WeightsReader } from './weights.ts';
import { droppedKeywords } from './wire.ts';

/** What one kind of engine adds to a guarded chat. `S` is what it shows of itself at one moment, `L` its last word. */
export interface EngineWire<S, L> {
  readonly path: string;
  /** A small question that the engine answers while it loads. */
  readonly probePath: string;
  readonly framing: Framing;
  /** The names by which the engine knows models are one name. */
  readonly sameName: (one: string, other: string) => boolean;
  /** Why a name can't be asked for, or null. */
  readonly nameProblem: (tag: string) => string | null;
  readonly encode: (request: ChatRequest) => Uint8Array;
  readonly reader: (model: string, onEvent: (event: ChatEvent) => void) => AnswerReader<L>;
  /** Throws HttpFault, the signal's reason, or a plain Error. */
  readonly look: (signal: AbortSignal) => Promise<S>;
  /**
   * What is wrong with what it shows, as codes. `before` null: nothing was sent yet. Throws as `look`, and `Fault` where
   * the engine may not be used at all.
   */
  readonly findings: (seen: S, before: S | null, parts: Asked) => readonly string[] | Promise<readonly string[]>;
  readonly told: (seen: Seen<S, L>, parts: Asked) => Told;
  /**
   * Makes one look after the other at whether the engine works on our request; `before` is what was seen before it,
   * `answered` whether anything of its answer came.
   */
  readonly idleLook: (
    model: Pick<ModelIdentity, 'tag' | 'digest'>,
    before: S | null,
    answered: boolean,
  ) => () => Promise<IdleLook>;
}

export interface Asked {
  readonly request: ChatRequest;
  readonly expected: ModelIdentity;
  readonly signal: AbortSignal;
}

export interface Seen<S, L> {
  readonly before: S | null;
  readonly after: S | null;
  readonly last: L | null;
  readonly doneReason: string | null;
  readonly findings: readonly string[];
}

/** How long `idle` waits, and how soon and how often it looks, in ms. A settlement gives it three seconds. */
const idleWaitMs = 2000;
const idlePauseMs = { first: 25, most: 200 } as const;
/**
 * How long an unclear sight is worth waiting for, in ms: a runner that reads a prompt looks for a client that has gone
 * after each batch, some seconds on a slow machine. A request that never arrived leaves no sign, however long one waits.
 */
const unclearMs = 5000;

/**
 * The one way in which a request is sent, whatever the wire: nothing that must not be sent is; the engine shows itself
 * before and after; the stream is read strictly; every end leaves a receipt; no turn is given whose identity did not hold.
 * After a request that was given up, the next one waits until the engine let go of it, where the engine shows that.
 */
export function guardedChat<S, L>(
  wire: EngineWire<S, L>,
  parts: {
    readonly http: HttpClient;
    readonly timing: EngineTiming;
    readonly monotonic: () => number;
    readonly log: EngineDeps['log'];
    readonly weights: WeightsReader | null;
  },
): Pick<InferenceEngine, 'chat' | 'idle'> {
  const { http, timing, monotonic, log, weights } = parts;
  /** The last request that was sent: what was seen before it, whether anything of its answer came, whether all did. */
  let last: { readonly expected: ModelIdentity; readonly before: S; answered: boolean; read: boolean } | null = null;

  const waitForIdle = async (look: () => Promise<IdleLook>, boundMs: number, signal?: AbortSignal): Promise<Idle> => {
    const began = monotonic();
    for (let pause: number = idlePauseMs.first; ; pause = Math.min(pause * 2, idlePauseMs.most)) {
      const seen = await look();
      const waited = monotonic() - began;
      if (seen === 'unclear' && waited >= Math.min(boundMs, unclearMs)) return 'unknown';
      if (seen !== 'unclear' && (seen !== 'busy' || waited >= boundMs)) return seen;
      await wait(pause, undefined, signal === undefined ? {} : { signal });
    }
  };

  return {
    async chat(request, expected, onEvent, signal): Promise<ChatTurn> {
      refuseUnsendable(wire, request, expected);
      const started = monotonic();
      const rawRequest = wire.encode(request);
      const asked: Asked = { request, expected, signal };
      let before: S | null = null;
      let after: S | null = null;
      let word: L | null = null;
      let doneReason: string | null = null;
      let raw: Uint8Array | null = null;
      let rawDigest: Sha256 | null = null;
      const notes: string[] = [];

      const receipt = (findings: readonly string[]): ChatTurn['receipt'] => {
        const told = wire.told({ before, after, last: word, doneReason, findings }, asked);
        return makeReceipt({
          rawRequest,
          rawResponse: raw,
          rawDigest,
          expected,
          told: { ...told, notes: [...told.notes, ...notes] },
          ended: word !== null,
          wallMs: monotonic() - started,
          findings,
        });
      };
      const fail = (
        kind: InferenceFailure['kind'],
        code: string,
        message: string,
        findings: readonly string[] = [code],
      ): InferenceFailure => {
        log('warn', 'inference failed', { code, kind });
        return new InferenceFailure(kind, code, message, {
          rawRequest,
          ...(raw === null ? {} : { rawResponse: raw }),
          receipt: receipt(findings),
        });
      };
      /** A person's cancel ends as cancelled; an abort for a reason of its own (the memory watch) ends with that. */
      const named = (error: unknown, when: string): InferenceFailure => {
        const fault: unknown = signal.aborted ? signal.reason : error;
        if (fault instanceof Fault) return fail(fault.kind, fault.code, fault.message);
        if (signal.aborted) return fail('cancelled', 'cancelled', `cancelled ${when}`);
        return fail('transport', faultCode(error), `${when}: ${messageOf(error)}`);
      };
      const check = async (seen: Promise<S>, former: S | null, keep: (seen: S) => void): Promise<readonly string[]> => {
        const [now, file] = await Promise.all([seen, weightsFindings(expected, weights)]);
        keep(now);
        return [...(await wire.findings(now, former, asked)), ...file];
      };

      let wrong: readonly string[];
      try {
        if (last !== null && !last.read) {
          const idle = await waitForIdle(
            wire.idleLook(last.expected, last.before, last.answered),
            timing.idleMs,
            signal,
          );
          if (idle === 'busy')
            throw new Fault(
              'transport',
              'engine_busy',
              'it still works on a request that was given up: nothing was sent',
            );
          if (idle === 'unknown') notes.push('idle_unknown');
          last = null;
        }
        wrong = await check(wire.look(signal), null, (seen) => {
          before = seen;
        });
      } catch (error) {
        throw named(error, 'before sending');
      }
      if (wrong[0] !== undefined) throw fail('identity', wrong[0], `before sending: ${wrong.join(', ')}`, wrong);
      // Given up while the engine was looked at: nothing is sent, so nothing is waited for afterwards.
      if (signal.aborted) throw named(signal.reason, 'before sending');

      const sent = { expected, before: before as S, answered: false, read: false };
      last = sent;
      const outcome = await exchange(http, rawRequest, wire.reader(expected.tag, onEvent), {
        path: wire.path,
        probePath: wire.probePath,
        framing: wire.framing,
        numPredict: request.options.numPredict,
        timing,
        monotonic,
        onEvent,
        signal,
      });
      raw = outcome.raw;
      sent.answered = raw !== null;
      if (!outcome.ok) {
        word = outcome.last;
        // A refusal was answered in full: nothing goes on behind it.
        sent.read = outcome.refused;
        throw fail(outcome.kind, outcome.code, outcome.message);
      }
      sent.read = true;
      rawDigest = outcome.rawDigest;
      const { answer } = outcome;
      word = answer.last;
      doneReason = answer.doneReason;
      try {
        wrong = await check(wire.look(signal), before, (seen) => {
          after = seen;
        });
      } catch (error) {
        throw named(error, 'before the receipt was verified');
      }
      if (wrong[0] !== undefined) throw fail('identity', wrong[0], `after the answer: ${wrong.join(', ')}`, wrong);
      return {
        content: answer.content,
        thinking: answer.thinking,
        toolCalls: answer.toolCalls,
        doneReason: answer.doneReason,
        rawRequest,
        rawResponse: outcome.raw,
        receipt: receipt([]),
      };
    },

    async idle(tag): Promise<Idle> {
      const ours = last !== null && wire.sameName(last.expected.tag, tag) ? last : null;
      try {
        return await waitForIdle(
          wire.idleLook(ours?.expected ?? { tag, digest: null }, ours?.before ?? null, ours?.answered ?? false),
          Math.min(idleWaitMs, timing.idleMs),
        );
      } catch {
        return 'unknown';
      }
    },
  };
}

/** Throws InferenceFailure, without a receipt: nothing was asked and nothing sent. */
function refuseUnsendable(
  wire: Pick<EngineWire<never, never>, 'nameProblem' | 'sameName'>,
  request: ChatRequest,
  expected: ModelIdentity,
): void {
  if (isCloudName(request.model))
    throw new InferenceFailure('unsupported', 'cloud_name', `"${request.model}" is a cloud model: nothing was sent`);
  const problem = wire.nameProblem(request.model);
  if (problem !== null) throw new InferenceFailure('unsupported', 'bad_tag', `${problem}: nothing was sent`);
  if (!wire.sameName(request.model, expected.tag))
    throw new InferenceFailure('identity', 'model_substituted', 'the request names another model than the binding');
  const dropped = droppedKeywords(request.tools);
  if (dropped.length > 0)
    throw new InferenceFailure(
      'unsupported',
      'schema_keyword_dropped',
      `the engine would drop ${dropped.slice(0, 5).join(', ')}: nothing was sent`,
    );
}
