import type { FrozenContract } from '../../protocol/contract.ts';
import { dependencyEnvironment, moduleFolders } from '../contract/contract-image.ts';
import type { ContractBook } from '../contract/contract-book.ts';
import type { SandboxSpec } from '../sandbox/port.ts';
import type { AttemptState, SessionState } from './state.ts';

/** The container's name: known before it exists, so that a restarted Kernel finds what a dead one intended. */
export function containerName(purpose: SandboxSpec['purpose'], owner: string): string {
  return `escrow-${purpose}-${owner.replace('_', '-')}`;
}

/** Of what may still be kept of a session, left for the rest of the attempt's evidence: requests, answers, audit, monitor. */
const evidenceShare = 0.25;
const evidenceBytes = 32 * 1024 * 1024;

/**
 * The sandbox of an attempt: the whole snapshot, the contract's scope, and only the visible checks as commands. `room`:
 * bytes that may still be kept of its session.
 */
export async function attemptSpec(
  state: SessionState,
  attempt: AttemptState,
  contract: FrozenContract,
  contracts: ContractBook,
  room: number,
): Promise<SandboxSpec> {
  return {
    name: containerName('attempt', attempt.id),
    purpose: 'attempt',
    owner: attempt.id,
    session: state.id,
    epoch: attempt.epoch,
    image: { ...state.binding.image, executorDigest: state.binding.executorDigest },
    profile: contract.profile,
    files: contract.files,
    bytesOf: contracts.bytesOf,
    readable: contract.readable,
    writable: contract.writable.map((w) => w.path),
    scratch: contract.scratch,
    modules: moduleFolders(contract),
    mayChange: Math.floor(room - Math.min(evidenceBytes, room * evidenceShare)),
    commands: contract.checks
      .filter((check) => check.kind === 'acceptance')
      .map(({ id, argv, timeoutS, captureKiB, env }) => ({
        id,
        argv,
        timeoutS,
        captureKiB,
        env: { ...dependencyEnvironment(contract), ...env },
      })),
  };
}
