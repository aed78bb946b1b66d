import type { ErrorCode } from '../protocol/errors.ts';
import type { Localize } from './trees/tree-node.ts';

/** What went wrong, as an `EscrowError` says it; the code is null where it is not one. */
export interface Fault {
  readonly code: ErrorCode | null;
  readonly message: string;
  /** The Kernel's line on what to do; it may name a command of the command line. */
  readonly next: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface FaultWords {
  /** What is so, as a sentence. */
  readonly what: string;
  /** What to do about it, as a sentence; empty where nothing helps. */
  readonly next: string;
}

/** The text as a sentence: with an end, so that another may follow. */
function sentence(text: string): string {
  const trimmed = text.trim();
  return trimmed === '' || /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** The sentences one after the other. */
export function inOneLine({ what, next }: FaultWords): string {
  return [what, next].filter((part) => part !== '').join(' ');
}

/**
 * A fault in the window's words. The error's own where they are made for people; others where it holds the text of a
 * program or names a command of the command line, and the window has a button. What was left out is in the log. `home`:
 * the state folder.
 */
export function faultWords(fault: Fault, home: string, t: Localize): FaultWords {
  const own: FaultWords = { what: sentence(fault.message), next: sentence(fault.next) };
  const { details } = fault;
  switch (fault.code) {
    case 'EngineUnavailable':
      return engineWords(details['kind'], own, t);
    case 'ImageUnavailable':
      // Frozen with a base that is gone, or the extension is not whole: preparing would not help.
      return typeof details['pinned'] === 'string' || 'executorPath' in details
        ? own
        : { what: own.what, next: t('Prepare the sandbox image.') };
    case 'EngineNotApproved':
      return { what: own.what, next: t('Approve the server first.') };
    case 'StorageFull':
      return details['reason'] === 'disk'
        ? { what: t('No space is left on the disk that holds {0}.', home), next: t('Free space there.') }
        : own;
    case 'StorageUnwritable':
      return details['reason'] === 'unwritable'
        ? {
            what: t('Escrow cannot write its state folder, {0}.', home),
            next: t('See that the folder and its disk can be written.'),
          }
        : own;
    case 'NoKernel':
      return typeof details['nodePath'] === 'string'
        ? { what: t('The Kernel could not be started with {0}.', details['nodePath']), next: own.next }
        : linkWords(details['link'], own, t);
    case 'Internal':
    case null:
      return { what: t('Something happened that Escrow did not expect.'), next: t('The log says what.') };
    default:
      return own;
  }
}

function engineWords(kind: unknown, own: FaultWords, t: Localize): FaultWords {
  switch (kind) {
    case 'unreachable':
      return { what: t('No container engine answers.'), next: t('Start Docker or Podman, then try again.') };
    case 'timeout':
      return { what: t('The container engine does not answer in time.'), next: t('Restart it, then try again.') };
    case 'permission':
      return { what: t('The container engine does not let your user in.'), next: own.next };
    default:
      return { what: own.what, next: t('Check Health says what is wrong with the container engine.') };
  }
}

/** How the window's own connection ended. */
function linkWords(how: unknown, own: FaultWords, t: Localize): FaultWords {
  switch (how) {
    case 'stopped':
      return { what: t('The Kernel was stopped.'), next: t('Start it when it is wanted.') };
    case 'ended':
      return { what: t('The connection to the Kernel ended.'), next: '' };
    case 'unforeseen':
      return {
        what: t('The connection to the Kernel failed in an unforeseen way.'),
        next: t('See the log, then start it again.'),
      };
    default:
      return own;
  }
}
