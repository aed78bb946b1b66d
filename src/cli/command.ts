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
  /** One letter that stands for it. */
  readonly short?: string;
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
  help: { type: 'boolean', short: 'h', help: 'Show this help.' },
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
        Object.entries(optionsOf(command)).map(([name, { type, multiple = false, short }]) => [
          name,
          { type, multiple, ...(short === undefined ? {} : { short }) },
        ]),
      ),
      allowPositionals: true,
      strict: true,
    });
    const flags = values as Record<string, string | boolean | string[] | undefined>;
    if (flags['help'] === true) return { args: positionals, flags };
    const { min, max } = arity(command.args);
    if (positionals.length < min) throw new UsageError(`${command.args.split(' ')[positionals.length]} is missing`);
    if (positionals.length > max) throw new UsageError(`too many arguments: ${positionals.slice(max).join(' ')}`);
    // The beginning of every id: a variable that nobody set would name whatever is there alone.
    if (positionals.includes('')) {
      throw new UsageError(`${command.args.split(' ')[positionals.indexOf('')]?.replace(/^\[(.*)\]$/, '$1')} is empty`);
    }
    const empty = Object.entries(flags).find(([, value]) => [value].flat().includes(''));
    if (empty !== undefined) throw new UsageError(needsValue(command, empty[0]));
    return { args: positionals, flags };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(optionFault(command, error) ?? (error instanceof Error ? error.message : String(error)));
  }
}

function needsValue(command: Command, name: string): string {
  const value = optionsOf(command)[name]?.value ?? 'VALUE';
  return `--${name} needs a value: --${name} ${value}, or --${name}=${value} where it begins with a dash`;
}

/** Node's own words for options speak of how they are written; ours of the option that was most likely meant. */
function optionFault(command: Command, error: unknown): string | undefined {
  const { code, message } = error as NodeJS.ErrnoException;
  const named = /'(?:-\w, )?(--?[^' ]*)/.exec(message)?.[1];
  if (named === undefined) return undefined;
  if (code === 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE') {
    const name = named.replace(/^-+/, '');
    return optionsOf(command)[name]?.type === 'string' ? needsValue(command, name) : `${named} takes no value`;
  }
  return code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? unknownOption(Object.keys(optionsOf(command)), named) : undefined;
}

/** `option` with its dashes, and the one of `known` that was most likely meant. */
export function unknownOption(known: readonly string[], option: string): string {
  const near = closestWord(option.replace(/^-+/, ''), known);
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
