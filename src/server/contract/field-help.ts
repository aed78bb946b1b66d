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
    'What of the file may change: functions, classes, `Class.method`, constants, types, and `imports` for what the file imports. Everything else in it must stay the same, token for token. Without it: the whole file may change. In Python, JavaScript and TypeScript.',
  'writable/*/newSymbols':
    'What may be added to the file beside that, by name: each in one place. `["half", "Meter.reset"]`: a function and a method of the class `Meter`, which are not there yet. An existing file in which only these may be added needs no `symbols`.',
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
    'Tools that the model is offered beside those that it always has. `search`: finds a literal text in the files that the model may be shown, and in no others: at most 50 lines from 500 files a search. It costs some 70 tokens with each request: worth it where the model has to find the place, not where the instruction names it.',
  scratch: 'Folders that commands may write to (caches, build output). Never read, never collected.',
  budget: 'What one session may spend. A failed or cancelled attempt counts.',
  'budget/attempts': `Attempts in all, over every session of this contract and binding. ${contractDefaults.attempts} without it.`,
  'budget/requestsPerAttempt': `Requests to the model in one attempt. ${contractDefaults.requestsPerAttempt} without it.`,
  'budget/outputTokensPerRequest': `Tokens that one answer may have. ${contractDefaults.outputTokensPerRequest} without it.`,
  'budget/wallS': `Seconds that one attempt may take. ${contractDefaults.wallS} without it.`,
  profile:
    '`bounded`: 2 CPUs, 2 GiB of memory, 64 MiB workspace, 32 MiB /tmp and home, 128 processes, no network, read-only root. `standard`, for repositories that do not fit: 6 GiB, 512 MiB workspace, 256 MiB /tmp (programs in it may be started) and home, 256 processes; all else is the same.',
  image: 'What the sandbox is made from. It is prepared before the first use, after a yes: see docs/images.md.',
  'image/base':
    'A base image, by name, tag or digest; what a tag stands for is fixed when the contract is frozen. Or the path of a `devcontainer.json`, of which only `image` is read. Without it: the default base.',
  'image/dependencies':
    'Packages that are put into the image, from lock files alone: no script of the repository or of a package is run, and no other file of the repository is near.',
  'image/dependencies/npm':
    'A `package-lock.json` (of npm 7 or newer) with its `package.json` beside it. Packages are found from the whole workspace, their programs by name. A `node_modules` folder of links stands beside each manifest; what a tool writes into it (`node_modules/.vite`) has to be `scratch`.',
  'image/dependencies/python':
    'A requirements file in which each line has one version and hashes, as `uv pip compile --generate-hashes` or pip-compile write it. Only wheels, for the Python of the base image. Or `{ "lock": FILE, "sources": [FOLDER] }`.',
  'image/dependencies/python/lock': 'The requirements file with versions and hashes.',
  'image/dependencies/python/sources':
    'Folders in which Python finds the modules of the project (PYTHONPATH). Without it: the folder of the lock file, and `src` in it where the snapshot has one.',
  'image/steps':
    'Commands that are run as root in the image while it is made, for what lock files cannot say. Each is shown in full and needs a yes every time that it would run; no file of the repository is near.',
  'image/steps/*/argv': 'The exact program and its arguments; no shell reads them.',
  'image/steps/*/network': 'Whether this step may reach the network of the container engine. `false` without it.',
};

/** Help for a place in a contract, or undefined where there is none. */
export function helpFor(path: readonly (string | number)[]): string | undefined {
  return fieldHelp[path.map((segment) => (typeof segment === 'number' ? '*' : segment)).join('/')];
}
