import { errorCodes, type ErrorCode } from '../../protocol/errors.ts';
import { faultWords } from '../fault-words.ts';
import { unreachable } from '../../protocol/primitives.ts';
import { readRunReason } from '../../protocol/run-reason.ts';
import { visible } from '../visible-text.ts';
import type { TreeWords } from './tree-node.ts';
import { checkReasonWords } from './words.ts';

type Words = Pick<TreeWords, 't' | 'home'>;

/** Why one check did not do what was wanted, by the Kernel's code; undefined for what is no such code. */
function whyWords(code: string, { t }: Words): string | undefined {
  const named = checkReasonWords(code, t);
  if (named !== undefined) return named;
  const [, kind = code, value = ''] = /^(exit|signal|spawn-failed)-(.+)$/.exec(code) ?? [];
  switch (kind) {
    case 'exit':
      return t('exit code {0}', visible(value, 10));
    case 'signal':
      return t('ended by {0}', visible(value, 40));
    case 'spawn-failed':
      return t('did not start ({0})', visible(value, 40));
    case 'timeout':
      return t('its time was up');
    case 'overflow':
      return t('it printed more than is kept');
    case 'oom':
      return t('out of memory');
    case 'no-space':
      return t('no space was left');
    case 'pids':
      return t('failed at the limit of processes');
    case 'hoard':
      return t('it held too many sockets or file locks');
    case 'cancelled':
      return t('cancelled');
    case 'unknown-end':
      return t('end unknown');
    case 'failed':
      return t('failed');
    case 'passed':
      return t('passed');
    case 'not-run':
      return t('it was not run');
    case 'unknown':
      return t('not known');
    default:
      return undefined;
  }
}

/** What spoiled a whole run, by the Kernel's code; undefined for what is no such code. */
function faultOfRunWords(code: string, { t, home }: Words): string | undefined {
  switch (code) {
    case 'oom_killed':
      return t('the memory of its sandbox was not enough');
    case 'channel':
      return t('the sandbox was not heard any more');
    case 'engine':
      return t('the container engine failed');
    case 'limit-not-in-force':
      return t('a limit of the sandbox was not in force');
    case 'no-space':
      return t('no space was left in its sandbox');
    case 'cancelled':
      return t('it was cancelled');
    case 'denied':
    case 'not-found':
    case 'conflict':
    case 'too-large':
    case 'invalid':
      return t('a file of it was refused by the sandbox');
    case 'files-unread':
      return t('its files could not be read back');
    case 'interrupted':
      return t('the Kernel ended under it');
    case 'internal':
      return t('something unexpected happened; the log of the Kernel says what');
    default:
      return Object.hasOwn(errorCodes, code)
        ? faultWords({ code: code as ErrorCode, message: '', next: '', details: {} }, home, t).what
        : undefined;
  }
}

/**
 * A reason of a verification, or a problem of a baseline, in the window's words: `utc: tests-failed`,
 * `utc: declared-fail-but-passed`, `files-changed: src/a.py`, `engine: …`. What the engine says of itself is left out, as
 * everywhere; what is in no list here is shown as it is.
 */
export function runReasonWords(reason: string, words: Words): string {
  const { t } = words;
  const read = readRunReason(reason);
  switch (read.kind) {
    case 'out-of-scope':
      return t('changed what the contract does not let change: {0}', visible(`${read.path} (${read.code})`, 300));
    case 'scope-not-checked':
      return t('not compared with what may change: {0}', visible(read.path, 300));
    case 'files-changed':
      return t('changed while the checks ran: {0}', visible(read.path, 300));
    case 'run':
      return faultOfRunWords(read.code, words) ?? visible(reason.replaceAll(/[_-]/g, ' '), 300);
    case 'check': {
      const why = whyWords(read.code, words);
      if (why === undefined) return faultOfRunWords(read.id, words) ?? visible(reason.replaceAll('-', ' '), 300);
      if (read.declared === 'pass') return t('{0}: {1}, though the contract says that it passes', read.id, why);
      if (read.declared === 'fail') return t('{0}: {1}, though the contract says that it fails', read.id, why);
      return t('{0}: {1}', read.id, why);
    }
    default:
      return unreachable(read, 'reason of a run');
  }
}
