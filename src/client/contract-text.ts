import type { ProjectHints } from './project-hints.ts';

/** What a person said about a new contract; the rest has defaults. */
export interface NewContract {
  readonly title: string;
  readonly instruction: string;
  /** Paths relative to the repository. */
  readonly writable: readonly string[];
  /** The exact program and arguments of the check that must fail now and pass afterwards. */
  readonly check: readonly string[];
  /** What the repository says about how its checks are run; nothing of it where that is not known. */
  readonly hints?: Pick<ProjectHints, 'scratch' | 'npm' | 'python'> | undefined;
}

/**
 * The text of a short contract file, with a comment on what can be added. Ends with a line end. What a person left empty
 * stays empty: a check of the file names it.
 */
export function contractText(contract: NewContract): string {
  const json = (value: unknown): string => JSON.stringify(value);
  const list = (values: readonly string[]): string => `[${values.map(json).join(', ')}]`;
  const { scratch = [], npm = null, python = null } = contract.hints ?? {};
  const locks = [
    ...(npm === null ? [] : [`"npm": ${json(npm)}`]),
    ...(python === null ? [] : [`"python": ${json(python)}`]),
  ];
  const more = [
    ...(scratch.length === 0
      ? []
      : [`  // Folders that the checks write to; never collected.`, `  "scratch": ${list(scratch)},`]),
    ...(locks.length === 0
      ? []
      : [
          `  // The packages that the checks need, from lock files; prepared once, after your yes.`,
          `  "image": { "dependencies": { ${locks.join(', ')} } },`,
        ]),
  ];
  return `{
  "title": ${json(contract.title)},
  // The model reads exactly this: what to change, and what must stay.
  "instruction": ${json(contract.instruction)},
  // The only files that may change, each named exactly.
  "writable": ${list(contract.writable)},
  "acceptance": [
    // It must fail on the files as they are: a check that can't tell broken from fixed stops the contract.
    { "id": "fixed", "argv": ${list(contract.check)}, "baseline": "fail" },
    // Add checks of what must stay, with "baseline": "pass".
  ],
${more.map((line) => `${line}\n`).join('')}}
`;
}

/** A file name from a title: lower-case words with dashes, at most 48 characters. */
export function contractFileName(title: string): string {
  const words = title
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 48)
    .replace(/-+$/, '');
  return `${words === '' ? 'change' : words}.contract.jsonc`;
}

/**
 * Splits a command line as a person types it into exact arguments: spaces separate, quotes group, a backslash keeps the
 * next character. Nothing is expanded: a shell is never involved. Returns null where a quote stays open.
 */
export function splitCommand(line: string): readonly string[] | null {
  const words: string[] = [];
  let word: string | undefined;
  let quote: string | undefined;
  for (let index = 0; index < line.length; index++) {
    const character = line.charAt(index);
    if (quote !== undefined) {
      if (character === quote) quote = undefined;
      else if (character === '\\' && quote === '"' && '"\\'.includes(line.charAt(index + 1)))
        word += line.charAt(++index);
      else word += character;
    } else if (character === '"' || character === "'") {
      quote = character;
      word ??= '';
    } else if (character === '\\' && index + 1 < line.length) word = (word ?? '') + line.charAt(++index);
    else if (/\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? '') + character;
  }
  if (quote !== undefined) return null;
  if (word !== undefined) words.push(word);
  return words;
}
