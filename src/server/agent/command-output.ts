import type { CommandEnd } from '../../protocol/contract.ts';
import { unreachable } from '../../protocol/primitives.ts';

/** Escape sequences of terminals: CSI, OSC and the two-character ones. */
// oxlint-disable-next-line no-control-regex
const escapes = /\u001B(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001B]*(?:\u0007|\u001B\\)?|[@-Z\\-_])/g;
/** Control characters (but tab and newline), and the ones that reorder or hide text. */
// oxlint-disable-next-line no-control-regex
const invisible = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u200B\u200E\u200F\u202A-\u202E\u2060-\u2069\uFEFF]/g;

/** A program's bytes as text for a model: valid Unicode, no terminal sequences, other control characters spelled out. */
export function cleanOutput(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true })
    .decode(bytes)
    .replaceAll(escapes, '')
    .replaceAll('\r\n', '\n')
    .replaceAll('\r', '\n')
    .replaceAll(invisible, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/**
 * Output without what only decorates it: lines that underline the one above with three or more carets and tildes are left out (a single caret points, and stays), rules of
 * `=`, `-`, `_`, `*` or `#` are three characters long. The whole output is kept as evidence; this is what a model reads
 * again with every later request.
 */
export function plainer(text: string): string {
  return text
    .split('\n')
    .filter((line) => !/^\s*(?=[~^]{3,}\s*$)[~^]*\^/.test(line))
    .map((line) => line.replace(/^(\s*)([=\-_*#])\2{9,}\s*$/, '$1$2$2$2'))
    .join('\n');
}

/** Lines by which runners say that one test passed: unittest and cargo, pytest, Go, TAP, and those that print a tick. */
const passedLine = /^(?:\S.* \.\.\. ok|\S+::\S+ PASSED(?:\s+\[\s*\d+%\])?|\s*--- PASS: .*|ok \d+ - .*|\s*[✓✔√] .*)$/u;

/**
 * A failing check's output without the lines of tests that passed, whose number is said in their place: what has to be
 * read is what failed. A single one stays.
 */
export function withoutPassed(text: string): string {
  const lines = text.split('\n');
  const passed = lines.filter((line) => passedLine.test(line)).length;
  if (passed < 2) return text;
  let said = false;
  return lines
    .flatMap((line) => {
      if (!passedLine.test(line)) return [line];
      if (said) return [];
      said = true;
      return [`[${passed} tests that passed are left out]`];
    })
    .join('\n');
}

/** Lines of a passing check's output that a model is shown: the runner's verdict comes last. */
const passingLines = 6;

/** The end of a passing check's output: what each passing test was called is of no use to whoever wants to go on. */
export function passingEnd(text: string): string {
  const lines = text.split('\n');
  const left = lines.length - passingLines;
  // Not for a line or two: the note would be longer than they.
  return left < 4 ? text : `[${left} lines of a passing check left out]\n${lines.slice(left).join('\n').trimStart()}`;
}

/**
 * Head and tail of a text within `limit` bytes of UTF-8, cut at line ends where there are some near; what was cut is
 * said. The tail gets more: a test runner's verdict comes last.
 */
export function headAndTail(text: string, limit: number): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= limit) return text;
  const headBytes = Math.floor(limit * 0.4);
  const head = atLineEnd(decodeWhole(bytes.subarray(0, headBytes)));
  const tail = atLineStart(decodeWhole(bytes.subarray(bytes.length - (limit - headBytes))));
  const left = bytes.length - Buffer.byteLength(head) - Buffer.byteLength(tail);
  return `${head}\n[… ${left} bytes left out here …]\n${tail}`;
}

/** Text of a slice without the halves of characters at its ends. */
function decodeWhole(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes).replaceAll(/^\uFFFD+|\uFFFD+$/g, '');
}

function atLineEnd(text: string): string {
  const at = text.lastIndexOf('\n');
  return at > text.length - 400 && at > 0 ? text.slice(0, at) : text;
}

function atLineStart(text: string): string {
  const at = text.indexOf('\n');
  return at !== -1 && at < 400 ? text.slice(at + 1) : text;
}

/** How a command ended, in one line for the model. */
export function endLine(end: CommandEnd): string {
  switch (end.kind) {
    case 'exit':
      return `[exit code ${end.code}]`;
    case 'signal':
      return `[ended by ${end.signal}]`;
    case 'timeout':
      return `[stopped: no end within ${Math.round(end.afterMs / 100) / 10} s]`;
    case 'overflow':
      return `[stopped: more than ${end.limitBytes} bytes of output]`;
    case 'oom':
      return '[stopped: out of memory]';
    case 'no-space':
      return `[failed: no room left in ${end.area}]`;
    case 'pids':
      return '[failed: too many processes or threads]';
    case 'cancelled':
      return '[cancelled]';
    case 'spawn-failed':
      return `[could not be started: ${end.errno}]`;
    case 'unknown':
      return `[its end is unknown: ${end.reason}]`;
    default:
      return unreachable(end);
  }
}

/** Lines that test runners mark a failure with. */
const failureMark =
  /^\s*(?:E\s{2,}|AssertionError|\w*(?:Error|Exception)\b.*:|not ok \d|✖|✗|--- FAIL|panicked at|thread '.*' panicked|FAIL(?:ED)?\b)/;
const assertionMark = /(?:AssertionError|ERR_ASSERTION|^E\s{2,}|assert(?:ion)? .*failed|!==|!=)/;

/** The piece of a failed check's output that says what is wrong: around the first assertion, at most `limit` characters. */
export function failureExcerpt(text: string, limit = 700): string {
  const lines = text.split('\n');
  let at = lines.findIndex((line) => assertionMark.test(line));
  if (at === -1) at = lines.findIndex((line) => failureMark.test(line));
  const part = at === -1 ? lines.slice(-8) : lines.slice(Math.max(0, at - 3), at + 6);
  // The next failure's heading ends the piece.
  const heading = part.findIndex((line, i) => i > 3 && /^[=-]{3,}$/.test(line.trim()));
  const joined = (heading === -1 ? part : part.slice(0, heading)).join('\n').trim();
  return joined.length <= limit ? joined : `${joined.slice(0, limit)}…`;
}
