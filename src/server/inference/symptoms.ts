import type { InferenceFailure } from './port.ts';

/** Whose fault an engine's refusal was. */
export interface Symptom {
  readonly kind: InferenceFailure['kind'];
  readonly code: string;
}

/** Texts of real engines (facts/ollama-wire, "What goes wrong"); first match decides, so the order matters. */
const byText: readonly (readonly [RegExp, Symptom])[] = [
  [/does not support tools/i, { kind: 'unsupported', code: 'tools_unsupported' }],
  [/does not support thinking|think value .* is not supported/i, { kind: 'unsupported', code: 'think_unsupported' }],
  [
    /exceed_context_size|exceeds? the (available )?context|input length exceeds|context (length|size|window) exceeded|prompt is too long|truncat/i,
    { kind: 'context', code: 'context_exceeded' },
  ],
  [
    /out of memory|cudamalloc failed|requires more system memory|unable to allocate|failed to allocate|not enough memory|insufficient memory|erroroutofdevicememory|cannot allocate memory|\boom\b/i,
    { kind: 'resource', code: 'out_of_memory' },
  ],
  [/no space left on device/i, { kind: 'resource', code: 'disk_full' }],
  [
    /pars(e|ing) (of )?(the )?tool[ _]call|tool[ _]call(s)? (pars|format|syntax)|invalid character .* (in|after|looking for)|xml syntax error|failed to parse (input|output|tool)|unexpected end of json input|mismatched (tag|brace)/i,
    { kind: 'model', code: 'tool_call_unparsable' },
  ],
  [/repeat(ed|ing)? token|token repeat/i, { kind: 'model', code: 'repetition' }],
  [/ollama\.com|cloud|unauthorized|sign ?in/i, { kind: 'unsupported', code: 'cloud_refused' }],
  [/server busy|maximum pending requests/i, { kind: 'transport', code: 'queue_full' }],
  [/unexpected eof|connection reset|broken pipe|use of closed network/i, { kind: 'transport', code: 'engine_eof' }],
  [
    /unable to load model|error loading model|failed to load|runner process (has terminated|no longer running)|load(ing)? (model )?failed|timed out waiting for/i,
    { kind: 'transport', code: 'load_failed' },
  ],
];

/** The text of an engine's error; on ≥0.30 the string may itself be JSON (`{"error":{"message":…}}`). */
export function errorText(error: unknown, depth = 0): string {
  if (typeof error === 'string') {
    if (depth < 3 && error.trimStart().startsWith('{')) {
      try {
        return errorText(JSON.parse(error) as unknown, depth + 1);
      } catch {
        return error;
      }
    }
    return error;
  }
  if (typeof error === 'object' && error !== null && depth < 3) {
    const held = error as { readonly error?: unknown; readonly message?: unknown; readonly type?: unknown };
    if (held.error !== undefined) return errorText(held.error, depth + 1);
    const type = typeof held.type === 'string' ? ` (${held.type})` : '';
    if (typeof held.message === 'string') return `${held.message}${type}`;
  }
  return JSON.stringify(error)?.slice(0, 400) ?? 'unknown error';
}

/** Names an error that came with a status, or (status 200) inside a stream that had begun. Pure. */
export function classifyEngineError(status: number, text: string): Symptom {
  const read = byText.find(([pattern]) => pattern.test(text))?.[1];
  switch (status) {
    case 200:
      return read ?? { kind: 'transport', code: 'error_in_stream' };
    case 400:
    case 413:
    case 422:
      return read ?? { kind: 'unsupported', code: 'bad_request' };
    case 401:
    case 403:
      return { kind: 'unsupported', code: 'cloud_refused' };
    case 404:
      return { kind: 'unsupported', code: 'model_not_found' };
    case 499:
      return { kind: 'transport', code: 'engine_cancelled' };
    case 502:
    case 504:
      return { kind: 'transport', code: 'bad_gateway' };
    case 503:
      return read?.kind === 'resource' ? read : { kind: 'transport', code: 'queue_full' };
    default:
      return read ?? { kind: 'transport', code: `http_${status}` };
  }
}
