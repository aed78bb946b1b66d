import { ErrorCodes, LSPErrorCodes, ResponseError } from 'vscode-languageserver-protocol/node';
import { EscrowError, errorCodes, type ErrorData } from '../../protocol/errors.ts';
import { methods, type Method } from '../../protocol/methods.ts';
import type { Logger } from '../log.ts';
import type { Handlers, RequestContext } from './port.ts';

export interface DispatchPolicy {
  readonly executionEnabled: boolean;
  readonly draining: () => boolean;
}

/** Writes that only end or observe something: they go on while draining. */
const allowedWhileDraining: ReadonlySet<Method> = new Set([
  'kernel/stop',
  'session/detach',
  'window/presence',
  'window/closing',
]);
/** With execution off, what runs can still be looked at and ended. */
const allowedWithoutExecution: ReadonlySet<Method> = new Set([
  ...allowedWhileDraining,
  'session/attach',
  'session/cancel',
  'session/close',
  'session/reconcile',
  'kernel/backup',
  'kernel/retention',
]);

export function isMethod(name: string): name is Method {
  return Object.hasOwn(methods, name);
}

/** A coded error as JSON-RPC carries it. */
export function toResponseError(error: EscrowError): ResponseError<ErrorData> {
  return new ResponseError(errorCodes[error.code], error.message, error.toData());
}

function refusal(method: Method, policy: DispatchPolicy): EscrowError | undefined {
  if (methods[method].access === 'read') return undefined;
  if (policy.draining() && !allowedWhileDraining.has(method)) {
    return new EscrowError('KernelDraining', 'The Kernel is settling its work and will end.', 'Try again in a moment.');
  }
  if (!policy.executionEnabled && !allowedWithoutExecution.has(method)) {
    return new EscrowError(
      'ExecutionDisabled',
      'Execution is turned off on this machine.',
      'Set executionEnabled in the machine settings of Escrow, then restart the Kernel.',
    );
  }
  return undefined;
}

function invalidParams(method: Method, issues: readonly { path: PropertyKey[]; message: string }[]): EscrowError {
  const faults = issues.slice(0, 20).map((i) => ({ path: i.path.map(String).join('.'), message: i.message }));
  const first = faults[0];
  const where = first === undefined || first.path === '' ? 'the parameters' : first.path;
  return new EscrowError(
    'InvalidParams',
    `${method}: ${where}: ${first?.message ?? 'not valid'}`,
    'This is a fault of the client; update it.',
    { method, faults },
  );
}

/**
 * Runs one request: policy, parse, handler. Throws only ResponseError. A defect is logged with its stack and goes out
 * as `Internal` without it.
 */
export async function dispatch(
  method: string,
  params: unknown,
  deps: { readonly handlers: Handlers; readonly policy: DispatchPolicy; readonly log: Logger },
  context: RequestContext,
): Promise<unknown> {
  if (!isMethod(method)) throw new ResponseError(ErrorCodes.MethodNotFound, `Unknown method ${method.slice(0, 100)}`);
  try {
    const refused = refusal(method, deps.policy);
    if (refused !== undefined) throw refused;
    const parsed = methods[method].params.safeParse(params ?? {});
    if (!parsed.success) throw invalidParams(method, parsed.error.issues);
    // The pairing of a method with its handler is what `Handlers` states; a union of them cannot be called.
    const handler = deps.handlers[method] as (params: unknown, context: RequestContext) => unknown;
    return await handler(parsed.data, context);
  } catch (error) {
    if (EscrowError.is(error)) throw toResponseError(error);
    if (error instanceof ResponseError) throw error;
    if (context.signal.aborted) {
      throw new ResponseError(LSPErrorCodes.RequestCancelled, 'The request was cancelled.', {
        code: 'Cancelled',
        next: 'Nothing; it was cancelled by its client.',
      });
    }
    deps.log('error', 'a request failed by a defect', { method, client: context.client.clientId, error });
    throw toResponseError(
      new EscrowError(
        'Internal',
        `${method} failed inside the Kernel: ${error instanceof Error ? error.message : String(error)}`,
        'See the log of the Kernel and report it.',
      ),
    );
  }
}
