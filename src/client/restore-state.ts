import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import * as z from 'zod';
import { EscrowError, ErrorData } from '../protocol/errors.ts';
import { kernelEnvironment } from './kernel-environment.ts';

const Answer = z.union([
  z.object({
    restored: z.object({
      former: z.string(),
      events: z.number(),
      databaseBytes: z.number(),
      artefacts: z.number(),
      artefactBytes: z.number(),
    }),
  }),
  z.object({ message: z.string(), error: ErrorData }),
]);

export interface RestoreOptions {
  readonly home: string;
  readonly folder: string;
  readonly kernelPath: string;
  readonly nodePath: string;
}

/**
 * Puts a backup in the place of a home's state, by a Kernel process that does only that and holds the lock meanwhile.
 * Throws EscrowError AnotherKernel while a Kernel runs, NotFound, ArtefactDamaged, StorageTooNew, StorageFull.
 */
export async function restoreState(
  options: RestoreOptions,
): Promise<Extract<z.output<typeof Answer>, { restored: unknown }>['restored']> {
  const child = spawn(options.nodePath, [options.kernelPath, 'restore', options.folder], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: kernelEnvironment({ home: options.home, electron: process.versions['electron'] !== undefined }),
  });
  const failed = new Promise<never>((_, reject) => child.once('error', reject));
  const [out, complaint] = await Promise.race([Promise.all([text(child.stdout), text(child.stderr)]), failed]);
  let answer: z.output<typeof Answer>;
  try {
    answer = Answer.parse(JSON.parse(out));
  } catch {
    throw new EscrowError('Internal', `The backup was not restored: ${complaint.trim()}`, 'Look at the state folder.');
  }
  if ('restored' in answer) return answer.restored;
  throw EscrowError.fromWire(answer.message, answer.error) ?? new Error(answer.message);
}
