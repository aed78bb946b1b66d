/**
 * What hostile text could hide or reorder other text with, in a window or on a terminal: control, format (bidirectional
 * ones too), private-use, unassigned and lone surrogate characters, line and paragraph separators, everything that
 * Unicode lets a renderer leave out, each space that is not U+0020, and the empty Braille cell.
 */
export const unsafeCharacters =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

/** A character as a name that can be read: `⟨U+202E⟩`. */
export function codePointName(character: string): string {
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`;
}
