import * as z from 'zod';

/** Lower-case hex SHA-256 of some bytes. */
export const Sha256 = z
  .string()
  .regex(/^[0-9a-f]{64}$/, 'a SHA-256 in lower-case hex')
  .brand<'Sha256'>();
export type Sha256 = z.infer<typeof Sha256>;

const id = <B extends string>(prefix: B) =>
  z
    .string()
    .regex(new RegExp(`^${prefix}_[0-9a-z]{10,32}$`), `an id that starts with ${prefix}_`)
    .brand<B>();

/** Ids are `<kind>_<random>`; the prefix makes a wrong id visible at the border. */
export const SessionId = id('ses');
export type SessionId = z.infer<typeof SessionId>;
export const AttemptId = id('att');
export type AttemptId = z.infer<typeof AttemptId>;
export const RunId = id('run');
/** A run is a sandbox use that is not an attempt: a baseline or a verification. */
export type RunId = z.infer<typeof RunId>;
export const IntegrationId = id('int');
export type IntegrationId = z.infer<typeof IntegrationId>;

/** Stable for the life of a window (or of one command-line process); re-attaching uses the same. */
export const ClientId = z
  .string()
  .min(8)
  .max(80)
  .regex(/^[\w.:-]+$/)
  .brand<'ClientId'>();
export type ClientId = z.infer<typeof ClientId>;

/** Digest of a frozen contract's canonical JSON. */
export const ContractDigest = Sha256.brand<'ContractDigest'>();
export type ContractDigest = z.infer<typeof ContractDigest>;
/** Digest of a candidate's canonical manifest. */
export const CandidateDigest = Sha256.brand<'CandidateDigest'>();
export type CandidateDigest = z.infer<typeof CandidateDigest>;

/** A path inside a workspace that has passed the rules of `paths.ts`. */
export const RelPath = z.string().min(1).max(1024).brand<'RelPath'>();
export type RelPath = z.infer<typeof RelPath>;

/** Milliseconds since the Unix epoch, wall clock of the machine that observed. For people; never the arbiter. */
export const WallTime = z.number().int().nonnegative();
export type WallTime = z.infer<typeof WallTime>;

/** Rises by one with each hand-over of control; a request that names a lower one is refused. */
export const FencingToken = z.number().int().nonnegative().brand<'FencingToken'>();
export type FencingToken = z.infer<typeof FencingToken>;

/** Who vouches for a statement: only the engine's word, only what the host saw, both, or nobody. */
export const Witness = z.enum(['engine', 'host', 'both', 'none']);
export type Witness = z.infer<typeof Witness>;

/** Content-addressed bytes that the Kernel keeps. */
export const ArtefactRef = z.strictObject({ sha256: Sha256, size: z.number().int().nonnegative() });
export type ArtefactRef = z.infer<typeof ArtefactRef>;

/** One regular file: permission bits only (no type, no set-id), e.g. 0o644. */
export const FileEntry = z.strictObject({
  path: RelPath,
  mode: z.number().int().min(0).max(0o777),
  size: z.number().int().nonnegative(),
  sha256: Sha256,
});
export type FileEntry = z.infer<typeof FileEntry>;

/** Exhaustiveness helper: a new member of a union becomes a compile error where it is not handled. */
export function unreachable(value: never, what = 'value'): never {
  throw new Error(`unreachable ${what}: ${JSON.stringify(value)}`);
}
