import { constants } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import * as z from 'zod';
import { sha256 } from '../../../protocol/hash.ts';
import type { Sha256 } from '../../../protocol/primitives.ts';

/** One answer of the scripted model. Every member is optional; an empty turn is an empty answer. */
const Turn = z.strictObject({
  thinking: z.string().max(100_000).optional(),
  content: z.string().max(100_000).optional(),
  toolCalls: z
    .array(z.strictObject({ name: z.string().max(200), arguments: z.unknown() }))
    .max(16)
    .optional(),
  /** Wait before the first line, in ms. */
  delayMs: z.number().int().min(0).max(600_000).optional(),
  /**
   * Thinking trickles out until this file exists: an absolute path, or `$NAME` for a variable of the Kernel's
   * environment (unset: no hold). Lets a test act in the middle of a turn without guessing at time.
   */
  holdUntilFile: z
    .string()
    .max(4096)
    .refine((v) => isAbsolute(v) || /^\$[A-Z][A-Z0-9_]*$/.test(v), { error: 'an absolute path or $NAME' })
    .optional(),
  /** cut: the connection breaks in the middle; the rest is what the wire facts list. */
  fault: z
    .enum(['cut', 'error-in-200', 'no-done', 'tool-parse-error', 'out-of-memory', 'queue-full', 'length'])
    .optional(),
});
export type Turn = z.infer<typeof Turn>;

/** A rehearsal script: a JSON file. The turn to play is the number of assistant messages in the request. */
export const RehearsalScript = z.strictObject({
  $schema: z.string().optional(),
  name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/, 'lower-case letters, digits and dashes'),
  description: z.string().max(400).default(''),
  turns: z.array(Turn).max(200),
  /** Played instead of `turns` where the request carries a reviewer's words (a correction attempt). */
  correction: z.array(Turn).max(200).optional(),
});
export type RehearsalScript = z.infer<typeof RehearsalScript>;

export interface LoadedScript {
  /** What the engine lists it as: `rehearsal/<name>`, or the absolute path it was asked for by. */
  readonly tag: string;
  readonly digest: Sha256;
  readonly bytes: number;
  readonly path: string;
  readonly script: RehearsalScript;
}

const scriptLimit = 1_048_576;

/** The bytes of a regular file of bounded length: a script often lies in a repository, where its name may be a pipe's. */
async function readScript(path: string): Promise<Buffer> {
  // O_NONBLOCK: a pipe would hold a thread of this process until somebody writes to it.
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    if (!(await file.stat()).isFile()) throw new Error(`${path} is not a file`);
    const bytes = Buffer.alloc(scriptLimit + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(bytes, length, bytes.length - length, length);
      length += bytesRead;
      if (length > scriptLimit) throw new Error(`${path} is longer than ${scriptLimit} bytes`);
      if (bytesRead === 0) return bytes.subarray(0, length);
    }
  } finally {
    await file.close();
  }
}

/** Reads one script file. Throws an Error whose message names the file and the fault. */
export async function loadScript(path: string, tag?: string): Promise<LoadedScript> {
  const bytes = await readScript(path);
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    throw new Error(`${path} is not JSON`);
  }
  const parsed = RehearsalScript.safeParse(value);
  if (!parsed.success) throw new Error(`${path} is not a rehearsal script: ${z.prettifyError(parsed.error)}`);
  return {
    tag: tag ?? `rehearsal/${parsed.data.name}`,
    digest: sha256(bytes),
    bytes: bytes.length,
    path,
    script: parsed.data,
  };
}

/**
 * Scripts of the given folders: `<dir>/*.rehearsal.json` and `<dir>/<any>/rehearsal.json`. Read anew each time, so that a
 * changed file is a changed digest. Of two scripts with one name the first folder's wins; faulty files are reported.
 */
export async function findScripts(
  dirs: readonly string[],
  onFault: (path: string, message: string) => void,
): Promise<ReadonlyMap<string, LoadedScript>> {
  const found = new Map<string, LoadedScript>();
  for (const dir of dirs) {
    const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = entry.isDirectory()
        ? join(dir, entry.name, 'rehearsal.json')
        : entry.name.endsWith('.rehearsal.json')
          ? join(dir, entry.name)
          : null;
      if (path === null) continue;
      try {
        const script = await loadScript(path);
        if (!found.has(script.tag)) found.set(script.tag, script);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
        onFault(path, error instanceof Error ? error.message : String(error));
      }
    }
  }
  return found;
}
