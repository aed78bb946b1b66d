import * as z from 'zod';
import { ArtefactRef, ContractDigest, FileEntry, RelPath, Sha256, WallTime } from './primitives.ts';

const glob = z.string().min(1).max(512);
const argv = z.array(z.string().max(4096)).min(1).max(64);
const checkId = z.string().regex(/^[a-z0-9][a-z0-9-]{0,39}$/, 'lower-case letters, digits and dashes, at most 40');
const env = z.record(
  z
    .string()
    .regex(/^[A-Z][A-Z0-9_]{0,63}$/, 'a variable is named in capitals, digits and underscores, at most 64')
    .refine((n) => !/^(LD_|NODE_OPTIONS$|PYTHON(PATH|STARTUP|HOME|INSPECT)$|GIT_|PATH$|HOME$|BASH_ENV$|ENV$)/.test(n), {
      error: 'this variable is set by the sandbox and cannot be chosen',
    }),
  z.string().max(1024),
);

/** 120 s and 16 KiB shown of 4 MiB captured: defaults of design 40. */
export const contractDefaults = {
  timeoutS: 120,
  showKiB: 16,
  captureKiB: 4096,
  attempts: 2,
  requestsPerAttempt: 12,
  outputTokensPerRequest: 1536,
  wallS: 600,
} as const;

const AcceptanceSource = z.strictObject({
  id: checkId.meta({ description: 'Short name of the check, unique in the contract.' }),
  argv: argv.meta({ description: 'The exact program and arguments. No shell reads them.' }),
  baseline: z
    .enum(['fail', 'pass'])
    .default('fail')
    .meta({ description: 'What the check does on the untouched snapshot. At least one check must fail there.' }),
  timeoutS: z.number().int().min(1).max(3600).default(contractDefaults.timeoutS),
  showKiB: z.number().int().min(1).max(256).default(contractDefaults.showKiB),
  captureKiB: z.number().int().min(1).max(4096).default(contractDefaults.captureKiB),
  env: env.default({}),
});

const SupplementalSource = z.strictObject({
  id: checkId.optional(),
  path: z.union([glob, z.array(glob).min(1).max(64)]).meta({
    description: 'Files that only the verifier sees, relative to the repository. The agent never does.',
  }),
  argv,
  timeoutS: z.number().int().min(1).max(3600).default(contractDefaults.timeoutS),
  captureKiB: z.number().int().min(1).max(4096).default(contractDefaults.captureKiB),
  env: env.default({}),
});

/** More than 32 is most of a file, and 200 characters are more than any path of names that a person writes. */
const symbolNames = z.array(z.string().min(1).max(200)).min(1).max(32);
const WritableSource = z.union([
  glob.transform((path) => ({
    path,
    symbols: undefined as string[] | undefined,
    newSymbols: undefined as string[] | undefined,
  })),
  z.strictObject({
    path: glob,
    symbols: symbolNames.optional().meta({
      description: 'What of the file may change: functions, classes, `Class.method`, `imports`. Default: all of it.',
    }),
    newSymbols: symbolNames.optional().meta({ description: 'What may be added to the file beside that.' }),
  }),
]);

/** The named sets of limits (design 20, issue 3 item 7). */
export const ProfileName = z.enum(['bounded', 'standard']);
export type ProfileName = z.infer<typeof ProfileName>;

const DependenciesSource = z.strictObject({
  npm: glob.optional().meta({ description: 'A package-lock.json; its package.json lies beside it.' }),
  python: z
    .union([
      glob.transform((lock) => ({ lock, sources: undefined as string[] | undefined })),
      z.strictObject({ lock: glob, sources: z.array(z.string().min(1).max(512)).min(1).max(16).optional() }),
    ])
    .optional()
    .meta({ description: 'A requirements file in which each line has a version and hashes.' }),
});

const ImageStepSource = z.strictObject({
  argv: argv.meta({ description: 'The exact program and arguments, run as root while the image is made.' }),
  network: z.boolean().default(false),
});

/** The file a person writes: `*.contract.jsonc`. Short by default; freezing spells the defaults out. */
export const ContractSource = z.strictObject({
  $schema: z.string().max(512).optional(),
  title: z.string().trim().min(1).max(120).meta({ description: 'One line that names the change.' }),
  instruction: z
    .string()
    .trim()
    .min(1)
    .max(8000)
    .meta({ description: 'What to change and what must stay. The model reads exactly this.' }),
  snapshot: z
    .strictObject({ include: z.array(glob).min(1).max(256), exclude: z.array(glob).max(256).default([]) })
    .optional()
    .meta({ description: 'Files that are placed in the sandbox. Default: every file that git tracks.' }),
  readable: z
    .array(glob)
    .max(256)
    .optional()
    .meta({ description: 'Files the model may be shown. Default: the snapshot.' }),
  writable: z
    .array(WritableSource)
    .min(1)
    .max(64)
    .meta({ description: 'The only files the model may change, each named exactly.' }),
  acceptance: z.array(AcceptanceSource).min(1).max(32).meta({ description: 'Checks that decide. All must pass.' }),
  protected: z.array(glob).max(256).optional().meta({
    description: 'Files that are put back before verification. Default: test folders and files the checks name.',
  }),
  supplemental: z.array(SupplementalSource).max(32).default([]),
  tools: z
    .array(z.enum(['search']))
    .max(1)
    .default([])
    .meta({ description: 'Tools beside those that the model always has. `search`: a literal search over its files.' }),
  scratch: z
    .array(glob)
    .max(16)
    .default([])
    .meta({ description: 'Folders that commands may write to; never collected.' }),
  budget: z
    .strictObject({
      attempts: z.number().int().min(1).max(20).default(contractDefaults.attempts),
      requestsPerAttempt: z.number().int().min(1).max(200).default(contractDefaults.requestsPerAttempt),
      outputTokensPerRequest: z.number().int().min(64).max(32768).default(contractDefaults.outputTokensPerRequest),
      wallS: z.number().int().min(5).max(86_400).default(contractDefaults.wallS),
    })
    .prefault({}),
  profile: ProfileName.default('bounded'),
  image: z
    .strictObject({
      base: z.string().min(1).max(256).optional(),
      dependencies: DependenciesSource.optional(),
      steps: z.array(ImageStepSource).max(16).optional(),
    })
    .prefault({})
    .meta({ description: 'The base image. Default: the base that `npm run setup` made.' }),
});
export type ContractSource = z.infer<typeof ContractSource>;

const FrozenFile = FileEntry.extend({ protected: z.boolean() });

/** What the image's packages are made from: lock files and manifests by hash, and nothing else of the repository. */
export const FrozenDependencies = z.strictObject({
  npm: z.strictObject({ lock: FileEntry, manifests: z.array(FileEntry) }).optional(),
  /** `sources`: folders that Python finds the project's own modules in; `.` is the repository. */
  python: z.strictObject({ lock: FileEntry, sources: z.array(z.string()) }).optional(),
});
export type FrozenDependencies = z.infer<typeof FrozenDependencies>;

export const FrozenCheck = z.strictObject({
  id: checkId,
  kind: z.enum(['acceptance', 'supplemental']),
  argv,
  /** Supplemental checks have no baseline claim. */
  baseline: z.enum(['fail', 'pass']).nullable(),
  timeoutS: z.number(),
  showKiB: z.number(),
  captureKiB: z.number(),
  env: z.record(z.string(), z.string()),
});
export type FrozenCheck = z.infer<typeof FrozenCheck>;

/** A part of a file that may change. `exists` is false for one that may be added. */
export const FrozenSymbol = z.strictObject({ name: z.string(), exists: z.boolean() });
export type FrozenSymbol = z.infer<typeof FrozenSymbol>;

/**
 * The frozen contract: every default spelled out, every file by hash. Its canonical JSON (sorted keys, no spaces) is
 * what the contract digest is taken over. It names no machine, no root folder and no image digest: those are facts of
 * the freeze record and of the binding, so the same contract has the same digest everywhere.
 */
export const FrozenContract = z.strictObject({
  version: z.literal(1),
  title: z.string(),
  instruction: z.string(),
  files: z.array(FrozenFile),
  readable: z.array(RelPath),
  /**
   * `exists` is false for a file the contract lets the model create. `symbols`: what of it may change; null: all of it.
   */
  writable: z.array(z.strictObject({ path: RelPath, symbols: z.array(FrozenSymbol).nullable(), exists: z.boolean() })),
  checks: z.array(FrozenCheck),
  supplementalFiles: z.array(FileEntry),
  tools: z.array(z.enum(['search'])),
  scratch: z.array(RelPath),
  budget: z.strictObject({
    attempts: z.number().int(),
    requestsPerAttempt: z.number().int(),
    outputTokensPerRequest: z.number().int(),
    wallS: z.number().int(),
  }),
  profile: ProfileName,
  /** A reference as it was written, also where a devcontainer.json was named; its digest is a fact of the freeze record. */
  imageBase: z.string().nullable(),
  /** Absent where there are none: the digest of such a contract does not depend on this member's existence. */
  imageDependencies: FrozenDependencies.optional(),
  imageSteps: z.array(z.strictObject({ argv, network: z.boolean() })).optional(),
});
export type FrozenContract = z.infer<typeof FrozenContract>;

/** A remark on a contract file. Offsets are UTF-16 code units in the text, as in LSP. */
export const ContractDiagnostic = z.strictObject({
  severity: z.enum(['error', 'warning', 'information']),
  code: z.string(),
  message: z.string(),
  offset: z.number().int(),
  length: z.number().int(),
});
export type ContractDiagnostic = z.infer<typeof ContractDiagnostic>;

/** How a command in the sandbox ended. Exactly one; never inferred from output. */
export const CommandEnd = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('exit'), code: z.number().int() }),
  z.strictObject({ kind: z.literal('signal'), signal: z.string() }),
  z.strictObject({ kind: z.literal('timeout'), afterMs: z.number() }),
  z.strictObject({ kind: z.literal('overflow'), limitBytes: z.number() }),
  z.strictObject({ kind: z.literal('oom') }),
  /** Failed while this writable area had no room left. */
  z.strictObject({ kind: z.literal('no-space'), area: z.string() }),
  /** Failed after the process limit had refused it a process or thread. */
  z.strictObject({ kind: z.literal('pids') }),
  /** Ended since it had the kernel keep more of these than may be; no limit of a container counts them. */
  z.strictObject({ kind: z.literal('hoard'), of: z.enum(['sockets', 'locks']) }),
  z.strictObject({ kind: z.literal('cancelled') }),
  z.strictObject({ kind: z.literal('spawn-failed'), errno: z.string() }),
  z.strictObject({ kind: z.literal('unknown'), reason: z.string() }),
]);
export type CommandEnd = z.infer<typeof CommandEnd>;

/** What a known runner's closing summary said; null counts are ones it did not print. */
export const TestSummary = z.strictObject({
  runner: z.enum(['unittest', 'pytest', 'node', 'vitest', 'jest', 'go', 'cargo']),
  total: z.number().int(),
  passed: z.number().int(),
  failed: z.number().int(),
  skipped: z.number().int(),
  /** Names of passing tests where the runner prints them; null where it does not. */
  passing: z.array(z.string()).nullable(),
});
export type TestSummary = z.infer<typeof TestSummary>;

export const CheckResult = z.strictObject({
  id: checkId,
  kind: z.enum(['acceptance', 'supplemental']),
  argv: z.array(z.string()),
  end: CommandEnd,
  durationMs: z.number(),
  verdict: z.enum(['pass', 'fail']),
  /** Why not passed (a code, see `verification/`), null when passed. */
  reason: z.string().nullable(),
  /** `summary`: the runner's own count was read; `exit-code`: nothing but the exit status is known. */
  strength: z.enum(['summary', 'exit-code']),
  summary: TestSummary.nullable(),
  output: ArtefactRef.nullable(),
  /** True where the capture limit cut the kept output. */
  outputCut: z.boolean(),
  /** A bounded tail of the output for views; the whole is the artefact. Hostile text. */
  tail: z.string(),
});
export type CheckResult = z.infer<typeof CheckResult>;

/**
 * Why a file is out of scope. The first five: outside the symbols something changed, was added, was removed, stands in
 * another structure (line breaks, indentation, nesting), or a symbol stands elsewhere. Then: why that could not be shown.
 */
export const ScopeReason = z.enum([
  'changed',
  'added',
  'removed',
  'layout',
  'moved',
  'does-not-parse',
  'ambiguous',
  'unreadable',
  'encoding',
  'not-text',
  'too-large',
  'too-slow',
  'parser-failed',
  'deleted',
  'mode',
]);
export type ScopeReason = z.infer<typeof ScopeReason>;

/**
 * What parsed both versions of a file: a package of grammars, and the hashes of the two files of it that were loaded for
 * this language. The hashes count; package and version are those that the Kernel was built with.
 */
export const ScopeGrammar = z.strictObject({
  package: z.string(),
  version: z.string(),
  language: z.string(),
  grammar: Sha256,
  runtime: Sha256,
});
export type ScopeGrammar = z.infer<typeof ScopeGrammar>;

/** Whether a candidate's file stayed within the symbols that its contract names. Texts are hostile, one line each. */
export const FileScope = z.strictObject({
  path: RelPath,
  symbols: z.array(FrozenSymbol),
  /** `not-checked`: nothing is known, and so it is not within scope. */
  outcome: z.enum(['inside', 'outside', 'not-checked']),
  reason: ScopeReason.nullable(),
  /** In the candidate's file, from 1; null where no place can be named. */
  line: z.number().int().nullable(),
  /** The line there, and the one that stood there before. */
  found: z.string().nullable(),
  expected: z.string().nullable(),
  /** Absent: nothing was parsed (the file is gone, only its mode changed, no parser), or an earlier version recorded it. */
  grammar: ScopeGrammar.optional(),
});
export type FileScope = z.infer<typeof FileScope>;

export const BaselineView = z.strictObject({
  contractDigest: ContractDigest,
  runId: z.string(),
  imageDigest: z.string(),
  at: WallTime,
  result: z.enum(['discriminates', 'does-not-discriminate', 'incomplete']),
  /** Why incomplete or not discriminating, one line a check. */
  problems: z.array(z.string()),
  checks: z.array(CheckResult),
});
export type BaselineView = z.infer<typeof BaselineView>;

export const ContractView = z.strictObject({
  digest: ContractDigest,
  root: z.string(),
  path: z.string(),
  frozenAt: WallTime,
  contract: FrozenContract,
  sourceSha256: Sha256,
  /** True where the digest is that of an example that ships with Escrow. */
  shipped: z.boolean(),
  /** What the base's reference stood for at the freeze; null digest: no engine, or no such image there. */
  base: z.strictObject({ reference: z.string().nullable(), digest: z.string().nullable() }).optional(),
  baseline: BaselineView.nullable(),
});
export type ContractView = z.infer<typeof ContractView>;
