import { closestWord } from '../protocol/closest-word.ts';
import { EscrowError } from '../protocol/errors.ts';
import { find, parse, type Command, type Invocation } from './command.ts';
import { exitCodeOfThrown, exitCodes, UsageError, type ExitCode } from './exit-code.ts';
import { commandHelp, overview, usage } from './help.ts';
import type { KernelAccess } from './kernel-access.ts';
import { styled, type Output } from './output.ts';

export interface Surroundings {
  readonly commands: readonly Command[];
  readonly version: string;
  readonly output: (json: boolean) => Output;
  readonly kernel: KernelAccess;
  readonly interrupted: AbortSignal;
  readonly confirm: Invocation['confirm'];
}

/** Every command has these, so they may also stand before its name. */
const commonWords: ReadonlySet<string> = new Set(['--json', '--help']);

/** The same command line with the options that stand before the command's name behind it. */
function commandFirst(argv: readonly string[]): readonly string[] {
  const start = argv.findIndex((word) => !commonWords.has(word));
  return start <= 0 ? argv : [...argv.slice(start), ...argv.slice(0, start)];
}

/** The words before the first option: the command's path and, possibly, its arguments. */
function leadingWords(argv: readonly string[]): readonly string[] {
  const end = argv.findIndex((word) => word.startsWith('-'));
  return end === -1 ? argv : argv.slice(0, end);
}

/** What a command that is not there most likely stands for, as the end of a sentence; empty where nothing is near. */
function meant(commands: readonly Command[], words: readonly string[]): string {
  const [first = '', second = ''] = words;
  const groups = [...new Set(commands.map(({ path }) => path[0] ?? ''))];
  const group = groups.includes(first) ? first : closestWord(first, groups);
  if (group === undefined) return '';
  const verbs = commands.filter(({ path }) => path[0] === group).flatMap(({ path }) => path.slice(1));
  const verb = verbs.includes(second) ? second : closestWord(second, verbs);
  if (group === first && verb === undefined) return '';
  return `; did you mean "${[group, ...(verb === undefined ? [] : [verb])].join(' ')}"?`;
}

/** One thrown thing as a person reads it: what is wrong, then what to do. */
function explain(out: Output, error: unknown, command: Command | undefined): void {
  if (error instanceof UsageError) {
    out.note(styled('red', 'error: '), error.message);
    const hint =
      command === undefined
        ? 'escrow --help'
        : `${usage(command)} [options]; see escrow ${command.path.join(' ')} --help`;
    out.note('→ ', hint);
    out.value({ error: { code: 'Usage', message: error.message, next: hint } });
    return;
  }
  if (EscrowError.is(error)) {
    out.note(styled('red', 'error: '), error.message, styled('dim', ` [${error.code}]`));
    if (error.next !== '') out.note('→ ', error.next);
    out.value({ error: { message: error.message, ...error.toData() } });
    return;
  }
  const defect = error instanceof Error ? error : new Error(String(error));
  const next = 'This is a defect of Escrow. Please report it with the output of: escrow doctor --json';
  out.note(styled('red', 'error: '), defect.message, styled('dim', ' [Internal]'));
  for (const line of (defect.stack ?? '').split('\n').slice(1, 6)) out.note(styled('dim', line));
  out.note('→ ', next);
  out.value({ error: { code: 'Internal', message: defect.message, next } });
}

/** Runs one command line and returns its exit code. Never throws. */
export async function runCli(typed: readonly string[], around: Surroundings): Promise<ExitCode> {
  const argv = commandFirst(typed);
  const out = around.output(argv.includes('--json'));
  const words = leadingWords(argv);
  const found = find(around.commands, words);
  try {
    if (found === undefined) {
      if (argv[0] === '--version') {
        out.line(around.version);
        out.value({ version: around.version });
        return exitCodes.ok;
      }
      const group = around.commands.filter((command) => command.path[0] === words[0]);
      const wantsHelp = argv.length === 0 || argv.includes('--help') || words[0] === 'help';
      if (words.length > 0 && words[0] !== 'help' && (group.length === 0 || words.length > 1)) {
        const name = words.slice(0, group.length === 0 ? 1 : 2).join(' ');
        throw new UsageError(`there is no command "${name}"${meant(around.commands, words)}`);
      }
      const lines = overview(group.length === 0 ? around.commands : group, around.version);
      if (wantsHelp) {
        for (const line of lines) out.line(line);
        out.value({ help: lines.join('\n') });
        return exitCodes.ok;
      }
      for (const line of lines) out.note(line);
      const next = `escrow ${words[0] ?? ''} --help`;
      out.value({ error: { code: 'Usage', message: 'a command is missing', next } });
      return exitCodes.usage;
    }
    const { command } = found;
    const { args, flags } = parse(command, argv.slice(command.path.length));
    if (flags['help'] === true) {
      const lines = commandHelp(command);
      for (const line of lines) out.line(line);
      out.value({ help: lines.join('\n') });
      return exitCodes.ok;
    }
    return await command.run({
      args,
      flags,
      out,
      kernel: around.kernel,
      interrupted: around.interrupted,
      confirm: around.confirm,
    });
  } catch (error) {
    explain(out, error, found?.command);
    return exitCodeOfThrown(error, around.kernel.connected);
  }
}
