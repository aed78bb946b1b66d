import { styleText } from 'node:util';
import { visibleJson, visibleLine } from './visible.ts';

/** A part of a line with its style. Plain strings are sanitised when printed, and so is the text in here. */
export interface Styled {
  readonly text: string;
  readonly style: Style;
}
export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';
export type Part = string | Styled;

export const styled = (style: Style, text: string): Styled => ({ text, style });

/** Where the command line writes. Lines are sanitised here and nowhere else, so nothing gets around it. */
export interface Output {
  readonly json: boolean;
  /** True when a person sits in front of both ends. */
  readonly interactive: boolean;
  /** A line for people, to stdout; nothing with `--json`, where `value` says it. */
  line(...parts: readonly Part[]): void;
  /** A remark beside the result (progress, questions, errors): always to stderr. */
  note(...parts: readonly Part[]): void;
  /** What goes on at this moment: one line that the next one replaces, on a terminal only. Empty clears it. */
  status(text: string): void;
  /** One line of JSON on stdout; nothing unless `--json`. */
  value(value: unknown): void;
}

interface Sink {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

const clearLine = '\r\u001B[2K';

/** Colours only on a terminal that wants them (NO_COLOR, TERM=dumb). */
export function createOutput(
  options: { json: boolean; colour?: boolean },
  stdout: Sink = process.stdout,
  stderr: Sink = process.stderr,
  stdin: { readonly isTTY?: boolean | undefined } = process.stdin,
): Output {
  const wanted = process.env['NO_COLOR'] === undefined && process.env['TERM'] !== 'dumb';
  const render = (sink: Sink, parts: readonly Part[]): string => {
    const colour = options.colour ?? (wanted && sink.isTTY === true);
    return parts
      .map((part) => {
        if (typeof part === 'string') return visibleLine(part);
        const text = visibleLine(part.text);
        return colour ? styleText(part.style, text, { validateStream: false }) : text;
      })
      .join('');
  };
  let shown = false;
  const clear = (): void => {
    if (shown) stderr.write(clearLine);
    shown = false;
  };
  return {
    json: options.json,
    interactive: stdin.isTTY === true && stdout.isTTY === true && !options.json,
    line(...parts) {
      clear();
      if (!options.json) stdout.write(`${render(stdout, parts)}\n`);
    },
    note(...parts) {
      clear();
      stderr.write(`${render(stderr, parts)}\n`);
    },
    status(text) {
      clear();
      if (stderr.isTTY !== true || options.json || text === '') return;
      // Cut to the terminal, else the line could not be taken back.
      stderr.write(render(stderr, [styled('dim', text.slice(0, Math.max(20, (stderr.columns ?? 80) - 1)))]));
      shown = true;
    },
    value(value) {
      if (options.json) stdout.write(`${visibleJson(value)}\n`);
    },
  };
}

/** Rows as aligned columns, two spaces apart; the last column is not padded. Cells are plain text. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  const cells = rows.map((row) => row.map(visibleLine));
  for (const row of cells) for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length);
  return cells.map((row) =>
    row
      .map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}
