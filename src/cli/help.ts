import { optionsOf, type Command } from './command.ts';

const commonExits: Readonly<Record<number, string>> = {
  0: 'done, and the answer is yes',
  1: 'done, and the answer is no; or a defect',
  2: 'the command was not understood, or names something that is not there; nothing was done',
  3: 'no Kernel could be reached or started',
  4: 'the Kernel refused; the message names the precondition, nothing was changed',
  5: 'something on this machine is missing or full: container engine, image, inference, disk',
};

/** Lines of at most 100 columns, each after `indent`. */
function wrap(text: string, indent: string, first = indent): string[] {
  const lines: string[] = [];
  let line = first;
  let empty = true;
  for (const word of text.split(' ')) {
    if (!empty && line.length + 1 + word.length > 100) {
      lines.push(line);
      line = indent;
      empty = true;
    }
    line += empty ? word : ` ${word}`;
    empty = false;
  }
  return [...lines, line];
}

function flag(name: string, value: string | undefined): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

/** `escrow session start FILE [--model NAME] …` */
export function usage(command: Command): string {
  return ['escrow', ...command.path, command.args].filter((part) => part !== '').join(' ');
}

/** The whole help of one command. */
export function commandHelp(command: Command): string[] {
  const options = Object.entries(optionsOf(command)).map(
    ([name, spec]) => [flag(name, spec.value), spec.help] as const,
  );
  const width = Math.max(...options.map(([left]) => left.length)) + 4;
  const exits = Object.entries({ ...commonExits, ...command.exits });
  return [
    command.summary,
    '',
    `Usage: ${usage(command)} [options]`,
    '',
    ...command.details.flatMap((paragraph) => [...wrap(paragraph, ''), '']),
    'Options:',
    ...options.flatMap(([left, help]) => wrap(help, ' '.repeat(width), `  ${left}`.padEnd(width))),
    '',
    'Exit codes:',
    ...exits.flatMap(([code, meaning]) => wrap(meaning, '       ', `  ${code.padEnd(5)}`)),
  ];
}

/** The overview, or that of one group (`escrow session`): a paragraph for each group of commands. */
export function overview(commands: readonly Command[], version: string): string[] {
  const name = (command: Command): string => usage(command).slice('escrow '.length);
  const width = Math.max(...commands.map((command) => name(command).length)) + 4;
  const groups = [...Map.groupBy(commands, ({ path }) => path[0]).entries()];
  const [only] = groups;
  const whose = groups.length === 1 && only?.[0] !== undefined ? `${only[0]} ` : '';
  return [
    `Escrow ${version}: a local model attempts a small change in a container it cannot leave;`,
    'you decide on the exact bytes.',
    '',
    `Usage: escrow ${whose}COMMAND [options]`,
    '',
    ...groups.flatMap(([, members]) => [
      ...members.flatMap((command) => wrap(command.summary, ' '.repeat(width), `  ${name(command)}`.padEnd(width))),
      '',
    ]),
    'Every command takes --json and --help. SESSION and CANDIDATE may be shortened to a unique beginning;',
    '"last" names the newest session. State lives in one folder per user; ESCROW_HOME names another.',
    '',
    'Exit codes:',
    ...Object.entries(commonExits).map(([code, meaning]) => `  ${code.padEnd(5)}${meaning}`),
    '  130  ended by Ctrl-C; what ran was settled first',
  ];
}
