import type { FrozenCheck, FrozenContract } from '../../protocol/contract.ts';
import { quoteArgv, tokenize } from './tokenizer.ts';

/** What a command line of the model may do. */
export type TerminalDecision =
  | { readonly kind: 'run'; readonly check: FrozenCheck }
  /** `cat PATH`: the path is decided by the same rules as a view. */
  | { readonly kind: 'read'; readonly path: string }
  | { readonly kind: 'denied'; readonly code: string; readonly text: string };

/** Checks that the model may know of and run. Supplemental ones are not among them, in no text and no list. */
export function visibleChecks(contract: FrozenContract): readonly FrozenCheck[] {
  return contract.checks.filter((check) => check.kind === 'acceptance');
}

const reasons: Readonly<Record<string, string>> = {
  empty: 'the command is empty',
  chaining: 'one command a call: no ";", "&", "|" or second line',
  redirection: 'no redirection',
  substitution: 'no "$" or backtick: there is no shell',
  glob: 'no wildcards: there is no shell',
  expansion: 'no "~", braces or "!": there is no shell',
  grouping: 'no parentheses: there is no shell',
  comment: 'no comments',
  assignment: 'no variables before the program: the environment is set already',
  unfinished: 'a quote or backslash is left open',
  control: 'control characters',
  too_long: 'the command is too long',
};

/** What is allowed, as the last part of each denial. */
export function allowedText(contract: FrozenContract): string {
  const lines = visibleChecks(contract).map((check) => `- ${quoteArgv(check.argv)}`);
  return [
    'Allowed, exactly as written, one a call:',
    ...lines,
    '- cat PATH',
    `Files are read and edited with file_editor${contract.tools.includes('search') ? ', texts found with search' : ''}.`,
  ].join('\n');
}

/** Decides a command line: its words must equal a declared argv, element by element. Pure. */
export function decideTerminal(command: string, contract: FrozenContract): TerminalDecision {
  const denied = (code: string, why: string): TerminalDecision => ({
    kind: 'denied',
    code,
    text: `Denied: ${why}.\n${allowedText(contract)}`,
  });
  const words = tokenize(command);
  if (!words.ok) return denied(words.code, reasons[words.code] ?? words.code);
  const { argv } = words;
  const check = visibleChecks(contract).find(
    (c) => c.argv.length === argv.length && c.argv.every((word, i) => word === argv[i]),
  );
  if (check !== undefined) return { kind: 'run', check };
  const [program, path] = argv;
  if (program === 'cat' && argv.length === 2 && path !== undefined && !path.startsWith('-'))
    return { kind: 'read', path };
  return denied('not_declared', 'this command is not one of the declared ones');
}
