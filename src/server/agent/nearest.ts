/** The lines of a file that are most like a wanted text. Lines count from 1. */
export interface Region {
  readonly first: number;
  readonly last: number;
  /** True where each line differs in white space only. */
  readonly whitespaceOnly: boolean;
}

/** Work bound: pairs of lines that are compared. Beyond it only the first wanted lines are looked for. */
const pairLimit = 200_000;
/** Characters that are compared in all: taking a larger file apart would cost seconds, and hundreds of megabytes. */
const characterLimit = 500_000;
/** Mean similarity below which showing lines would mislead. */
const leastSimilarity = 0.5;

/** Finds the region of as many lines as wanted with the highest mean similarity, or null where nothing is alike. Pure. */
export function nearestRegion(lines: readonly string[], wanted: readonly string[]): Region | null {
  const meant = trimBlank(wanted);
  if (meant.length === 0 || lines.length === 0) return null;
  const count = Math.min(meant.length, lines.length);
  const compared = Math.max(1, Math.min(count, Math.floor(pairLimit / lines.length)));
  const flatLines = lines.map(flat);
  const flatWanted = meant.map(flat);
  if (flatLines.reduce((sum, line) => sum + line.length, 0) > characterLimit) return null;
  const gramsOfLines = flatLines.map(bigrams);
  const gramsOfWanted = flatWanted.map(bigrams);
  let best = -1;
  let bestScore = 0;
  for (let at = 0; at + count <= lines.length; at += 1) {
    let score = 0;
    for (let j = 0; j < compared; j += 1) {
      const a = gramsOfLines[at + j];
      const b = gramsOfWanted[j];
      if (flatLines[at + j] === flatWanted[j]) score += 1;
      else if (a !== undefined && b !== undefined) score += similarity(a, b);
    }
    if (score > bestScore) {
      bestScore = score;
      best = at;
    }
  }
  if (best === -1 || bestScore / compared < leastSimilarity) return null;
  const whitespaceOnly = count === meant.length && flatWanted.every((line, j) => line === flatLines[best + j]);
  return { first: best + 1, last: best + count, whitespaceOnly };
}

function trimBlank(lines: readonly string[]): readonly string[] {
  let from = 0;
  let to = lines.length;
  while (from < to && lines[from]?.trim() === '') from += 1;
  while (to > from && lines[to - 1]?.trim() === '') to -= 1;
  return lines.slice(from, to);
}

/** White space does not count; very long lines are compared by their start. */
function flat(line: string): string {
  return line.replaceAll(/\s+/g, '').slice(0, 200);
}

function bigrams(text: string): ReadonlyMap<string, number> {
  const grams = new Map<string, number>();
  for (let i = 0; i + 1 < text.length; i += 1) {
    const gram = text.slice(i, i + 2);
    grams.set(gram, (grams.get(gram) ?? 0) + 1);
  }
  return grams;
}

/** Dice's coefficient over bigrams, 0 to 1. */
function similarity(a: ReadonlyMap<string, number>, b: ReadonlyMap<string, number>): number {
  let total = 0;
  let shared = 0;
  for (const n of a.values()) total += n;
  for (const [gram, n] of b) {
    total += n;
    shared += Math.min(n, a.get(gram) ?? 0);
  }
  return total === 0 ? 0 : (2 * shared) / total;
}
