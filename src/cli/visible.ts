import { codePointName, unsafeCharacters } from '../client/unsafe-characters.ts';

/**
 * Text from models, files and processes is hostile: on a terminal it could move the cursor, rewrite lines above, set the
 * clipboard (OSC 52), or show one thing and mean another (bidirectional overrides, invisible characters). Everything
 * that the command line prints passes through here; styles are added afterwards and never come from the text.
 */

/** A character as a name that can be read: `⟨U+202E⟩`, and short ones for those that people know. */
function nameOf(character: string): string {
  switch (character) {
    case '\u001b':
      return '⟨ESC⟩';
    case '\r':
      return '⟨CR⟩';
    case '\n':
      return '⟨LF⟩';
    case '\t':
      return '⟨TAB⟩';
    default:
      return codePointName(character);
  }
}

/** One line: every unsafe character, line ends and tabs included, is replaced by its name. */
export function visibleLine(text: string): string {
  return text.replaceAll(unsafeCharacters, nameOf);
}

/** Several lines: line feeds stay, tabs become eight-column stops, a CR before a LF goes; the rest is named. */
export function visibleLines(text: string): string[] {
  return text.split(/\r?\n/).map((line) => visibleLine(expandTabs(line)));
}

/** Tabs as spaces, so that a column on the screen is one that was counted. */
export function expandTabs(line: string): string {
  if (!line.includes('\t')) return line;
  let out = '';
  for (const character of line) out += character === '\t' ? ' '.repeat(8 - (out.length % 8)) : character;
  return out;
}

/** JSON in one line in which every unsafe character is escaped: the same value, but nothing that a terminal obeys. */
export function visibleJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(unsafeCharacters, (character) =>
    Array.from(
      { length: character.length },
      (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`,
    ).join(''),
  );
}

/** At most `width` characters, the cut marked. Counts UTF-16 units: good enough for a column. */
export function shorten(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;
}
