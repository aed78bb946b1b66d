import { unreachable } from '../../protocol/primitives.ts';
import { HttpFault } from './http.ts';
import type { InferenceFailure } from './port.ts';
import { StreamFault } from './stream-reader.ts';

/** A failure found while an answer is read; becomes an `InferenceFailure` with its receipt at the engine's border. */
export class Fault extends Error {
  override readonly name = 'Fault';
  readonly kind: InferenceFailure['kind'];
  readonly code: string;
  constructor(kind: InferenceFailure['kind'], code: string, message: string) {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

/** Names whatever reading a stream threw; defects are thrown on. `answered`: headers had come. */
export function asFault(error: unknown, answered: boolean): Fault {
  if (error instanceof Fault) return error;
  if (error instanceof StreamFault) return new Fault('transport', error.code, error.message);
  if (error instanceof HttpFault) {
    switch (error.code) {
      case 'redirect':
        return new Fault('transport', 'redirect_refused', error.message);
      case 'encoded':
        return new Fault('transport', 'unknown_encoding', error.message);
      case 'unreachable':
        return new Fault('transport', 'engine_not_reachable', error.message);
      case 'timeout':
      case 'cut':
      case 'too_long':
        return new Fault('transport', 'stream_cut', error.message);
    }
  }
  if (answered)
    return new Fault(
      'transport',
      'stream_cut',
      `the stream was cut: ${error instanceof Error ? error.message : 'unknown'}`,
    );
  throw error;
}

/** The code for a question (version, list of models) that an engine did not answer as it should. */
export function faultCode(error: unknown): string {
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
      return unreachable(error.code);
  }
}
