import * as z from 'zod';
import { ErrorData } from './errors.ts';

/** Exit codes of the Kernel process (sysexits.h where one fits). */
export const kernelExit = {
  ok: 0,
  defect: 70,
  /** The runtime is too old for the Kernel. */
  runtime: 71,
  /** The state folder can't be used: full, unwritable, newer, damaged. */
  storage: 74,
  /** Another Kernel has the lock; not a fault. */
  anotherKernel: 75,
  /** Settings or the state folder's permissions. */
  configuration: 78,
} as const;

/** File descriptor on which a starting Kernel reports once, when the environment names it. */
export const readyDescriptorVariable = 'ESCROW_READY_FD';

/** The one line a starting Kernel writes to whoever spawned it. */
export const StartReport = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('ready'), instanceId: z.string() }),
  z.object({ kind: z.literal('failed'), message: z.string(), error: ErrorData }),
]);
export type StartReport = z.infer<typeof StartReport>;
