import { errorCodes } from '../protocol/errors.ts';
import { unreachable } from '../protocol/primitives.ts';
import { readRunReason } from '../protocol/run-reason.ts';

/** What codes of a check and of a run mean; one that is not here is shown as it is. */
const checkCodes: Readonly<Record<string, string>> = {
  'not-executable': 'its program cannot be executed',
  'not-found': 'its program is not in the image',
  killed: 'killed from outside',
  timeout: 'its time was up',
  overflow: 'it printed more than is kept',
  oom: 'out of memory',
  'no-space': 'no space was left',
  pids: 'failed at the limit of processes',
  hoard: 'it had the kernel keep too much that no control group counts',
  cancelled: 'cancelled',
  'unknown-end': 'its end is not known',
  'output-cut': 'its output was cut, so nothing is known',
  'no-summary': 'the summary of its tests is missing',
  'no-tests': 'no test ran',
  'tests-failed': 'tests failed',
  'fewer-tests': 'fewer tests than at the baseline',
  'baseline-tests-missing': 'tests that passed at the baseline are missing',
  'not-run': 'it was not run',
};

const runCodes: Readonly<Record<string, string>> = {
  oom_killed: 'the memory of the sandbox was not enough',
  channel: 'the sandbox was not heard any more',
  engine: 'the container engine failed',
  'limit-not-in-force': 'a limit of the sandbox was not in force',
  'no-space': 'no space was left in the sandbox',
  cancelled: 'it was cancelled',
  Cancelled: 'it was cancelled',
  'files-unread': 'its files could not be read back',
  interrupted: 'the Kernel ended under it',
  internal: 'something unexpected happened; see: escrow kernel log',
};

const meaning = (table: Readonly<Record<string, string>>, code: string): string | undefined =>
  Object.hasOwn(table, code) ? table[code] : undefined;

/** Why one check did not do what was wanted, in words. Hostile text: printing names what is unsafe in it. */
export function checkReasonText(code: string): string {
  const [, kind = '', value = ''] = /^(exit|signal|spawn-failed)-(.+)$/.exec(code) ?? [];
  switch (kind) {
    case 'exit':
      return `exit status ${value}`;
    case 'signal':
      return `ended by ${value}`;
    case 'spawn-failed':
      return `did not start (${value})`;
    default:
      return meaning(checkCodes, code) ?? code.replaceAll('-', ' ');
  }
}

/** A reason of a verification or a problem of a baseline in words, with what the engine or the channel said behind it. */
export function runReasonText(line: string): string {
  const reason = readRunReason(line);
  switch (reason.kind) {
    case 'check': {
      const { id, code, declared } = reason;
      if (declared === null) return `${id}: ${checkReasonText(code)}`;
      return `${id}: ${checkReasonText(code)}, though the contract says that it ${declared === 'pass' ? 'passes' : 'fails'}`;
    }
    case 'files-changed':
      return `changed while the checks ran: ${reason.path}`;
    case 'out-of-scope':
      return `changed what the contract does not let change: ${reason.path} (${reason.code.replaceAll('-', ' ')})`;
    case 'scope-not-checked':
      return `not compared with what may change: ${reason.path}`;
    case 'run': {
      const { code, detail } = reason;
      const fallback = Object.hasOwn(errorCodes, code) ? `refused (${code})` : code.replaceAll(/[_-]/g, ' ');
      const said = meaning(runCodes, code) ?? fallback;
      return detail === null ? said : `${said}: ${detail}`;
    }
    default:
      return unreachable(reason, 'reason of a run');
  }
}
