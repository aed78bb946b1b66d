import { contractDefaults } from '../../protocol/contract.ts';

/**
 * What hover says about a field, in Markdown: what it means and what it costs. Keys are paths with `*` for a place in a
 * list. Kept beside the schema rather than in it where it is longer than a line.
 */
export const fieldHelp: Readonly<Record<string, string>> = {
  title: 'One line that names the change. Shown wherever the session is shown.',
  instruction:
    'What to change and what must stay. The model reads exactly this, on every attempt, so it is paid for in tokens with each request.',
  snapshot:
    'Files that are placed in the sandbox. Without it: every file that git tracks, apart from contracts, supplemental files, links, and what looks like a secret. Your tree is never mounted; these bytes are copied when the contract is frozen.',
  'snapshot/include': 'Globs over the files that git tracks, or exact names of files that git does not ignore.',
  'snapshot/exclude': 'Globs that are taken out again.',
  readable:
    'Files the model may be *shown*. Without it: the whole snapshot. Code that the model writes can read everything in the sandbox while a check runs, so what must stay hidden belongs into `supplemental`.',
  writable: 'The only files the model may change, each named exactly. A file that does not exist yet may be created.',
  'writable/*/path': 'Exact path, relative to the repository. No wildcards.',
  'writable/*/symbols':
    'Not supported yet: a contract that limits a change to symbols is refused rather than not enforced. A supplemental check can compare the rest of the file.',
  acceptance:
    'Commands that decide. All must pass on the candidate; before any attempt each must do on the untouched files what its `baseline` says.',
  'acceptance/*/id': 'Short name, unique in the contract: lower-case letters, digits and dashes.',
  'acceptance/*/argv':
    'The exact program and its arguments; no shell reads them. The model may run exactly this and nothing else. For unittest, pytest, node --test, vitest, jest, `go test -v` and cargo test the closing summary is read as well; for others only the exit status is known. Let the runner print its tests (`-v`), so that they can be compared by name.',
  'acceptance/*/baseline':
    '`fail`: broken before the change, as it should be for at least one check. `pass`: works before and must go on working.',
  'acceptance/*/timeoutS': `Seconds until the command is ended. ${contractDefaults.timeoutS} without it. A check that is ended has not passed.`,
  'acceptance/*/showKiB': `KiB of output that the model is shown, head and tail. ${contractDefaults.showKiB} without it; the whole is kept as evidence.`,
  'acceptance/*/captureKiB': `KiB of output that are kept. ${contractDefaults.captureKiB} without it; more ends the command.`,
  'acceptance/*/env': 'Variables for this command. What the sandbox sets by itself (PATH, HOME, …) cannot be chosen.',
  protected:
    'Files that are put back before verification. Without it: test folders, files named like tests, and files that the acceptance commands name.',
  supplemental:
    'Checks that only the verifier runs: their files are never in the sandbox in which the model works, and their output is never part of a correction. One that calls the program from outside is stronger than one that runs in the same process.',
  'supplemental/*/path': 'The files of this check. Not in the snapshot, not readable, not writable.',
  'supplemental/*/argv': 'The exact program and its arguments; no shell reads them.',
  tools:
    '`search`: a bounded literal search over the readable files. Not supported yet: a contract that asks for it is refused.',
  scratch: 'Folders that commands may write to (caches, build output). Never read, never collected.',
  budget: 'What one session may spend. A failed or cancelled attempt counts.',
  'budget/attempts': `Attempts in all, over every session of this contract and binding. ${contractDefaults.attempts} without it.`,
  'budget/requestsPerAttempt': `Requests to the model in one attempt. ${contractDefaults.requestsPerAttempt} without it.`,
  'budget/outputTokensPerRequest': `Tokens that one answer may have. ${contractDefaults.outputTokensPerRequest} without it.`,
  'budget/wallS': `Seconds that one attempt may take. ${contractDefaults.wallS} without it.`,
  profile: '`bounded`: 2 CPUs, 2 GiB of memory, 64 MiB workspace, 128 processes, no network, read-only root.',
  image: 'The image that the sandbox is made from.',
  'image/base': 'A base image. Without it: the base that the set-up made.',
};

/** Help for a place in a contract, or undefined where there is none. */
export function helpFor(path: readonly (string | number)[]): string | undefined {
  return fieldHelp[path.map((segment) => (typeof segment === 'number' ? '*' : segment)).join('/')];
}
