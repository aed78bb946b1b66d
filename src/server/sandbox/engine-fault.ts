/** A failed request to the container engine. */
export class EngineFault extends Error {
  override readonly name = 'EngineFault';
  readonly kind: 'unreachable' | 'permission' | 'timeout' | 'not-found' | 'conflict' | 'refused' | 'unsupported';
  readonly status: number | null;
  constructor(kind: EngineFault['kind'], message: string, status: number | null = null, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
    this.status = status;
  }
  static is(value: unknown, kind?: EngineFault['kind']): value is EngineFault {
    return value instanceof EngineFault && (kind === undefined || value.kind === kind);
  }
}

/** What went wrong at a request, in our words. */
export function faultOf(what: string, error: unknown): EngineFault {
  if (error instanceof EngineFault) return error;
  const { code, statusCode, message } = error as { code?: string; statusCode?: number; message?: string };
  const text = `${what}: ${(message ?? String(error)).trim()}`;
  if (code === 'EACCES' || code === 'EPERM') return new EngineFault('permission', text, null, { cause: error });
  if (statusCode === undefined) return new EngineFault('unreachable', text, null, { cause: error });
  if (statusCode === 404) return new EngineFault('not-found', text, 404, { cause: error });
  if (statusCode === 409) return new EngineFault('conflict', text, 409, { cause: error });
  return new EngineFault('refused', text, statusCode, { cause: error });
}
