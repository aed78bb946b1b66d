import type * as z from 'zod';
import type { HttpClient } from './http.ts';

/** Asks a small question and reads its answer strictly. Throws HttpFault, the signal's reason, or a plain Error. */
export async function ask<T extends z.ZodType>(
  http: HttpClient,
  path: string,
  schema: T,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined; readonly body?: unknown },
): Promise<z.output<T>> {
  const body = options.body === undefined ? null : Buffer.from(JSON.stringify(options.body));
  const reply = await http.fetch(body === null ? 'GET' : 'POST', path, body, options.timeoutMs, options.signal);
  if (reply.status !== 200) throw new Error(`${path} answered ${reply.status}`);
  return readAnswer(path, reply.bytes, schema);
}

/** Reads the bytes of a small answer strictly. Throws a plain Error that names the path. */
export function readAnswer<T extends z.ZodType>(path: string, bytes: Uint8Array, schema: T): z.output<T> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw new Error(`${path} did not answer JSON`);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw new Error(`${path} answered in an unknown shape`);
  return parsed.data;
}
