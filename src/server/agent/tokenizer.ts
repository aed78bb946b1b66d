/** A command line as words, or why it is not a plain list of words. */
export type Tokenized =
  | { readonly ok: true; readonly argv: readonly string[] }
  | {
      readonly ok: false;
      readonly code:
        | 'empty'
        | 'chaining' // ; & | newline
        | 'redirection' // < >
        | 'substitution' // $ `
        | 'glob' // * ? [ ]
        | 'expansion' // ~ { } !
        | 'grouping' // ( )
        | 'comment' // # at the start of a word
        | 'assignment' // NAME=value before the program
        | 'unfinished' // an open quote, a backslash at the end
        | 'control' // NUL or another control character
        | 'too_long';
      /** The offending piece, short. */
      readonly at: string;
    };

type Code = Extract<Tokenized, { ok: false }>['code'];

const unquoted: ReadonlyMap<string, Code> = new Map<string, Code>([
  [';', 'chaining'],
  ['&', 'chaining'],
  ['|', 'chaining'],
  ['\n', 'chaining'],
  ['\r', 'chaining'],
  ['<', 'redirection'],
  ['>', 'redirection'],
  ['$', 'substitution'],
  ['`', 'substitution'],
  ['*', 'glob'],
  ['?', 'glob'],
  ['[', 'glob'],
  [']', 'glob'],
  ['{', 'expansion'],
  ['}', 'expansion'],
  ['!', 'expansion'],
  ['(', 'grouping'],
  [')', 'grouping'],
]);

/** Far above any declared command; the contract's own argv elements are at most 4,096 characters. */
const lineLimit = 65_536;

/**
 * Splits a command line into words as a POSIX shell would where nothing but quoting is used, and refuses everything else:
 * there is no shell, so nothing that only a shell understands can be meant. Pure; never throws.
 */
export function tokenize(line: string): Tokenized {
  if (line.length > lineLimit) return { ok: false, code: 'too_long', at: `${line.length} characters` };
  const text = line.slice(/^[ \t\r\n]*/.exec(line)?.[0].length, endOf(line));
  const argv: string[] = [];
  let word: string | null = null;
  /** A shell reads `NAME=` as an assignment only where nothing of the name is quoted. */
  let assignable = true;
  const fail = (code: Code, i: number): Tokenized => ({ ok: false, code, at: text.slice(i, i + 20) });

  for (let i = 0; i < text.length; i += 1) {
    const c = text.charAt(i);
    const code = text.charCodeAt(i);
    if ((code < 0x20 && c !== '\n' && c !== '\r' && c !== '\t') || code === 0x7f) return fail('control', i);
    if (c === "'") {
      const end = text.indexOf("'", i + 1);
      if (end === -1) return fail('unfinished', i);
      const inside = text.slice(i + 1, end);
      if (inside.includes('\0')) return fail('control', i);
      word = (word ?? '') + inside;
      assignable = false;
      i = end;
      continue;
    }
    if (c === '"') {
      const from = i;
      assignable = false;
      word ??= '';
      i += 1;
      for (; ; i += 1) {
        if (i >= text.length) return fail('unfinished', from);
        const d = text.charAt(i);
        if (d === '"') break;
        if (d === '\0') return fail('control', i);
        if (d === '$' || d === '`') return fail('substitution', i);
        if (d === '\\') {
          const next = text.charAt(i + 1);
          if (next === '"' || next === '\\' || next === '$' || next === '`') {
            word += next;
            i += 1;
            continue;
          }
          if (next === '\n') return fail('chaining', i);
        }
        word += d;
      }
      continue;
    }
    if (c === '\\') {
      const next = text.charAt(i + 1);
      if (next === '') return fail('unfinished', i);
      if (next === '\n' || next === '\r') return fail('chaining', i);
      if (next.charCodeAt(0) < 0x20) return fail('control', i);
      assignable = false;
      word = (word ?? '') + next;
      i += 1;
      continue;
    }
    if (c === ' ' || c === '\t') {
      if (word !== null) argv.push(word);
      word = null;
      assignable = argv.length === 0;
      continue;
    }
    const refused = unquoted.get(c);
    if (refused !== undefined) return fail(refused, i);
    if (word === null && c === '~') return fail('expansion', i);
    if (word === null && c === '#') return fail('comment', i);
    if (c === '=' && assignable && argv.length === 0 && /^[A-Za-z_][A-Za-z0-9_]*\+?$/.test(word ?? ''))
      return fail('assignment', 0);
    word = (word ?? '') + c;
  }
  if (word !== null) argv.push(word);
  return argv.length === 0 ? { ok: false, code: 'empty', at: '' } : { ok: true, argv };
}

/** The command line of an argv, quoted only where needed; `tokenize` gives the same argv back. */
export function quoteArgv(argv: readonly string[]): string {
  return argv
    .map((word, i) =>
      /^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$/.test(word) && !(i === 0 && word.includes('='))
        ? word
        : `'${word.replaceAll("'", `'\\''`)}'`,
    )
    .join(' ');
}

/** Where the white space at the end begins. A pattern would try at each of a line's other spaces as well. */
function endOf(line: string): number {
  let end = line.length;
  while (/[ \t\r\n]/.test(line[end - 1] ?? '')) end -= 1;
  return end;
}
