import { errorCodes, type ErrorCode } from '../../protocol/errors.ts';
import type { Health } from '../../protocol/status.ts';
import { faultWords } from '../fault-words.ts';
import { commands, type CommandId } from '../ids.ts';
import type { TreeWords } from './tree-node.ts';

export type HealthPart = 'engine' | 'image' | 'inference' | 'storage';

export interface HealthWords {
  /** What is wrong, in as few words as a row has room for; empty where nothing is. */
  readonly says: string;
  /** What to do in this window; null where nothing is to be done here. */
  readonly next: { readonly label: string; readonly command: CommandId | null } | null;
}

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(errorCodes, code);

/**
 * What the Kernel's code of a part's health says to a person, and the step that helps: as a rule a thing to do outside,
 * after which Enter on the row looks again. The Kernel's own words are in the tooltips.
 */
export function healthWords(part: HealthPart, health: Health, { t, home }: Pick<TreeWords, 't' | 'home'>): HealthWords {
  const { code } = health;
  if (code === null) return { says: '', next: null };
  const step = (says: string, label: string, command: CommandId | null = commands.doctor): HealthWords => ({
    says,
    next: { label, command },
  });
  switch (`${part} ${code}`) {
    case 'engine engine_not_reachable':
      return step(t('does not answer'), t('Start Docker or Podman'));
    case 'engine engine_stalled':
      return step(t('does not answer in time'), t('Restart the container engine'));
    case 'engine engine_permission':
      return step(t('does not let your user in'), t('Let your user use it (Docker on Linux: the group "docker")'));
    case 'engine engine_unsupported':
      return step(t('cannot be used'), t('Use Docker 20.10 or newer, or Podman 4.3 or newer, of this machine'));
    case 'engine seccomp':
      return step(t('has no system call filter'), t('Use an engine built with seccomp'));
    case 'engine cgroup_version':
      return step(t('has no control groups'), t('Enable control groups for the engine'));
    case 'engine rootless':
      return step(t('cannot set limits without root here'), t('Use an engine that runs as root, or control groups v2'));
    case 'engine memory_limit':
      return step(t('cannot limit memory'), t('Enable or delegate its memory controller'));
    case 'engine swap_limit':
      return step(t('cannot limit swap'), t('Enable or delegate its swap accounting'));
    case 'engine cpu_limit':
      return step(t('cannot limit processor time'), t('Enable or delegate its CPU controller'));
    case 'engine pids_limit':
      return step(t('cannot limit processes'), t('Enable or delegate its pids controller'));
    case 'engine init':
      return step(t('has no init program'), t('Install tini (Docker) or catatonit (Podman)'));
    case 'engine memory':
      return step(t('has little memory'), t('Give it at least 3 GiB'));
    case 'image EngineUnavailable':
      // Nobody could look for it; the row of the engine says what to do.
      return { says: t('not known'), next: null };
    case 'image ImageUnavailable':
      return step(t('not there yet'), t('Prepare the sandbox image'), commands.prepareImage);
    case 'image ImageChanged':
      return step(t('not the one that was measured'), t('Remove it, then prepare it again'), commands.pruneImages);
    case 'inference engine_not_reachable':
    case 'inference engine_timeout':
      return step(t('does not answer'), t('Start Ollama'));
    case 'inference engine_too_old':
    case 'inference InferenceTooOld':
      return step(t('is too old'), t('Update Ollama to 0.30 or newer'));
    case 'inference engine_has_proxy':
      return step(t('has its proxy for outside tools on'), t('Start it without that proxy'));
    case 'inference engine_redirect':
    case 'inference engine_encoded':
    case 'inference engine_cut':
    case 'inference engine_too_long':
    case 'inference engine_not_understood':
      return step(t('does not answer as Ollama does'), t('See what runs at its address'));
    case 'storage disk_low':
      return step(t('only {0}', health.detail), t('Free space on its disk'), null);
    case 'storage disk_full':
      return step(t('no space left'), t('Free space on its disk'), null);
    case 'storage not_writable':
      return step(t('cannot be written'), t('Make the state folder writable'), null);
    case 'storage not_readable':
      return step(t('cannot be looked at'), t('See that its disk is there'), null);
    default:
  }
  if (isErrorCode(code)) {
    const { what, next } = faultWords({ code, message: health.detail, next: health.next, details: {} }, home, t);
    return step(what, next);
  }
  return step(t('not as it should be'), t('The log of the Kernel says what'), commands.showKernelLog);
}
