/** Longest piece whose endless repetition is looked for, and how much of it must be there, in characters. */
const longestPiece = 160;
const watched = 1600;
/** A piece of code or a table row may come back often; this many times in a row, and nothing else, does not. */
const leastTimes = 10;

/**
 * True where the newest `watched` characters of a text are one piece over and over: a model that does not find its end
 * (facts/ollama-wire: "endless thinking"). A stretch of nothing but white space counts too.
 */
export function isEndless(text: string): boolean {
  if (text.length < watched) return false;
  const tail = text.slice(-watched);
  if (tail.trim() === '') return true;
  for (let piece = 1; piece <= longestPiece && piece * leastTimes <= watched; piece += 1) {
    if (repeats(tail, piece)) return true;
  }
  return false;
}

function repeats(tail: string, piece: number): boolean {
  for (let i = tail.length - 1; i >= piece; i -= 1) {
    if (tail.charCodeAt(i) !== tail.charCodeAt(i - piece)) return false;
  }
  return true;
}

/** Looks at a growing text now and then; `endless` turns true once and stays. */
export class RepetitionWatch {
  #tail = '';
  #sinceLook = 0;
  endless = false;

  push(piece: string): void {
    this.#tail += piece;
    this.#sinceLook += piece.length;
    if (this.#sinceLook < 400 || this.endless) return;
    this.#sinceLook = 0;
    if (this.#tail.length > watched) this.#tail = this.#tail.slice(-watched);
    this.endless = isEndless(this.#tail);
  }
}
