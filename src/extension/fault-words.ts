import { EscrowError, type ErrorCode } from '../protocol/errors.ts';
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
  /** What is so, as a sentence of the window. */
  readonly what: string;
  /** What the Kernel says of this case, where the window's sentence is about many; empty where it says nothing more. */
  readonly detail: string;
  /** What to do about it in this window, as a sentence; empty where nothing helps. */
  readonly next: string;
}

/** The text as a sentence: with an end, so that another may follow. */
function sentence(text: string): string {
  const trimmed = text.trim();
  return trimmed === '' || /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** The sentences one after the other. */
export function inOneLine({ what, detail, next }: FaultWords): string {
  return [what, detail, next].filter((part) => part !== '').join(' ');
}

/** A fault that the window itself found: its words are for people already. */
export function windowFault(code: ErrorCode, what: string, next: string, details: Fault['details'] = {}): EscrowError {
  return new EscrowError(code, what, next, { ...details, words: 'window' });
}

/** At most three of the paths that an error is about. */
function pathsOf(details: Fault['details']): string {
  const { paths } = details;
  const named = Array.isArray(paths) ? paths.filter((path) => typeof path === 'string') : [];
  return named.length > 3 ? `${named.slice(0, 3).join(', ')}, …` : named.join(', ');
}

/**
 * A fault in the window's words, each code with its own: what is so, and the command or button of this window that
 * helps. What a program said, and what names the command line, is in the log alone. `home`: the state folder.
 */
export function faultWords(fault: Fault, home: string, t: Localize): FaultWords {
  const { code, details } = fault;
  const said = sentence(fault.message);
  /** The window's sentence says it all. */
  const whole = (what: string, next: string): FaultWords => ({ what, detail: '', next });
  /** The window's sentence is about many cases; the Kernel's says which. */
  const cased = (what: string, next: string): FaultWords => ({ what, detail: said, next });
  const told = (name: string): string | undefined => {
    const value = details[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  if (details['words'] === 'window') return whole(said, sentence(fault.next));
  switch (code) {
    case 'StaleAuthority':
      return whole(
        t('This window has lost control of the session, or the attempt is over.'),
        t('Attach to the session, then try again.'),
      );
    case 'NotController':
      return whole(t('This window does not control the session.'), t('Attach to it and take control.'));
    case 'NotFound':
      return cased(t('The Kernel does not have it.'), t('Refresh the view, then try again.'));
    case 'InvalidContract':
      return cased(t('The contract is not valid.'), t('Problems lists what to mend.'));
    case 'ContractNotFrozen':
      return whole(t('This contract has not been frozen here.'), t('Freeze it, then try again.'));
    case 'BaselineMissing':
      return whole(
        t('The baseline of this contract has not been checked in the image that is there now.'),
        t('Check the baseline first.'),
      );
    case 'BaselineNotDiscriminating':
      return whole(
        t('The checks of this contract cannot tell broken from fixed.'),
        t('Check the baseline: the log then has the output of each check. Then change the contract.'),
      );
    case 'NotAGitRepository':
      return whole(
        t('The folder is not in a git repository.'),
        t('Open the folder of a git repository, or make one of it ("git init").'),
      );
    case 'NotQualified':
      return whole(t('This model is not qualified for contracts of one’s own.'), t('Choose another model.'));
    case 'ModelNotFound':
      return cased(t('There is no such model to use.'), t('Choose one of the Models view.'));
    case 'CloudModelRefused':
      return whole(
        t('The prompts of this model would leave this machine.'),
        t('Choose a model that runs on this machine.'),
      );
    case 'InferenceUnavailable':
      return whole(
        t('The inference engine does not answer, or cannot be used as it is set up.'),
        t('Start it, then check Health.'),
      );
    case 'InferenceTooOld':
      return whole(
        t('Ollama {0} is too old: 0.30 or newer is needed.', told('version') ?? t('(version unknown)')),
        t('Update Ollama, then check Health.'),
      );
    case 'EngineNotApproved': {
      const host = told('host');
      return whole(
        host === undefined
          ? t('No server for chat completions has been approved.')
          : t('The server {0} is not approved any more.', host),
        t('Approve the server first.'),
      );
    }
    case 'WeightsDiffer':
      return whole(
        t('The weights of {0} are not what its engine says they are.', told('tag') ?? t('this model')),
        t('Remove the model from its engine and install it again, or choose another.'),
      );
    case 'EngineUnavailable':
      return engineWords(details['kind'], t);
    case 'ImageUnavailable':
      return imageWords(fault, said, t);
    case 'ImageNotApproved':
      return whole(
        t('Preparing the sandbox image needs your yes.'),
        t('Prepare the image: its plan is shown before you answer.'),
      );
    case 'ImageChanged':
      return 'recorded' in details
        ? whole(
            t('The prepared image is not the one that was measured when it was made.'),
            t('Remove it (Prune Sandbox Images), then prepare it again.'),
          )
        : whole(
            t('What would be prepared is not what was shown any more.'),
            t('Prepare the image again: the new plan is shown.'),
          );
    case 'DependenciesUnusable':
      return 'folders' in details
        ? cased(t('The packages cannot be installed.'), t('Install what is missing, then prepare again.'))
        : cased(
            t('The packages of this contract cannot be used.'),
            t('Mend the file, then freeze the contract again.'),
          );
    case 'PreparationFailed':
      return cased(t('The sandbox image was not prepared.'), t('The log says more. Then prepare it again.'));
    case 'LimitNotInForce':
      return whole(
        t('A limit of the sandbox is not in force, so nothing was run in it.'),
        t('Health says what the container engine lacks.'),
      );
    case 'ExecutionDisabled':
      return whole(
        t('Execution is switched off on this machine.'),
        t('Switch it on in the settings, then restart the Kernel.'),
      );
    case 'IncompleteCollection':
      return whole(
        t('These bytes can be looked at, not accepted: their attempt did not end with whole bytes.'),
        t('Start another attempt.'),
      );
    case 'NotVerified':
      return whole(
        t('Not all checks have passed on these bytes, or they are being run again.'),
        t('Its evidence says which. Verify the candidate again, or reject it.'),
      );
    case 'OutOfScope':
      return cased(
        t('This candidate changes what its contract does not let change.'),
        t('Reject it and say what must stay, or write a contract that lets more change.'),
      );
    case 'CandidateChanged':
      return whole(t('The candidate on screen is not the newest any more.'), t('Open the newest one of its session.'));
    case 'AlreadyDecided':
      return cased(
        t('Somebody has decided about this candidate.'),
        t('Start another attempt, or undo its integration.'),
      );
    case 'BudgetSpent':
      return whole(
        t('The attempts of this contract are used up, over all its sessions.'),
        t('Allow more attempts; that is recorded with your name.'),
      );
    case 'BaseChanged':
      return whole(
        t('Nothing was written: {0} changed since the contract was frozen.', pathsOf(details)),
        t('Put them back as they were and try again, or start a new session from what is there now.'),
      );
    case 'UnsavedChanges':
      return whole(
        t('Nothing was written: an editor holds unsaved changes of {0}.', pathsOf(details)),
        t('Save or revert them, then try again.'),
      );
    case 'UnsafePath':
      return told('reason') === undefined
        ? cased(
            t('A path is not safe to write.'),
            t('Open the folder that the contract was frozen in, with regular files in it.'),
          )
        : cased(
            t('The state folder {0} cannot be trusted with the record.', home),
            t('Mend that, or name another folder in the environment variable ESCROW_HOME.'),
          );
    case 'NotIntegrated':
      return whole(
        t('There is nothing to undo: your files are not as this integration left them.'),
        t('The rows of its session say why.'),
      );
    case 'WrongState':
      return cased(t('That cannot be done as the session is now.'), t('Look at its rows, then try again.'));
    case 'Cancelled':
      return whole(t('It was cancelled.'), t('Begin it again when you want it.'));
    case 'StorageFull':
      return storageFullWords(details, home, t);
    case 'StorageUnwritable':
      return storageUnwritableWords(details, home, t);
    case 'StorageTooNew':
      return whole(
        t('The record in {0} was written by a newer Escrow.', home),
        t('Update this extension, then reload the window.'),
      );
    case 'ArtefactDamaged':
      return whole(
        t('Bytes that were kept in {0} are damaged, and are not shown.', home),
        t('The record itself is whole. Restore the folder from a backup to have them back.'),
      );
    case 'AnotherKernel':
      return whole(
        t('Another Kernel holds the state folder {0}, and does not answer this window.', home),
        t('End it, then start the Kernel.'),
      );
    case 'VersionMismatch':
      return whole(
        t('The running Kernel and this extension are of versions that do not understand each other.'),
        t('Close the other windows or update the older side, then reload this window.'),
      );
    case 'HandshakeRefused':
      return cased(
        t('The Kernel did not let this window in.'),
        t('Close windows that you do not need, then reload this one.'),
      );
    case 'NoKernel':
      return noKernelWords(fault, t);
    case 'KernelDraining':
      return whole(t('The Kernel is settling its work and will end.'), t('Start it again when it has ended.'));
    case 'RuntimeTooOld':
      return whole(
        t('The Kernel needs Node {0} or newer; this is {1}.', told('oldest') ?? '22', told('have') ?? t('older')),
        t('Name a newer Node in the setting escrow.kernel.node.'),
      );
    case 'InvalidSettings':
      return cased(
        t('The settings of the Kernel are not valid.'),
        t('Correct {0}, then start the Kernel.', told('where') ?? home),
      );
    case 'InvalidParams':
      return cased(t('The Kernel refused the request.'), t('Choose other values, or update the extension.'));
    case 'Internal':
    case null:
      return whole(t('Something happened that Escrow did not expect.'), t('The log says what.'));
    default:
      return code satisfies never;
  }
}

function engineWords(kind: unknown, t: Localize): FaultWords {
  const detail = '';
  switch (kind) {
    case 'unreachable':
      return { what: t('No container engine answers.'), detail, next: t('Start Docker or Podman, then try again.') };
    case 'timeout':
      return {
        what: t('The container engine does not answer in time.'),
        detail,
        next: t('Restart it, then try again.'),
      };
    case 'permission':
      return {
        what: t('The container engine does not let your user in.'),
        detail,
        next: t('Let your user use it (Docker on Linux: the group "docker"), then log in again.'),
      };
    default:
      return {
        what: t('The container engine did not do what was asked.'),
        detail,
        next: t('Check Health says what is wrong with it.'),
      };
  }
}

/** Why there is no image to run in, and whether preparing one would help. */
function imageWords({ details }: Fault, said: string, t: Localize): FaultWords {
  if (typeof details['pinned'] === 'string') {
    return {
      what: t('The base image that this contract was frozen with is not in the container engine any more.'),
      detail: '',
      next: t('Freeze the contract again to take what its base stands for now.'),
    };
  }
  if ('executorPath' in details) {
    return {
      what: t('A part of Escrow is missing: its executor.'),
      detail: '',
      next: t('Install the extension again.'),
    };
  }
  if ('pinned' in details || 'baseDigest' in details) {
    return {
      what: t('The sandbox image of this contract is not there yet.'),
      detail: '',
      next: t('Prepare the sandbox image.'),
    };
  }
  return {
    what: t('No sandbox image can be made from this base.'),
    detail: said,
    next: t('Name another base image in the contract.'),
  };
}

function storageFullWords(details: Fault['details'], home: string, t: Localize): FaultWords {
  const detail = '';
  if (details['reason'] === 'allowance') {
    return {
      what: t('What may be kept of this session is used up.'),
      detail,
      next: t('Start a new session; nothing that was kept is deleted to make room.'),
    };
  }
  // In integration it is the disk of the folder that was to be written.
  const { root } = details;
  return typeof root === 'string'
    ? {
        what: t('No space is left in {0}; every file is as it was.', root),
        detail,
        next: t('Free space there, then try again.'),
      }
    : { what: t('No space is left on the disk that holds {0}.', home), detail, next: t('Free space there.') };
}

function storageUnwritableWords(details: Fault['details'], home: string, t: Localize): FaultWords {
  const detail = '';
  const { root } = details;
  if (details['reason'] === 'damaged') {
    return {
      what: t('The record in {0} is damaged, or its disk cannot be read.', home),
      detail,
      next: t(
        'Look at the disk first. Restore the record from the copies in its folder "backups", then start the Kernel.',
      ),
    };
  }
  return typeof root === 'string'
    ? {
        what: t('{0} could not be written; every file is as it was.', root),
        detail,
        next: t('See that the folder can be written, then try again.'),
      }
    : {
        what: t('Escrow cannot write its state folder, {0}.', home),
        detail,
        next: t('See that the folder and its disk can be written.'),
      };
}

/** Why there is no connection: how it ended, or what kept a Kernel from starting. */
function noKernelWords({ details }: Fault, t: Localize): FaultWords {
  const detail = '';
  if (typeof details['nodePath'] === 'string') {
    return {
      what: t('The Kernel could not be started with {0}.', details['nodePath']),
      detail,
      next: t('Set escrow.kernel.node to a Node of version 22 or newer.'),
    };
  }
  switch (details['link']) {
    case 'stopped':
      return { what: t('The Kernel was stopped.'), detail, next: t('Start it when it is wanted.') };
    case 'ended':
      return { what: t('The connection to the Kernel ended.'), detail, next: '' };
    case 'unanswered':
      return {
        what: t('The connection ended before the Kernel answered. Whether it acted is not known.'),
        detail,
        next: t('Look at the session once the window has connected again.'),
      };
    case 'unforeseen':
      return {
        what: t('The connection to the Kernel failed in an unforeseen way.'),
        detail,
        next: t('See the log, then start it again.'),
      };
    default:
      return { what: t('No Kernel could be reached.'), detail, next: t('Start it. Its own log says more.') };
  }
}
