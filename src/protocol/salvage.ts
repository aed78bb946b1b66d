import * as z from 'zod';
import { ArtefactRef, WallTime } from './primitives.ts';

/**
 * A container that no record knew, and what was read out of it before it was stopped and removed. Names, paths and
 * `fault` come from the container and its engine: hostile text.
 */
export const SalvagedContainer = z.strictObject({
  engineId: z.string(),
  name: z.string(),
  at: WallTime,
  /** As its labels said. */
  purpose: z.string().nullable(),
  owner: z.string().nullable(),
  session: z.string().nullable(),
  /** Files that are kept, their bytes together, and the first of their paths. */
  files: z.number().int(),
  bytes: z.number(),
  paths: z.array(z.string()),
  /** Files that were read and found no room. */
  lost: z.number().int(),
  /** The log of what was done in it; null where there is none or it found no room. */
  auditLog: ArtefactRef.nullable(),
  /** Why this may not be all that was written in it; null where it is. */
  fault: z.string().nullable(),
  /** How often it was tried. */
  tries: z.number().int(),
});
export type SalvagedContainer = z.infer<typeof SalvagedContainer>;

/** A file that was written in such a container. No `artefact`: it was read and found no room. */
export const SalvagedFile = z.strictObject({
  path: z.string(),
  mode: z.number().int().nullable(),
  artefact: ArtefactRef.nullable(),
});
export type SalvagedFile = z.infer<typeof SalvagedFile>;
