import { closeSync, constants, openSync, readFileSync, writeSync } from 'node:fs';
import {
  auditGenesis,
  auditNextText,
  auditText,
  channelBounds,
  type AuditEntry,
  type AuditMark,
} from '../protocol/executor.ts';
import type { Sha256 } from '../protocol/primitives.ts';

/** Room that is kept for the entries that end an attempt, however full the log is. */
const reserveBytes = 64 * 1024;

/**
 * The supervisor's side of the audit: an append-only file of its own (root, 0600, in a folder that the worker can't
 * enter) and the head of the hash chain.
 */
export class AuditLog {
  readonly #file: number;
  readonly #path: string;
  #entries = 0;
  #bytes = 0;
  #head: Sha256;

  /** Throws where the file exists already or can't be made. */
  constructor(path: string, nonce: string) {
    this.#path = path;
    this.#file = openSync(
      path,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND | constants.O_NOFOLLOW,
      0o600,
    );
    this.#head = auditGenesis(nonce);
  }

  get entries(): number {
    return this.#entries;
  }

  get head(): Sha256 {
    return this.#head;
  }

  /** No further work may start: what it did could not be recorded. */
  get full(): boolean {
    return this.#bytes > channelBounds.auditBytes - reserveBytes;
  }

  /** Throws when the entry can't be written whole; the chain then stays where it was. */
  append(entry: Omit<AuditEntry, 'n' | 'at'>): AuditMark {
    const n = this.#entries + 1;
    const at = Math.round(performance.now() * 1000) / 1000;
    const whole: AuditEntry = { n, at, ...entry };
    const text = auditText(whole);
    const h = auditNextText(this.#head, text);
    const line = Buffer.from(`${text.slice(0, -1)},"h":"${h}"}\n`);
    if (writeSync(this.#file, line) !== line.length) throw new Error('the audit log could not be written whole');
    this.#entries = n;
    this.#bytes += line.length;
    this.#head = h;
    return { n, at, h };
  }

  read(): Buffer {
    return readFileSync(this.#path);
  }

  close(): void {
    closeSync(this.#file);
  }
}
