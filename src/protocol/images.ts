import * as z from 'zod';
import { Sha256, WallTime } from './primitives.ts';

/** One thing that comes from outside into an image: a package by name, version and the hashes that it must have. */
export const ImageArtefact = z.strictObject({
  kind: z.enum(['npm', 'python', 'node', 'base']),
  name: z.string(),
  version: z.string(),
  /** Of which one must be met, e.g. `sha512-…` or `sha256:…`. */
  hashes: z.array(z.string()),
  /** Bytes to download; null: nobody says before the download. */
  sizeBytes: z.number().nullable(),
});
export type ImageArtefact = z.infer<typeof ImageArtefact>;

/** One step of a preparation. `where` is what runs it: this machine, the container engine, or a container. */
export const ImageStep = z.strictObject({
  kind: z.enum(['node', 'pull', 'flatten', 'npm', 'python', 'opaque', 'executor']),
  where: z.enum(['host', 'engine', 'container']),
  /** It was done before: nothing is downloaded or built. */
  cached: z.boolean(),
  /** Whether it reaches for the network. */
  network: z.boolean(),
  /** What is run, in full; null where no program is. Hostile text for opaque steps. */
  argv: z.array(z.string()).nullable(),
  /** What it works on, e.g. the lock file's path or the base's reference. */
  subject: z.string(),
  artefacts: z.array(ImageArtefact),
  /** Where from, as far as it is known before; host names of the user's own configuration or of the lock file. */
  sources: z.array(z.string()),
});
export type ImageStep = z.infer<typeof ImageStep>;

/** Who said yes, as asserted; a standing yes holds for exactly this set of artefacts. */
export const ImageApproval = z.strictObject({
  by: z.string(),
  channel: z.enum(['window', 'tty', 'script']),
  standing: z.boolean(),
  at: WallTime,
});
export type ImageApproval = z.infer<typeof ImageApproval>;

/** What preparing would do, before anything is done. */
export const ImagePlan = z.strictObject({
  /** Digest over everything that comes from outside or runs: what a yes is bound to. */
  plan: Sha256,
  /** `ready`: the image is there and nothing is to be done. */
  state: z.enum(['ready', 'needed']),
  base: z.strictObject({
    reference: z.string(),
    /** Id in the container engine; null where it is not there yet. */
    digest: z.string().nullable(),
    source: z.enum(['contract', 'default', 'language']),
    sizeBytes: z.number().nullable(),
  }),
  steps: z.array(ImageStep),
  /** Sum of the known sizes; `unknown` says what is missing in it. */
  downloadBytes: z.number(),
  /** Disk that is set aside while preparing: more is refused. */
  reservedBytes: z.number(),
  /** Free on the disk of temporary files; null where it can't be read. */
  freeBytes: z.number().nullable(),
  /** A standing yes for exactly this plan. */
  approval: ImageApproval.nullable(),
  /** False where a yes can't be made standing: opaque steps are shown each time. */
  mayStand: z.boolean(),
  image: z.strictObject({ reference: z.string(), digest: z.string(), record: Sha256.nullable() }).nullable(),
  /** What can't be known before, one code each, e.g. `npm_sizes`, `base_size`. */
  unknown: z.array(z.string()),
});
export type ImagePlan = z.infer<typeof ImagePlan>;

/** What a step really did. */
export const ImageStepResult = z.strictObject({
  kind: ImageStep.shape.kind,
  made: z.boolean(),
  ms: z.number(),
  /** What was fetched, with the hash that was found; null where the client does not say. */
  artefacts: z.number().int().nullable(),
  downloadedBytes: z.number().nullable(),
  files: z.number().int().nullable(),
  bytes: z.number().nullable(),
  /** Digest over path, mode and hash of every file that the step put into the image. */
  tree: Sha256.nullable(),
});
export type ImageStepResult = z.infer<typeof ImageStepResult>;

/** The measured result of a preparation: part of the evidence, its digest part of the binding. */
export const ImageRecord = z.strictObject({
  image: z.string(),
  reference: z.string(),
  plan: Sha256,
  base: z.strictObject({ reference: z.string(), digest: z.string() }),
  node: z.string(),
  executor: Sha256,
  dependencies: Sha256.nullable(),
  approval: ImageApproval,
  steps: z.array(ImageStepResult),
  /** As the engine says; checked again at each use. */
  sizeBytes: z.number(),
  layers: z.array(z.string()),
  ms: z.number(),
});
export type ImageRecord = z.infer<typeof ImageRecord>;

export const ImageView = z.strictObject({
  id: z.string(),
  tags: z.array(z.string()),
  kind: z.enum(['base', 'flat', 'dependencies', 'steps', 'prepared']),
  /** Whose it is: made by this Kernel's home, by the set-up of this machine, or by another home. */
  owner: z.enum(['this-home', 'set-up', 'another-home']),
  createdAt: WallTime,
  /** With everything below it. */
  sizeBytes: z.number(),
  /** What only this image has among all images of the engine; null where a layer's size is not told. */
  ownBytes: z.number().nullable(),
  base: z.string().nullable(),
  executor: z.string().nullable(),
  dependencies: z.string().nullable(),
  /** Why it is kept by a prune, or null: `current`, `session`, `contract`, `container`, `below`, `not-ours`, `usable`. */
  kept: z.string().nullable(),
});
export type ImageView = z.infer<typeof ImageView>;

export const ImageList = z.strictObject({
  images: z.array(ImageView),
  /** All layers of these images, each counted once. */
  totalBytes: z.number(),
  /** `layer_sizes`: some layers' sizes are not told; `engine_overhead`: what the engine's storage adds. */
  unknown: z.array(z.string()),
});
export type ImageList = z.infer<typeof ImageList>;

export const ImagePrune = z.strictObject({
  /** False: a preview, nothing was touched. */
  done: z.boolean(),
  removed: z.array(ImageView),
  kept: z.array(ImageView),
  failed: z.array(z.strictObject({ id: z.string(), reason: z.string() })),
  /** Bytes of layers that no image of the engine has any more; of a preview: would have. */
  freedBytes: z.number(),
  unknown: z.array(z.string()),
});
export type ImagePrune = z.infer<typeof ImagePrune>;
