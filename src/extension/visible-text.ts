import { codePointName, unsafeCharacters } from '../client/unsafe-characters.ts';

/**
 * Text from models, files and processes is hostile. In labels, descriptions and messages every character that could
 * hide or reorder others is replaced by its name, and what a part of VS Code would interpret is defused.
 */

/** More marks on one letter than any script needs: they would climb over neighbouring rows. */
const stackedMarks = /(\p{M}{3})\p{M}+/gu;

function nameOf(character: string): string {
  switch (character) {
    case '\n':
      return '⏎';
    case '\t':
      return '⇥';
    default:
      return codePointName(character);
  }
}

/** One line in which nothing is hidden, at most `limit` UTF-16 units long; a cut is marked. */
export function visible(text: string, limit = 200): string {
  // Cut before replacing: a name is many characters, and hostile text may be megabytes.
  const cut = text.length > limit;
  const line = text
    .slice(0, limit)
    .replaceAll('\r\n', '\n')
    .replaceAll(unsafeCharacters, nameOf)
    .replaceAll(stackedMarks, '$1⟨…⟩');
  return cut ? `${line}…` : line;
}

/** As `visible`, but line ends stay; for tooltips, which show plain text in several lines. */
export function visibleLines(text: string, limit = 4000): string {
  const lines = text.slice(0, limit).split(/\r?\n/);
  const shown = lines.map((line) => visible(line, limit)).join('\n');
  return text.length > limit ? `${shown}\n…` : shown;
}

/** For quick picks and the status bar, where `$(name)` would become an icon. */
export function withoutIcons(text: string): string {
  return text.replaceAll('$(', '$\u200a(');
}

/** For notifications, where `[text](target)` would become a link. */
export function withoutLinks(text: string): string {
  return text.replaceAll('](', '] (');
}

/** Text from anywhere as the words of a notification: nothing hidden, no link. */
export function notificationText(text: string): string {
  return withoutLinks(visible(text, 600));
}
