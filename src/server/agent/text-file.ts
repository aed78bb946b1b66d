/** A text file as bytes are: what an editor must not change by accident is kept apart. */
export interface TextFile {
  readonly bom: boolean;
  /** The text after the BOM, line ends as they are. */
  readonly raw: string;
  /** The same with CRLF as LF: what the model sees and names. */
  readonly lf: string;
  /** The line end that most lines have; LF where there is none. */
  readonly eol: '\n' | '\r\n';
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Null where the bytes are not UTF-8 text (or hold NUL): such a file is not edited as text. */
export function decodeText(bytes: Uint8Array): TextFile | null {
  let text: string;
  try {
    text = strictUtf8.decode(bytes);
  } catch {
    return null;
  }
  if (text.includes('\0')) return null;
  const bom = text.startsWith('\uFEFF');
  return textFile(bom, bom ? text.slice(1) : text);
}

/** Bytes of a text file. */
export function encodeText(file: TextFile): Uint8Array {
  return Buffer.from((file.bom ? '\uFEFF' : '') + file.raw, 'utf8');
}

function textFile(bom: boolean, raw: string): TextFile {
  if (!raw.includes('\r\n')) return { bom, raw, lf: raw, eol: '\n' };
  const crlf = raw.split('\r\n').length - 1;
  const newlines = raw.split('\n').length - 1;
  return { bom, raw, lf: raw.replaceAll('\r\n', '\n'), eol: crlf > newlines - crlf ? '\r\n' : '\n' };
}

/** Lines as an editor counts them: a final newline ends the last line and makes no other; an empty file has none. */
export function linesOf(text: string): readonly string[] {
  if (text === '') return [];
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

/**
 * Replaces a range (offsets in `lf`) by a text with LF line ends. Only what differs is touched: characters that the old
 * and the new text share at both ends keep their bytes, line ends included. New line ends are the file's own.
 */
export function splice(file: TextFile, from: number, to: number, text: string): TextFile {
  const old = file.lf.slice(from, to);
  const most = Math.min(old.length, text.length);
  let head = 0;
  while (head < most && old[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === text[text.length - 1 - tail]) tail += 1;
  const start = rawOffset(file.raw, from + head);
  const end = rawOffset(file.raw, to - tail);
  const middle = text.slice(head, text.length - tail).replaceAll('\n', file.eol);
  return textFile(file.bom, file.raw.slice(0, start) + middle + file.raw.slice(end));
}

/** A new text for an old file: its BOM and line ends are kept. */
export function withText(file: TextFile, text: string): TextFile {
  return splice(file, 0, file.lf.length, text);
}

function rawOffset(raw: string, lfOffset: number): number {
  let at = 0;
  let left = lfOffset;
  for (;;) {
    const crlf = raw.indexOf('\r\n', at);
    // A CRLF is one unit in the LF text.
    if (crlf === -1 || crlf - at >= left) return at + left;
    left -= crlf - at + 1;
    at = crlf + 2;
  }
}
