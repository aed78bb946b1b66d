import { randomBytes } from 'node:crypto';
import { open, readFile, rename, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import * as z from 'zod';

/** Lowest and highest protocol version that a side speaks. */
export const ProtocolRange = z.object({ min: z.number().int().min(1), max: z.number().int().min(1) });
export type ProtocolRange = z.infer<typeof ProtocolRange>;

/**
 * How to reach the running Kernel. Unknown members are ignored, so that an older client can read a newer Kernel's
 * file. `token` is a secret of the 0700 folder: it keys the challenge and never travels.
 */
export const Endpoint = z.object({
  pid: z.number().int().positive(),
  /** See process-identity; null where the platform does not tell. */
  processStart: z.string().nullable(),
  instanceId: z.string().min(8).max(64),
  protocol: ProtocolRange,
  /** Path of a Unix socket, or name of a named pipe. */
  path: z.string().min(1).max(4096),
  token: z.string().regex(/^[0-9a-f]{64}$/),
  version: z.string().max(40),
});
export type Endpoint = z.infer<typeof Endpoint>;

/** Largest endpoint file that is read. */
const maxBytes = 16_384;

export function endpointFile(home: string): string {
  return path.join(home, 'endpoint.json');
}

/** The published endpoint; undefined when there is none or it is not whole (it is written by rename, so: not ours). */
export async function readEndpoint(home: string): Promise<Endpoint | undefined> {
  let text: string;
  try {
    text = await readFile(endpointFile(home), 'utf8');
  } catch {
    return undefined;
  }
  if (text.length > maxBytes) return undefined;
  try {
    const parsed = Endpoint.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

/** Writes a file whole: temp → fsync → rename → fsync of the folder, mode 0600. */
export async function writeWhole(file: string, text: string): Promise<void> {
  const temporary = `${file}.${randomBytes(6).toString('hex')}.tmp`;
  let handle: FileHandle | undefined;
  try {
    handle = await open(temporary, 'wx', 0o600);
    await handle.writeFile(text);
    await handle.sync();
    await handle.close();
    handle = undefined;
    await rename(temporary, file);
  } catch (error) {
    await handle?.close().catch(() => undefined);
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
  if (process.platform === 'win32') return;
  const folder = await open(path.dirname(file), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Publishes an endpoint. Only the holder of the Kernel lock calls this, after it listens. */
export async function publishEndpoint(home: string, endpoint: Endpoint): Promise<void> {
  await writeWhole(endpointFile(home), `${JSON.stringify(endpoint)}\n`);
}

/**
 * Removes the endpoint file. Only the holder of the Kernel lock calls this: the lock is the proof that whoever wrote
 * an older file is dead, so clients never remove one.
 */
export async function retractEndpoint(home: string): Promise<void> {
  await rm(endpointFile(home), { force: true });
}
