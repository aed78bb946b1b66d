import type { RelPath } from './primitives.ts';

/** Longest path in UTF-8 bytes (design 20: paths are size-bounded); a quarter of Linux' PATH_MAX. */
export const maxPathBytes = 1024;
/** NAME_MAX of every file system in use: ext4, APFS, NTFS, tmpfs. */
export const maxSegmentBytes = 255;

/** Why a text is not a path of a workspace. One code each, for programs; clients word it. */
export type PathFault =
  | 'empty'
  | 'too-long'
  | 'malformed'
  | 'control-character'
  | 'invisible-character'
  | 'backslash'
  | 'absolute'
  | 'not-nfc'
  | 'empty-segment'
  | 'dot-segment'
  | 'segment-too-long'
  | 'trailing-dot-or-space'
  | 'device-name'
  | 'git-folder';

export type ParsedRelPath =
  { readonly ok: true; readonly path: RelPath } | { readonly ok: false; readonly reason: PathFault };

/** Windows opens a device for these, whatever the extension; ¹²³ count as digits there. */
const deviceName = /^(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00B9\u00B2\u00B3])$/i;
/** C0, C1 and the two Unicode line breaks. */
const control = /[\p{Cc}\u2028\u2029]/u;
/** Bidirectional controls, zero-width characters and everything else that draws nothing. */
const invisible = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/u;
const encoder = new TextEncoder();

/**
 * The one set of rules for paths in a workspace: relative, `/`-separated, normalised, and meaning the same file on
 * Linux, macOS and Windows. A name that any of them would read as another file, a device or the repository's own
 * folder is refused, so that bytes which are safe in the sandbox stay safe when they are integrated.
 */
export function parseRelPath(text: string): ParsedRelPath {
  const reason = pathFault(text);
  return reason === undefined ? { ok: true, path: text as RelPath } : { ok: false, reason };
}

/**
 * Two paths with one key are one file on a file system that ignores case or normalisation. Folding goes through upper
 * case first, which errs towards calling more pairs equal (`ı` and `i`, the sigmas).
 */
export function pathKey(path: string): string {
  return path.normalize('NFC').toUpperCase().normalize('NFC').toLowerCase().normalize('NFC');
}

function pathFault(text: string): PathFault | undefined {
  if (text.length === 0) return 'empty';
  // UTF-16 length never exceeds the UTF-8 length: a cheap bound before anything that walks the text.
  if (text.length > maxPathBytes) return 'too-long';
  if (!text.isWellFormed()) return 'malformed';
  if (encoder.encode(text).byteLength > maxPathBytes) return 'too-long';
  if (control.test(text)) return 'control-character';
  if (invisible.test(text)) return 'invisible-character';
  if (text.includes('\\')) return 'backslash';
  if (text.startsWith('/') || /^[A-Za-z]:/.test(text)) return 'absolute';
  if (text.normalize('NFC') !== text) return 'not-nfc';
  for (const segment of text.split('/')) {
    const fault = segmentFault(segment);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function segmentFault(segment: string): PathFault | undefined {
  if (segment === '') return 'empty-segment';
  if (segment === '.' || segment === '..') return 'dot-segment';
  if (encoder.encode(segment).byteLength > maxSegmentBytes) return 'segment-too-long';
  if (segment.endsWith('.') || /\s$/u.test(segment)) return 'trailing-dot-or-space';
  // NTFS reads `name:stream` as a stream of `name`, and drops dots and spaces before the colon.
  const opened = (segment.split(':')[0] ?? '').replace(/[. ]+$/, '');
  const stem = (opened.split('.')[0] ?? '').replace(/ +$/, '');
  if (deviceName.test(stem)) return 'device-name';
  // `git~1` is the 8.3 name that Windows gives to `.git`.
  if (/^(?:\.git|git~[0-9]+)$/i.test(opened)) return 'git-folder';
  return undefined;
}
