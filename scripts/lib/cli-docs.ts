import { commands } from '../../src/cli/commands/all.ts';
import { commandHelp, overview } from '../../src/cli/help.ts';
import { productVersion } from '../../src/protocol/version.ts';

/** docs/cli.md: the help of every command, as the command line prints it. */
export function cliDocs(): string {
  const fence = (lines: readonly string[]): string => ['```text', ...lines, '```'].join('\n');
  return [
    '# The command line',
    '',
    'Made from the help texts by `npm run docs`; a unit test holds the two equal. Do not edit.',
    '',
    'The command line is a second client of the same Kernel as the windows: it finds the Kernel or starts it, and holds no authority of its own. From a checkout it is `npm run -s escrow -- COMMAND`; from the folder of your own project `npm --prefix CHECKOUT run -s escrow -- COMMAND`, or, with Node 22 or newer, `CHECKOUT/dist/cli.cjs COMMAND`. Files are named relative to the folder that you are in.',
    '',
    '## In scripts',
    '',
    '- `--json` prints one line of JSON on stdout, the result; everything for people goes to stderr. Errors are `{"error": {"code", "message", "next", "details"}}`. `session start`, `session attempt`, `session cancel` and `session show --watch` print lines `{"event": …}` before the result.',
    '- Exit codes are part of the interface. A decision (`candidate accept`, `candidate reject`) needs `--reviewer` and at least twelve digits of the candidate, and is recorded and shown as that of a script.',
    '- Text from models and programs is never sent to a terminal as it is: characters that a terminal obeys, or that cannot be seen, are printed by name (`⟨ESC⟩`, `⟨U+202E⟩`), in JSON as `\\u` escapes.',
    '- A session that is watched belongs to the process that watches it. When that process ends in whatever way, the Kernel settles the session.',
    '',
    '## Overview',
    '',
    fence(overview(commands, productVersion)),
    '',
    ...commands.flatMap((command) => [`## escrow ${command.path.join(' ')}`, '', fence(commandHelp(command)), '']),
  ].join('\n');
}
