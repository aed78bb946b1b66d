import { closeSync, constants, fstatSync, openSync, renameSync, writeSync } from 'node:fs';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** Structured log of the Kernel process. Never throws; not evidence. */
export type Logger = (level: LogLevel, message: string, data?: Readonly<Record<string, unknown>>) => void;

export interface FileLog {
  readonly log: Logger;
  readonly close: () => void;
}

export interface FileLogOptions {
  readonly file: string;
  readonly now: () => number;
  /** Rotated when it would become larger. */
  readonly maxBytes?: number;
  /** Older files kept, as `<file>.1` … */
  readonly keep?: number;
  readonly least?: LogLevel;
}

const rank: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** A line is cut here: what is logged may come from a model or a program. */
const maxLine = 16 * 1024;

function plain(_key: string, value: unknown): unknown {
  if (value instanceof Error) return { name: value.name, message: value.message, stack: value.stack };
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Uint8Array) return `<${value.byteLength} bytes>`;
  return value;
}

function render(entry: Readonly<Record<string, unknown>>): string {
  try {
    const line = JSON.stringify(entry, plain);
    if (line.length <= maxLine) return line;
    return JSON.stringify({ ...entry, data: undefined, cut: line.slice(0, maxLine / 2) });
  } catch {
    return JSON.stringify({ ...entry, data: '<not serialisable>' });
  }
}

/**
 * JSON lines in a bounded set of files, written synchronously so that the last words before a crash are there. A
 * library would bring streams and worker threads for what is a few lines a minute.
 */
export function openFileLog(options: FileLogOptions): FileLog {
  const { file, now, maxBytes = 4 * 1024 * 1024, keep = 3, least = 'info' } = options;
  const flags =
    constants.O_WRONLY |
    constants.O_APPEND |
    constants.O_CREAT |
    (process.platform === 'win32' ? 0 : constants.O_NOFOLLOW);
  let descriptor: number | undefined;
  let size = 0;

  const open = (): void => {
    descriptor = openSync(file, flags, 0o600);
    size = fstatSync(descriptor).size;
  };
  const close = (): void => {
    if (descriptor !== undefined) closeSync(descriptor);
    descriptor = undefined;
  };
  const rotate = (): void => {
    close();
    for (let i = keep; i >= 1; i--) {
      try {
        renameSync(i === 1 ? file : `${file}.${i - 1}`, `${file}.${i}`);
      } catch {
        // That generation does not exist yet.
      }
    }
    open();
  };

  return {
    log(level, message, data) {
      if (rank[level] < rank[least]) return;
      const line = `${render({ at: new Date(now()).toISOString(), level, pid: process.pid, message, data })}\n`;
      try {
        if (descriptor === undefined) open();
        if (size > 0 && size + line.length > maxBytes) rotate();
        if (descriptor !== undefined) size += writeSync(descriptor, line);
      } catch {
        // A full disk must not stop a settlement; the evidence log reports it where it matters.
      }
    },
    close,
  };
}
