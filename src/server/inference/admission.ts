import type { ChatMessage, ChatTool } from './port.ts';

/**
 * Admission of a prompt: a bound on its tokens, not an estimate.
 *
 * Preconditions. (1) The tokenizer makes at most one token per byte of the rendered prompt: true for byte-level BPE and
 * for SentencePiece with byte fallback, so for the families below. (2) The template renders each message's text at most
 * once, plain or as JSON, in a frame of at most `messageAllowance` tokens, tool schemas at most as indented JSON, and has
 * a preamble of at most `preambleAllowance`. (3) The engine's prompt count includes cached tokens (Ollama ≥0.30).
 * Where (1) is not known or the counts contradict (3), the bound is `unproven` and `truncate: false` is the backstop.
 */
export interface AdmissionState {
  readonly numCtx: number;
  readonly numPredict: number;
  /** Precondition (1). */
  readonly familyKnown: boolean;
  /** Counts never fell: precondition (3) was not contradicted. */
  readonly consistent: boolean;
  /** The newest usable measurement: that many messages made that many tokens. */
  readonly measured: { readonly messages: number; readonly tokens: number } | null;
}

export interface Admitted {
  readonly admitted: boolean;
  /** No rendering of this prompt has more tokens, under the preconditions. */
  readonly boundTokens: number;
  /** `numCtx − numPredict`. */
  readonly limitTokens: number;
  readonly proven: boolean;
  /** The sum, for the record. */
  readonly arithmetic: string;
}

/** Tokens around one message: role markers, tool-result wrappers. The longest seen in templates is about 30. */
export const messageAllowance = 64;
/** Tokens of a template's own words around tools and system prompt. The longest seen (harmony) is about 600. */
export const preambleAllowance = 1024;
/** Indented JSON against compact: at nesting 6, two to four spaces a level, below 3× for schemas of this kind. */
const schemaFactor = 3;
/** A measured count this far below the bytes (16 bytes a token, runs counted once) means that something was cut. */
const alarmBytesPerToken = 16;

const byteBoundFamilies =
  /^(qwen|llama|codellama|gpt-?oss|mistral|mixtral|ministral|devstral|magistral|codestral|gemma|phi|granite|deepseek|glm|command|cohere|olmo|smollm|nemotron|falcon|starcoder|exaone|lfm|hunyuan|rehearsal)/i;

/** Start of an attempt: nothing measured. */
export function startAdmission(numCtx: number, numPredict: number, family: string | null): AdmissionState {
  return {
    numCtx,
    numPredict,
    familyKnown: family !== null && byteBoundFamilies.test(family),
    consistent: true,
    measured: null,
  };
}

/**
 * Bytes that a text may have when it is rendered as JSON by a template: every UTF-16 unit that some encoder escapes
 * (Go's HTML escapes, Python's ASCII-only output) counts six. Never less than its UTF-8 bytes.
 */
export function renderedBytes(text: string): number {
  let bytes = 2;
  for (let i = 0; i < text.length; i += 1) {
    const unit = text.charCodeAt(i);
    if (unit === 0x22 || unit === 0x5c || unit === 0x0a || unit === 0x09 || unit === 0x0d) bytes += 2;
    else if (unit < 0x20 || unit >= 0x7f || unit === 0x3c || unit === 0x3e || unit === 0x26 || unit === 0x27)
      bytes += 6;
    else bytes += 1;
  }
  return bytes;
}

function messageBound(message: ChatMessage): number {
  switch (message.role) {
    case 'system':
    case 'user':
      return renderedBytes(message.content) + messageAllowance;
    case 'tool':
      return renderedBytes(message.content) + renderedBytes(message.toolName) + messageAllowance;
    case 'assistant': {
      let bound = renderedBytes(message.content) + messageAllowance;
      for (const call of message.toolCalls) {
        // Arguments are rendered as JSON, and by some templates as a JSON string that holds JSON.
        bound += renderedBytes(call.name) + messageAllowance;
        bound += renderedBytes(JSON.stringify(call.arguments ?? null)) * 2;
      }
      return bound;
    }
    default:
      throw new Error('unreachable role');
  }
}

/** Bound for the next request, and whether it may be sent. Pure. */
export function admit(state: AdmissionState, messages: readonly ChatMessage[], tools: readonly ChatTool[]): Admitted {
  const limitTokens = state.numCtx - state.numPredict;
  const { measured } = state;
  const from = measured === null ? 0 : measured.messages;
  let added = 0;
  for (const message of messages.slice(from)) added += messageBound(message);
  const base =
    measured === null ? renderedBytes(JSON.stringify(tools)) * schemaFactor + preambleAllowance : measured.tokens;
  const boundTokens = base + added;
  const admitted = boundTokens <= limitTokens;
  return {
    admitted,
    boundTokens,
    limitTokens,
    proven: state.familyKnown && state.consistent,
    arithmetic: `${base} ${measured === null ? 'for tools and template' : 'measured'} + ${added} for ${messages.length - from} added messages = ${boundTokens}, limit ${state.numCtx} − ${state.numPredict} = ${limitTokens}`,
  };
}

/** What a receipt's count says about the bound. */
export type Measurement =
  | { readonly kind: 'ok'; readonly state: AdmissionState }
  /** No usable count: the older measurement stays. */
  | { readonly kind: 'none'; readonly state: AdmissionState }
  /** The count fell although the prompt grew: cached tokens are missing in it. Used no further, `unproven` from now on. */
  | { readonly kind: 'fell'; readonly state: AdmissionState }
  /** Far below what the bytes can make: the prompt was cut. */
  | { readonly kind: 'truncated'; readonly state: AdmissionState; readonly floor: number };

/** Takes the count of the request that carried these messages. Pure. */
export function measure(
  state: AdmissionState,
  messages: readonly ChatMessage[],
  promptTokens: number | null,
): Measurement {
  if (promptTokens === null || promptTokens <= 0) return { kind: 'none', state };
  const floor = tokenFloor(messages);
  if (promptTokens < floor) return { kind: 'truncated', state: { ...state, consistent: false }, floor };
  if (state.measured !== null && promptTokens < state.measured.tokens)
    return { kind: 'fell', state: { ...state, consistent: false } };
  return { kind: 'ok', state: { ...state, measured: { messages: messages.length, tokens: promptTokens } } };
}

/** Fewest tokens that these messages can plausibly make; runs of one character count once, since they compress. */
function tokenFloor(messages: readonly ChatMessage[]): number {
  let bytes = 0;
  for (const message of messages) bytes += Buffer.byteLength(message.content.replaceAll(/(.)\1+/gsu, '$1'));
  return Math.floor(bytes / alarmBytesPerToken);
}
