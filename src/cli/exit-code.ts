import { unreachable } from '../protocol/primitives.ts';
import { EscrowError, type ErrorCode } from '../protocol/errors.ts';

/** What a script can rely on. Documented in docs/cli.md and in `escrow --help`. */
export const exitCodes = {
  /** It was done, and the answer is yes. */
  ok: 0,
  /** It was done, and the answer is no (a check failed, no candidate came out, not verified); or a defect of ours. */
  failed: 1,
  /** The command was not understood, or names something that isn't there. Nothing was done. */
  usage: 2,
  /** No Kernel could be reached or started. */
  kernel: 3,
  /** The Kernel refused: the precondition that the message names doesn't hold. Nothing was changed. */
  refused: 4,
  /** Something on this machine is missing or full: container engine, image, inference engine, disk. */
  environment: 5,
  /** Ended by Ctrl-C, after settlement. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** The command line was wrong; printed with what to do next: the usage of the command, where nothing better is known. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly next: string | undefined;

  constructor(message: string, next?: string) {
    super(message);
    this.next = next;
  }
}

/** Where a coded error of the Kernel or of the connection ends up. Exhaustive: a new code must choose. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  switch (code) {
    case 'NotFound':
    case 'InvalidParams':
    case 'InvalidContract':
    case 'NotAGitRepository':
    case 'ModelNotFound':
      return exitCodes.usage;
    case 'AnotherKernel':
    case 'VersionMismatch':
    case 'HandshakeRefused':
    case 'NoKernel':
    case 'KernelDraining':
    case 'RuntimeTooOld':
    case 'StorageTooNew':
    case 'StorageUnwritable':
    case 'InvalidSettings':
      return exitCodes.kernel;
    case 'StaleAuthority':
    case 'NotController':
    case 'ContractNotFrozen':
    case 'BaselineMissing':
    case 'BaselineNotDiscriminating':
    case 'NotQualified':
    case 'CloudModelRefused':
    case 'ExecutionDisabled':
    case 'IncompleteCollection':
    case 'NotVerified':
    case 'OutOfScope':
    case 'CandidateChanged':
    case 'AlreadyDecided':
    case 'BudgetSpent':
    case 'BaseChanged':
    case 'UnsavedChanges':
    case 'UnsafePath':
    case 'NotIntegrated':
    case 'WrongState':
    case 'EngineNotApproved':
    case 'ImageNotApproved':
    case 'ImageChanged':
      return exitCodes.refused;
    case 'InferenceUnavailable':
    case 'InferenceTooOld':
    case 'WeightsDiffer':
    case 'EngineUnavailable':
    case 'ImageUnavailable':
    case 'DependenciesUnusable':
    case 'PreparationFailed':
    case 'LimitNotInForce':
    case 'StorageFull':
    case 'ArtefactDamaged':
      return exitCodes.environment;
    case 'Cancelled':
      return exitCodes.interrupted;
    case 'Internal':
      return exitCodes.failed;
    default:
      return unreachable(code, 'error code');
  }
}

/** Exit code of whatever a command threw. An unsafe path before any Kernel was reached is that of the state folder. */
export function exitCodeOfThrown(error: unknown, connected: boolean): ExitCode {
  if (EscrowError.is(error, 'UnsafePath') && !connected) return exitCodes.kernel;
  if (error instanceof UsageError) return exitCodes.usage;
  if (EscrowError.is(error)) return exitCodeOf(error.code);
  return exitCodes.failed;
}
