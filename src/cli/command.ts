import { parseArgs } from 'node:util';
import { closestWord } from '../protocol/closest-word.ts';
import { UsageError, type ExitCode } from './exit-code.ts';
import type { KernelAccess } from './kernel-access.ts';
import type { Output } from './output.ts';

interface OptionSpec {
  readonly type: 'boolean' | 'string';
  /** The name of the value in the usage line; for `string` options. */
  readonly value?: string;
  /** May be given more than once; for `string` options. */
  readonly multiple?: boolean;
  readonly help: string;
}

/** What a command gets. `interrupted` aborts at Ctrl-C; a command that started something settles it. */
export interface Invocation {
  readonly args: readonly string[];
  readonly flags: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
  readonly out: Output;
  readonly kernel: KernelAccess;
  readonly interrupted: AbortSignal;
  /** Asks on the terminal; false unless the answer is yes. Only when `out.interactive`. */
  readonly confirm: (question: string) => Promise<boolean>;
}

/** One verb of the command line. The table of them is what help, parsing and docs/cli.md are made from. */
export interface Command {
  readonly path: readonly string[];
  readonly summary: string;
  /** Positional arguments as in the usage line: `FILE`, `SESSION [CANDIDATE]`. */
  readonly args: string;
  readonly options: Readonly<Record<string, OptionSpec>>;
  /** What a person should know beyond the summary, one paragraph a line. */
  readonly details: readonly string[];
  /** What each exit code other than the common ones means here. */
  readonly exits: Readonly<Record<number, string>>;
  run(invocation: Invocation): Promise<ExitCode>;
}

const commonOptions = {
  json: { type: 'boolean', help: 'Print the result as one line of JSON on stdout; everything else goes to stderr.' },
  help: { type: 'boolean', help: 'Show this help.' },
} as const satisfies Record<string, OptionSpec>;

/** The options of a command, the common ones included. */
export function optionsOf(command: Command): Readonly<Record<string, OptionSpec>> {
  return { ...command.options, ...commonOptions };
}

/** Bounds on the positional arguments, read from the usage text: words in capitals, optional ones in brackets. */
export function arity(args: string): { readonly min: number; readonly max: number } {
  const words = args.split(' ').filter((word) => word !== '');
  return { min: words.filter((word) => !word.startsWith('[')).length, max: words.length };
}

/** Splits what follows the command's path. Throws UsageError. */
export function parse(command: Command, argv: readonly string[]): Pick<Invocation, 'args' | 'flags'> {
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      options: Object.fromEntries(
        Object.entries(optionsOf(command)).map(([name, { type, multiple = false }]) => [name, { type, multiple }]),
      ),
      allowPositionals: true,
      strict: true,
    });
    const flags = values as Record<string, string | boolean | string[] | undefined>;
    const { min, max } = arity(command.args);
    if (flags['help'] !== true && (positionals.length < min || positionals.length > max)) {
      throw new UsageError(
        positionals.length < min ? 'an argument is missing' : `too many arguments: ${positionals.slice(max).join(' ')}`,
      );
    }
    return { args: positionals, flags };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(unknownOption(command, error) ?? (error instanceof Error ? error.message : String(error)));
  }
}

/** Node's own words for an unknown option speak of `--`; ours of the option that was most likely meant. */
function unknownOption(command: Command, error: unknown): string | undefined {
  if ((error as NodeJS.ErrnoException).code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION') return undefined;
  const option = /'(--?[^']*)'/.exec((error as Error).message)?.[1];
  if (option === undefined) return undefined;
  const near = closestWord(option.replace(/^-+/, ''), Object.keys(optionsOf(command)));
  return `there is no option ${option}${near === undefined ? '' : `; did you mean --${near}?`}`;
}

/** The longest path in the table that the words begin with, and how many words it took. */
export function find(
  commands: readonly Command[],
  words: readonly string[],
): { readonly command: Command; readonly rest: readonly string[] } | undefined {
  const found = commands
    .filter((command) => command.path.every((word, i) => words[i] === word))
    .toSorted((a, b) => b.path.length - a.path.length)[0];
  return found === undefined ? undefined : { command: found, rest: words.slice(found.path.length) };
}

/** A string option, or undefined. */
export function text(invocation: Invocation, name: string): string | undefined {
  const value = invocation.flags[name];
  return typeof value === 'string' ? value : undefined;
}

/** Every value of an option that may be given more than once. */
export function texts(invocation: Invocation, name: string): readonly string[] {
  const value = invocation.flags[name];
  return typeof value === 'object' ? value : [];
}

/** Whether a boolean option was given. */
export function given(invocation: Invocation, name: string): boolean {
  return invocation.flags[name] === true;
}

/** A whole, positive number given as an option. Throws UsageError. */
export function count(invocation: Invocation, name: string): number | undefined {
  const value = text(invocation, name);
  if (value === undefined) return undefined;
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new UsageError(`--${name} takes a whole, positive number, not "${value}"`);
  return Number(value);
}
