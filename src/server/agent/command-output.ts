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
    case 'hoard':
      return end.of === 'sockets'
        ? '[stopped: too many sockets, or too much unread in them]'
        : '[stopped: too many file locks]';
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
