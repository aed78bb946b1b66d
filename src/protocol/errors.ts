import * as z from 'zod';

/**
 * Every coded error that crosses the wire. The number is the JSON-RPC error code (range -32099…-31000 is ours, apart
 * from LSP's own). `next` is the one line that says what to do next; clients show it as it is.
 */
export const errorCodes = {
  StaleAuthority: -31001,
  NotController: -31002,
  NotFound: -31003,
  InvalidContract: -31010,
  ContractNotFrozen: -31011,
  BaselineMissing: -31012,
  BaselineNotDiscriminating: -31013,
  NotAGitRepository: -31014,
  NotQualified: -31020,
  ModelNotFound: -31021,
  CloudModelRefused: -31022,
  InferenceUnavailable: -31023,
  InferenceTooOld: -31024,
  EngineNotApproved: -31025,
  WeightsDiffer: -31026,
  EngineUnavailable: -31030,
  ImageUnavailable: -31031,
  ImageNotApproved: -31034,
  ImageChanged: -31035,
  DependenciesUnusable: -31036,
  PreparationFailed: -31037,
  LimitNotInForce: -31032,
  ExecutionDisabled: -31033,
  IncompleteCollection: -31040,
  NotVerified: -31041,
  OutOfScope: -31046,
  CandidateChanged: -31042,
  AlreadyDecided: -31043,
  BudgetSpent: -31044,
  BaseChanged: -31050,
  UnsavedChanges: -31051,
  UnsafePath: -31052,
  NotIntegrated: -31053,
  WrongState: -31060,
  Cancelled: -31061,
  StorageFull: -31070,
  StorageUnwritable: -31071,
  StorageTooNew: -31072,
  ArtefactDamaged: -31073,
  AnotherKernel: -31080,
  VersionMismatch: -31081,
  HandshakeRefused: -31082,
  NoKernel: -31083,
  KernelDraining: -31084,
  RuntimeTooOld: -31085,
  InvalidSettings: -31086,
  InvalidParams: -32602,
  Internal: -32603,
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** The `data` member of every coded error. `details` is plain JSON, for programs and for "show details". */
export const ErrorData = z.object({
  code: z.string(),
  next: z.string(),
  details: z.record(z.string(), z.unknown()).optional(),
});
export type ErrorData = z.infer<typeof ErrorData>;

/**
 * A fault that a person or a script can act on. Thrown across module borders inside the Kernel and turned into a
 * JSON-RPC error at the wire; clients turn it back. Defects are ordinary `Error`s and become `Internal`.
 */
export class EscrowError extends Error {
  override readonly name = 'EscrowError';
  readonly code: ErrorCode;
  readonly next: string;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: ErrorCode, message: string, next: string, details: Readonly<Record<string, unknown>> = {}) {
    super(message);
    this.code = code;
    this.next = next;
    this.details = details;
  }

  static is(value: unknown, code?: ErrorCode): value is EscrowError {
    return value instanceof EscrowError && (code === undefined || value.code === code);
  }

  /** Rebuilds the typed error from a JSON-RPC error's `code`, `message` and `data`; undefined when it is not ours. */
  static fromWire(message: string, data: unknown): EscrowError | undefined {
    const parsed = ErrorData.safeParse(data);
    if (!parsed.success || !Object.hasOwn(errorCodes, parsed.data.code)) return undefined;
    return new EscrowError(parsed.data.code as ErrorCode, message, parsed.data.next, parsed.data.details ?? {});
  }

  toData(): ErrorData {
    return { code: this.code, next: this.next, details: { ...this.details } };
  }
}
