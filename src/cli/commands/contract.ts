import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { open, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { contractFileName, contractText, splitCommand } from '../../client/contract-text.ts';
import { hintFiles, projectHints } from '../../client/project-hints.ts';
import type { ContractDiagnostic, ContractView } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { ContractDigest } from '../../protocol/primitives.ts';
import { text as option, texts, type Command, type Invocation } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { baselineLines, short, symbolText } from '../format.ts';
import type { KernelLink } from '../kernel-access.ts';
import { styled, type Output } from '../output.ts';
import { looksLikeDigest, pickContract } from '../pick.ts';

/** Line and column, from 1, of a UTF-16 offset. */
export function position(text: string, offset: number): { readonly line: number; readonly column: number } {
  const before = text.slice(0, offset);
  const line = before.split('\n').length;
  return { line, column: offset - (before.lastIndexOf('\n') + 1) + 1 };
}

function printDiagnostics(out: Output, file: string, text: string, diagnostics: readonly ContractDiagnostic[]): void {
  for (const diagnostic of diagnostics) {
    const { line, column } = position(text, diagnostic.offset);
    const style = diagnostic.severity === 'error' ? 'red' : diagnostic.severity === 'warning' ? 'yellow' : 'dim';
    out.line(
      `${file}:${line}:${column}: `,
      styled(style, diagnostic.severity),
      ` ${diagnostic.message}`,
      styled('dim', ` [${diagnostic.code}]`),
    );
  }
}

/** Characters of a contract, and bytes that so many can take (`contract/check` takes no more). */
const mostCharacters = 1_000_000;
const mostBytes = 3 * mostCharacters;

/** Reads the file here, so that what can't be one is named as the person named it. A pipe or device is never waited for. */
async function readContract(file: string): Promise<string> {
  const refuse = (what: string, next: string, errno: string | null = null): EscrowError =>
    new EscrowError('InvalidContract', `${file} ${what}`, next, { path: file, errno });
  let bytes: Buffer;
  try {
    const handle = await open(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw refuse('is no file', 'A contract is a file that ends in .contract.jsonc.');
      if (stat.size > mostBytes) throw refuse('is too long for a contract', 'Name another file.');
      bytes = await handle.readFile();
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (EscrowError.is(error)) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw refuse(
      `cannot be read (${code})`,
      code === 'ENOENT'
        ? 'Check the path; a contract is a file that ends in .contract.jsonc.'
        : 'Make the file readable for you.',
      code,
    );
  }
  let text: string;
  try {
    // As the Kernel counts: without a byte-order mark.
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw refuse('is not UTF-8 text', 'Save it with the encoding UTF-8.');
  }
  if (text.length > mostCharacters) throw refuse('is too long for a contract', 'Name another file.');
  return text;
}

/** A contract as named on the command line: a file is frozen (freezing the same bytes again changes nothing), a digest is looked up. */
export async function resolveContract(kernel: KernelLink, typed: string): Promise<ContractView> {
  if (looksLikeDigest(typed)) return kernel.call('contract/get', { digest: await pickContract(kernel, typed) });
  await readContract(path.resolve(typed));
  return freezeFile(kernel, typed);
}

/** Freezes a file. Throws EscrowError InvalidContract with the way to see every fault of it. */
async function freezeFile(kernel: KernelLink, typed: string): Promise<ContractView> {
  const file = path.resolve(typed);
  try {
    return await kernel.call('contract/freeze', { path: file });
  } catch (error) {
    if (!EscrowError.is(error, 'InvalidContract')) throw error;
    const next = `See each fault with its place: escrow contract check ${typed}`;
    throw new EscrowError(error.code, error.message, next, error.details);
  }
}

function printContract(out: Output, view: ContractView): void {
  const { contract } = view;
  out.line(styled('bold', contract.title), styled('dim', ` · ${view.path}`));
  out.line(`digest     ${view.digest}`);
  out.line(
    `snapshot   ${contract.files.length} files, ${contract.files.filter((file) => file.protected).length} protected`,
  );
  for (const file of contract.writable) {
    out.line(
      `writable   ${file.path}`,
      file.exists ? '' : ' (to be created)',
      file.symbols === null ? '' : ` · only ${symbolText(file.symbols)}`,
    );
  }
  for (const check of contract.checks) {
    out.line(
      `${check.kind === 'acceptance' ? 'check     ' : 'hidden    '} ${check.id}: ${check.argv.join(' ')}`,
      styled('dim', check.baseline === null ? '' : ` · must ${check.baseline} on the baseline`),
    );
  }
  out.line(
    `budget     ${contract.budget.attempts} attempts of ${contract.budget.requestsPerAttempt} requests, ${contract.budget.wallS} s each`,
  );
  out.line('baseline   ', view.baseline === null ? 'not run yet' : view.baseline.result.replaceAll('-', ' '));
}

/**
 * The repository of the folder that this process is in, and the files that git tracks there: paths of a contract are
 * relative to it.
 */
async function repositoryHere(): Promise<{ readonly root: string; readonly tracked: readonly string[] }> {
  const git = async (...args: readonly string[]): Promise<string> =>
    (await promisify(execFile)('git', args, { timeout: 10_000, maxBuffer: 64 * 1024 * 1024 })).stdout;
  try {
    const root = path.resolve((await git('rev-parse', '--show-toplevel')).replace(/\r?\n$/, ''));
    const tracked = await git('-C', root, '-c', 'core.fsmonitor=false', 'ls-files', '-z');
    return { root, tracked: tracked.split('\0').filter(Boolean) };
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new EscrowError(
      'NotAGitRepository',
      missing ? 'git was not found' : `git finds no repository in ${process.cwd()}`,
      missing
        ? 'Install git and make sure that it is on the PATH.'
        : 'Go to the folder of your project, or make it a repository with `git init`.',
      { path: process.cwd() },
    );
  }
}

const create: Command = {
  path: ['contract', 'new'],
  summary: 'Write a new contract file for the repository of this folder.',
  args: '[FILE]',
  options: {
    title: { type: 'string', value: 'TEXT', help: 'One line that names the change.' },
    instruction: { type: 'string', value: 'TEXT', help: 'What to change and what must stay.' },
    writable: {
      type: 'string',
      value: 'PATH',
      multiple: true,
      help: 'A file that may change, relative to the repository. May be given more than once.',
    },
    check: {
      type: 'string',
      value: 'COMMAND',
      help: 'The command that fails now and must pass afterwards, in quotes. No shell reads it.',
    },
  },
  details: [
    'What is not given stays empty in the file, for you to fill in; contract check names what is missing. Without --check, the usual way to run the tests of the repository is proposed, with the lock files that its packages come from. FILE is named after the title where it is left out, and never written over.',
  ],
  exits: { 1: 'the file is there already', 2: 'this folder is in no git repository' },
  async run(invocation) {
    const { out, args } = invocation;
    const title = option(invocation, 'title') ?? '';
    const file = path.resolve(args[0] ?? contractFileName(title));
    if (!file.endsWith('.contract.jsonc')) throw new UsageError('the name of a contract ends in .contract.jsonc');
    const typed = option(invocation, 'check');
    const words = typed === undefined ? [] : splitCommand(typed);
    if (words === null) throw new UsageError('a quote in --check stays open');
    const { root, tracked } = await repositoryHere();
    const found = new Map<string, string>();
    for (const name of hintFiles) {
      const text = await readFile(path.join(root, name), 'utf8').catch(() => undefined);
      if (text !== undefined) found.set(name, text);
    }
    const hints = projectHints((name) => found.get(name), tracked);
    const wanted = {
      title,
      instruction: option(invocation, 'instruction') ?? '',
      writable: texts(invocation, 'writable'),
      check: typed === undefined ? hints.check : words,
    };
    const text = contractText({ ...wanted, hints });
    try {
      await writeFile(file, text, { flag: 'wx' });
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
      if (code === 'EEXIST') {
        out.note(styled('red', 'error: '), `${file} is there already, and was left as it is`);
        out.note('→ ', 'Name another file: escrow contract new FILE');
        out.value({ path: file, written: false });
        return exitCodes.failed;
      }
      throw new EscrowError(
        'NotFound',
        `${file} cannot be written (${code})`,
        'Name a file in a folder that you may write.',
      );
    }
    const shown = path.relative(process.cwd(), file);
    out.line(styled('green', 'written'), ` · ${shown}`);
    const empty = Object.values(wanted).some((value) => value.length === 0);
    out.line('→ ', `${empty ? 'Fill in what is empty, then' : 'Next'}: escrow contract check ${shown}`);
    out.value({ path: file, written: true, check: hints.check, npm: hints.npm, python: hints.python });
    return exitCodes.ok;
  },
};

const check: Command = {
  path: ['contract', 'check'],
  summary: 'Check a contract file without freezing it.',
  args: 'FILE',
  options: {},
  details: [],
  exits: { 1: 'the file has errors', 2: 'the file cannot be read' },
  async run({ kernel, out, args: [typed = ''] }) {
    const file = path.resolve(typed);
    const text = await readContract(file);
    const link = await kernel.connect();
    const { root, diagnostics } = await link.call('contract/check', { path: file, text });
    printDiagnostics(out, typed, text, diagnostics);
    const errors = diagnostics.filter((diagnostic) => diagnostic.severity === 'error').length;
    out.line(errors === 0 ? `${typed}: no errors` : `${typed}: ${errors} error${errors === 1 ? '' : 's'}`);
    out.line('→ ', errors === 0 ? `Next: escrow contract freeze ${typed}` : 'Correct them, then check it again.');
    out.value({
      path: file,
      root,
      errors,
      diagnostics: diagnostics.map((diagnostic) => ({ ...diagnostic, ...position(text, diagnostic.offset) })),
    });
    return errors === 0 ? exitCodes.ok : exitCodes.failed;
  },
};

const freeze: Command = {
  path: ['contract', 'freeze'],
  summary: 'Freeze a contract: snapshot its files and give it a digest.',
  args: 'FILE',
  options: {},
  details: ['Freezing the same bytes again gives the same digest and changes nothing.'],
  exits: { 2: 'the file cannot be read, is not a valid contract, or lies in no git repository' },
  async run({ kernel, out, args: [typed = ''] }) {
    await readContract(path.resolve(typed));
    const view = await freezeFile(await kernel.connect(), typed);
    printContract(out, view);
    if (view.baseline === null) out.line('→ ', `Next: escrow contract baseline ${typed}`);
    out.value(view);
    return exitCodes.ok;
  },
};

/** Runs the baseline and prints it. */
export async function runBaseline(
  invocation: Invocation,
  kernel: KernelLink,
  digest: ContractDigest,
): Promise<ContractView> {
  invocation.out.note(`running the checks of ${short(digest)} on the untouched snapshot …`);
  await kernel.call('contract/baseline', { digest }, { signal: invocation.interrupted });
  return kernel.call('contract/get', { digest });
}

const baseline: Command = {
  path: ['contract', 'baseline'],
  summary: 'Run the checks on the untouched snapshot: they must tell broken from fixed.',
  args: 'FILE|DIGEST',
  options: {},
  details: ['A file is frozen first. The run waits for the sandbox if another one has it; Ctrl-C cancels.'],
  exits: { 1: 'the checks do not discriminate, or the run was incomplete' },
  async run(invocation) {
    const { kernel, out, args } = invocation;
    const link = await kernel.connect();
    const { digest } = await resolveContract(link, args[0] ?? '');
    const view = await runBaseline(invocation, link, digest);
    const declared = new Map(view.contract.checks.map((each) => [each.id, each.baseline] as const));
    if (view.baseline !== null) for (const line of baselineLines(view.baseline, declared)) out.line(...line);
    const discriminates = view.baseline?.result === 'discriminates';
    out.line(
      '→ ',
      discriminates
        ? `Next: escrow session start ${args[0] ?? ''} --model NAME (escrow models lists them)`
        : 'Change the checks so that one fails now and passes when the change is made, then run the baseline again.',
    );
    out.value({ digest, baseline: view.baseline });
    return discriminates ? exitCodes.ok : exitCodes.failed;
  },
};

export const contractCommands: readonly Command[] = [create, check, freeze, baseline];
