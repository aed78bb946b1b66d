// docs/contracts.md: the field help of the editor, with what has to be said around it.
import { fieldHelp } from '../../src/server/contract/field-help.ts';

const before = `# Contracts

A contract is a file \`NAME.contract.jsonc\` in a git repository: JSON with comments and trailing commas. It states one small change: what to do, which files may change, and which commands decide. \`title\`, \`instruction\`, \`writable\` and \`acceptance\` are enough; everything else has a default that freezing spells out. Paths are relative to the repository's root.

\`\`\`jsonc
{
  "title": "UTC for timezone-free timestamps",
  "instruction": "Interpret timezone-free timestamps as UTC. Keep everything else as it is.",
  "writable": ["src/usage.py"],
  "acceptance": [
    { "id": "utc", "argv": ["python3", "-m", "unittest", "-v", "tests.test_timestamp"], "baseline": "fail" },
    { "id": "rest", "argv": ["python3", "-m", "unittest", "-v", "tests.test_usage"], "baseline": "pass" },
  ],
  "supplemental": [
    { "path": "acceptance/outside.py", "argv": ["python3", "acceptance/outside.py"] },
  ],
}
\`\`\`

\`escrow contract new\` writes one for the repository of the folder that you are in: the usual way to run its tests is proposed, with the lock files that its packages come from, and what you did not give is left empty. From there:

\`\`\`text
escrow contract check FILE       what freezing would refuse, each with its place
escrow contract baseline FILE    freezes it, and runs the checks on the untouched files
escrow session start FILE --model NAME
\`\`\`

A good contract is small: one change that a sentence can state, one check that fails now and passes when it is made, one that keeps what must stay, and, where it matters, a hidden one that calls the program from outside. In the window it is _New Contract_.

The editor completes fields, choices and tracked paths, explains each field on hover, and marks what freezing would refuse. In \`symbols\` it completes what the file defines. An unknown key is an error. \`media/contract.schema.json\` is the same schema for other editors.

## Freezing

Freezing copies the bytes of the working tree (not of the last commit) and takes a digest over them and every choice. Editing the file later makes a new contract; the old one stays. The digest names no machine: the same files and the same contract have the same one everywhere. Of a file's mode only the executable bit counts.

Refused by name, or left out with a warning when only a glob or the default found it:

- what git ignores, git's own folder, other repositories inside this one and what would be written into them, symbolic links and what lies behind them, pipes, sockets, devices, tracked files that are not in the working tree (deleted, or left out by a sparse checkout);
- names that are not the same file on Linux, macOS and Windows, or hold characters that draw nothing or turn the text around;
- files named like a secret (\`.env\`, \`id_rsa\`, \`*.pem\`, …) or that begin as a private key does;
- more than 56 MiB (profile \`standard\`: 448 MiB), counted in pages of 4 KiB, or more than 10,000 files.

Never writable, at any depth: what tools on your machine act upon by themselves (\`.vscode\`, \`.idea\`, \`.devcontainer\`, \`.mcp.json\`, \`.gitattributes\`, hooks, settings and instructions of agents). Integration refuses them once more.

Git is asked with hooks, fsmonitor, filters, helpers and lazy fetching off, and with an environment of its own: nothing of the tree runs on the host.

## Baseline

Before any attempt the acceptance runs on the untouched files in the real sandbox. What is declared \`fail\` must fail there, what is declared \`pass\` must pass. A check that ran out of time, memory or output, was killed, could not be found or started, or left with exit 0 but without the runner's closing summary has shown nothing: it never counts as the declared failure.

## Verification

In a fresh sandbox: the snapshot, the candidate's files over it, the protected files put back, the supplemental files beside them, all owned by root. Passed means that every check ran to its end within its limits, exited with 0, and that every file was read back unchanged afterwards. For runners that are known the closing summary must be the end of the output, name no failure, and cover at least what ran at the baseline, by name where the runner prints names. Where only the exit status is known, the review says so.

| runner | recognised | compared by name |
| --- | --- | --- |
| unittest | \`python3 -m unittest\` | with \`-v\` |
| pytest | \`pytest\`, \`python3 -m pytest\` | with \`-v\` or \`-rA\` |
| node | \`node --test\` | with the TAP reporter (what Node 20 prints into a pipe) |
| vitest, jest | by name, by \`npx\`, or as a script of \`node\` | with the verbose reporter |
| go | \`go test -v\` or \`-json\`; plain \`go test\` prints nothing to count | always |
| cargo | \`cargo test\` | always |

Nothing that runs in the candidate's own process is proof against a candidate made to deceive: it can print what the runner would print. A supplemental check that calls the program from outside is stronger. Read the diff.

## Symbol scope

A writable file may be limited to named parts of it:

\`\`\`jsonc
"writable": [{ "path": "src/usage.py", "symbols": ["timestamp", "imports"], "newSymbols": ["parse_offset"] }]
\`\`\`

Both versions are parsed, and what is outside the named symbols must be the same: token for token, comments and the contents of strings included, in the same nesting, with the same line breaks between tokens (how many blank lines does not count) and, in Python, the same indentation. Spaces within a line, and the end of the file, do not count; the byte-order mark and the kind of line end do. What has a meaning by standing first in its body (a docstring, a directive) stays first.

| | |
| --- | --- |
| languages | Python (\`.py\`, \`.pyi\`), JavaScript (\`.js\`, \`.mjs\`, \`.cjs\`, \`.jsx\`), TypeScript (\`.ts\`, \`.mts\`, \`.cts\`, \`.tsx\`); files of at most 512 KiB |
| what has a name | functions, classes, interfaces, types, enums, namespaces; \`NAME = …\` of a module or class; the only name of a \`const\`, \`let\` or \`var\`, else its own part of the statement; \`default\` for \`export default\`; \`module.exports\`, \`Foo.prototype.bar\` where they are assigned to. Within them by dots: \`Class.method\`, \`Class.#field\`, \`Namespace.f\`, members of object literals, interfaces and enums, functions and classes within functions (\`outer.inner\`) |
| not named | what a pattern declares (\`const { a } = …\`, \`a, b = …\`), \`a = b = …\`, computed keys, what a block of JavaScript declares |
| the span of a symbol | the whole statement: its decorators, \`export\`, \`async\`, its name, the semicolon or comma behind it, a comment on its last line, and in Python comments behind it that are indented further than it. A comment above it is outside |
| several definitions | overloads, redefinitions, getter and setter, both branches of an \`if\`: all definitions of the name in that scope may change. There may be more or fewer at each of their places |
| deleting | a named symbol may go, where the rest still parses |
| moving | it stays where it is. Changing its name is deleting it and adding another: the other must be in \`newSymbols\` |
| \`newSymbols\` | what is not there yet and may be added: at one place of its scope. Nothing else may be |
| \`imports\` | import statements of the module itself, in Python those in \`if\`, \`try\` and \`with\` of the module, too; in JavaScript also \`const … = require('…')\`. They may change, come and go where imports stand, and before the first statement. \`from __future__\` is none of them: it changes how all of the file is read |

What does not parse is out of scope, and so is what readers are known to read in different ways: a declared encoding other than UTF-8, a lone carriage return, NUL, U+2028 and U+2029 outside of Python; white space that nobody sees; tabs behind spaces in an indentation and lines that begin with a continuation in Python; \`<!--\`, and \`-->\` at the start of a line; a class field \`get\`, \`set\`, \`static\` or the like without a semicolon, and a line that ends behind such a word. A file that is so to begin with is refused when the contract is frozen. The grammars are those of VS Code (tree-sitter); syntax that is newer than they are does not parse.

It is held against the contract three times:

- **At each edit of the model.** One that changes what is outside is not made; the answer says what would change and where, and the refusal is audited and counted as any other. One after which the file does not parse is made: it may be a step on the way.
- **At \`finish\`.** Refused while a file does not parse.
- **At verification, which decides.** The snapshot's bytes against the candidate's, whatever it was made by. Out of scope is not passed, whatever the checks say; they run all the same, and what they show is kept. Accept refuses it (\`OutOfScope\`). What could not be compared is not passed either. The record names what compared each file: the package of grammars with its version, and the hashes of the grammar and of its runtime, as they were loaded.

Parsing runs in a thread of its own with bounded memory: a file that takes more than ten seconds, or brings the parser down, is out of scope.

Scope bounds the text, not what it does: a function that may change can do anything when it runs, and comments in it can speak to tools about the whole file (\`/* eslint-disable */\`). Read the diff.

## Fields
`;

/** The whole document. */
export function contractDocs(): string {
  const rows = Object.entries(fieldHelp).map(
    ([path, help]) => `- \`${path.replaceAll('/*', '[]').replaceAll('/', '.')}\`: ${help}`,
  );
  return `${before}\n${rows.join('\n')}\n`;
}
