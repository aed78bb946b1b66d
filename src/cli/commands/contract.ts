import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { ContractDiagnostic, ContractView } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { ContractDigest } from '../../protocol/primitives.ts';
import type { Command, Invocation } from '../command.ts';
import { exitCodes } from '../exit-code.ts';
import { baselineLines, short } from '../format.ts';
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

/** Reads the file here, so that a missing or unreadable one is named as the person named it. */
async function readContract(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new EscrowError(
      'InvalidContract',
      `${file} cannot be read (${code})`,
      code === 'ENOENT'
        ? 'Check the path; a contract is a file that ends in .contract.jsonc.'
        : 'Make the file readable for you.',
      { path: file, errno: code },
    );
  }
}

/** A contract as named on the command line: a file is frozen (freezing the same bytes again changes nothing), a digest is looked up. */
export async function resolveContract(kernel: KernelLink, typed: string): Promise<ContractView> {
  if (looksLikeDigest(typed)) return kernel.call('contract/get', { digest: await pickContract(kernel, typed) });
  const file = path.resolve(typed);
  await readContract(file);
  return kernel.call('contract/freeze', { path: file });
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
      file.symbols === null ? '' : ` · only ${file.symbols.join(', ')}`,
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
    const file = path.resolve(typed);
    await readContract(file);
    const view = await (await kernel.connect()).call('contract/freeze', { path: file });
    printContract(out, view);
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
    out.value({ digest, baseline: view.baseline });
    return view.baseline?.result === 'discriminates' ? exitCodes.ok : exitCodes.failed;
  },
};

export const contractCommands: readonly Command[] = [check, freeze, baseline];
