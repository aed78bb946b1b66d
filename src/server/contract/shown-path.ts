/** A path as it may be shown: bounded, with everything that draws nothing or moves the cursor written out. */
export function shownPath(path: string): string {
  const cut = path.length > 120 ? `${path.slice(0, 117)}…` : path;
  return cut.replace(
    /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu,
    (c) => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
