import { visibleLine } from './visible.ts';

/** Paths that a question names. */
const mostNamed = 5;

/**
 * What a person is asked before they accept a candidate. Files of which the diff above shows no bytes are named in it:
 * nobody decides about them without being told. Pure.
 */
export function acceptQuestion(candidate: string, root: string, notShown: readonly string[]): string {
  const asked = `Accept candidate ${candidate} and integrate it into ${root}?`;
  if (notShown.length === 0) return asked;
  const named = notShown.slice(0, mostNamed).map(visibleLine).join(', ');
  const more = notShown.length > mostNamed ? ` and ${notShown.length - mostNamed} more` : '';
  const what =
    notShown.length === 1
      ? '1 file is no text, and nothing of it'
      : `${notShown.length} files are no text, and nothing of them`;
  return `${what} was shown: ${named}${more}. ${asked}`;
}
