/** Known words that are looked at; what is typed is answered on each key, in repositories of any size. */
const mostCompared = 20_000;
/** A path that differs in more places is another one. */
const mostChanges = 6;
/** Longer words have no neighbours. */
const longest = 200;

/** Three rows of distances, longer than any word that is compared: they are filled anew for each candidate. */
type Rows = [Uint16Array, Uint16Array, Uint16Array];
const makeRows = (): Rows => [
  new Uint16Array(longest + mostChanges + 2),
  new Uint16Array(longest + mostChanges + 2),
  new Uint16Array(longest + mostChanges + 2),
];

/**
 * The known word that a mistyped one most likely meant, or undefined. Case does not count; at most a third may differ,
 * and never more than six characters.
 */
export function closestWord(word: string, known: Iterable<string>): string | undefined {
  if (word.length > longest) return undefined;
  const rows = makeRows();
  const typed = word.toLowerCase();
  let best: { readonly word: string; readonly distance: number } | undefined;
  let compared = 0;
  for (const candidate of known) {
    compared += 1;
    if (compared > mostCompared) break;
    const third = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    // Only what is better than the best so far counts.
    const allowed = Math.min(third, mostChanges, (best?.distance ?? Infinity) - 1);
    const distance = editDistance(typed, candidate.toLowerCase(), allowed, rows);
    if (distance <= allowed) best = { word: candidate, distance };
    if (best?.distance === 0) break;
  }
  return best?.word;
}

/**
 * Insertions, deletions, changes and swaps of neighbours, one row at a time; anything above `most` for what is further
 * apart. Only the cells that can still lead to `most` are filled in.
 */
function editDistance(a: string, b: string, most: number, rows: Rows): number {
  const far = most + 1;
  if (Math.abs(a.length - b.length) > most) return far;
  let [beforeLast, last, row] = rows;
  for (let j = 0; j <= b.length; j += 1) last[j] = Math.min(j, far);
  let leastOfLast = 0;
  for (let i = 1; i <= a.length; i += 1) {
    const from = Math.max(1, i - most);
    const to = Math.min(b.length, i + most);
    row[from - 1] = from === 1 ? Math.min(i, far) : far;
    let least = row[from - 1] ?? far;
    for (let j = from; j <= to; j += 1) {
      const same = a.charCodeAt(i - 1) === b.charCodeAt(j - 1);
      let distance = Math.min((last[j] ?? far) + 1, (row[j - 1] ?? far) + 1, (last[j - 1] ?? far) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        distance = Math.min(distance, (beforeLast[j - 2] ?? far) + 1);
      row[j] = distance;
      if (distance < least) least = distance;
    }
    // The next row looks one cell further.
    if (to < b.length) row[to + 1] = far;
    // A swap reaches two rows back, by one change more.
    if (least > most && leastOfLast >= most) return far;
    leastOfLast = least;
    [beforeLast, last, row] = [last, row, beforeLast];
  }
  return last[b.length] ?? far;
}
