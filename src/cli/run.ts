import { closestWord } from '../protocol/closest-word.ts';
import { EscrowError } from '../protocol/errors.ts';
import { find, parse, unknownOption, type Command, type Invocation } from './command.ts';
import { exitCodeOf, exitCodeOfThrown, exitCodes, UsageError, type ExitCode } from './exit-code.ts';
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
const commonWords: ReadonlySet<string> = new Set(['--json', '--help', '-h']);

/** The same command line with the options that stand before the command's name behind it; `help X` is `X --help`. */
function commandFirst(argv: readonly string[]): readonly string[] {
  const start = argv.findIndex((word) => !commonWords.has(word));
  const ordered = start <= 0 ? argv : [...argv.slice(start), ...argv.slice(0, start)];
  return ordered[0] === 'help' ? [...ordered.slice(1), '--help'] : ordered;
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

const isGroup = (commands: readonly Command[], word: string | undefined): boolean =>
  commands.some(({ path }) => path.length > 1 && path[0] === word);

function noCommand(commands: readonly Command[], words: readonly string[]): UsageError {
  const [first = ''] = words;
  const known = isGroup(commands, first);
  return new UsageError(
    `there is no command "${words.slice(0, known ? 2 : 1).join(' ')}"${meant(commands, words)}`,
    known ? `See: escrow ${first} --help` : 'See: escrow --help',
  );
}

/** One thrown thing as a person reads it: what is wrong, then what to do. */
function explain(out: Output, error: unknown, command: Command | undefined, home: string): void {
  if (error instanceof UsageError) {
    out.note(styled('red', 'error: '), error.message);
    const hint =
      error.next ??
      (command === undefined
        ? 'See: escrow --help'
        : `${usage(command)} [options]; see escrow ${command.path.join(' ')} --help`);
    out.note('→ ', hint);
    out.value({ error: { code: 'Usage', message: error.message, next: hint } });
    return;
  }
  if (EscrowError.is(error)) {
    out.note(styled('red', 'error: '), error.message, styled('dim', ` [${error.code}]`));
    // The Kernel takes a client's mistake for what it is one of; here it is what somebody typed.
    const next =
      error.code === 'InvalidParams' && command !== undefined
        ? `See what the command takes: escrow ${command.path.join(' ')} --help`
        : error.next;
    if (next !== '') out.note('→ ', next);
    const ofHome = exitCodeOf(error.code) === exitCodes.kernel || error.code === 'StorageFull';
    if (ofHome && !error.message.includes(home)) out.note(styled('dim', `  state folder: ${home}`));
    out.value({ error: { message: error.message, ...error.toData(), next } });
    return;
  }
  const defect = error instanceof Error ? error : new Error(String(error));
  const next = 'This is a defect of Escrow. Please report it with the output of: escrow doctor --json';
  out.note(styled('red', 'error: '), defect.message, styled('dim', ' [Internal]'));
  for (const line of (defect.stack ?? '').split('\n').slice(1, 6)) out.note(styled('dim', line));
  out.note('→ ', next);
  out.value({ error: { code: 'Internal', message: defect.message, next } });
}

/** What a command line without a command comes to: an overview that was asked for, or what is missing. Throws UsageError. */
function withoutCommand(argv: readonly string[], out: Output, around: Surroundings): ExitCode {
  if (argv[0] === '--version' || argv[0] === '-v') {
    out.line(around.version);
    out.value({ version: around.version });
    return exitCodes.ok;
  }
  const words = leadingWords(argv);
  const [first] = words;
  const option = argv.find((word) => word.startsWith('-') && !commonWords.has(word));
  if (first === undefined && option !== undefined) throw new UsageError(unknownOption(['help', 'version'], option));
  const group = around.commands.filter(({ path }) => path[0] === first);
  if (first !== undefined && (group.length === 0 || words.length > 1)) {
    throw noCommand(around.commands, words);
  }
  const lines = overview(group.length === 0 ? around.commands : group, around.version);
  if (argv.length === 0 || argv.includes('--help') || argv.includes('-h')) {
    for (const line of lines) out.line(line);
    out.value({ help: lines.join('\n') });
    return exitCodes.ok;
  }
  for (const line of lines) out.note(line);
  const message = `a command is missing${first === undefined ? '' : ` after "${first}"`}`;
  out.note(styled('red', 'error: '), message);
  out.value({ error: { code: 'Usage', message, next: ['escrow', ...words, '--help'].join(' ') } });
  return exitCodes.usage;
}

/** Runs one command line and returns its exit code. Never throws. */
export async function runCli(typed: readonly string[], around: Surroundings): Promise<ExitCode> {
  const argv = commandFirst(typed);
  const out = around.output(argv.includes('--json'));
  const words = leadingWords(argv);
  const found = find(around.commands, words);
  try {
    if (found === undefined) return withoutCommand(argv, out, around);
    const { command, rest } = found;
    // A group that does something by itself takes no verb that is not there.
    if (rest.length > 0 && command.args === '' && isGroup(around.commands, words[0]) && command.path.length === 1) {
      throw noCommand(around.commands, words);
    }
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
    explain(out, error, found?.command, around.kernel.home);
    return exitCodeOfThrown(error, around.kernel.connected);
  }
}
