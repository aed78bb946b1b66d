import { EscrowError } from '../../protocol/errors.ts';

const fullCodes = new Set(['SQLITE_FULL', 'ENOSPC', 'EDQUOT']);
const unwritable =
  /^(SQLITE_(READONLY|IOERR|CANTOPEN|PERM|PROTOCOL|NOLFS)|EROFS$|EACCES$|EPERM$|EIO$|ENXIO$|ENODEV$|EMFILE$|ENFILE$|ELOOP$|ENOTDIR$)/;

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;

/**
 * Turns what SQLite or the file system says into the coded error a person can act on: StorageFull or
 * StorageUnwritable, which names a disk that can't be read as well. Anything else is returned as it came: a defect, or
 * already typed.
 */
export function storageFault(error: unknown, what: string, failed: 'written' | 'read' = 'written'): unknown {
  const code = codeOf(error);
  if (code === undefined || EscrowError.is(error)) return error;
  if (fullCodes.has(code)) {
    return new EscrowError(
      'StorageFull',
      `No space left while ${what}.`,
      'Free space on the disk of the state folder.',
      {
        reason: 'disk',
        cause: code,
      },
    );
  }
  // SQLite says the same of a page that the disk would not give and of one that it gave otherwise than it was written.
  if (code.startsWith('SQLITE_CORRUPT') || code.startsWith('SQLITE_NOTADB')) return damaged(what, { cause: code });
  if (unwritable.test(code)) {
    return new EscrowError(
      'StorageUnwritable',
      `The state folder could not be ${failed} while ${what}.`,
      'Check the permissions and health of the disk that holds the state folder.',
      { reason: 'unwritable', cause: code },
    );
  }
  return error;
}

/** Of a database that is not, or can't be read, as it was written. */
export function damaged(what: string, found: Readonly<Record<string, string>>): EscrowError {
  return new EscrowError(
    'StorageUnwritable',
    `The state database is damaged, or its disk can’t be read (${what}).`,
    'Check the health of the disk that holds the state folder; where it is well, restore a backup (escrow kernel restore).',
    { reason: 'damaged', ...found },
  );
}

/** Runs a synchronous storage step; throws the typed fault. */
export function guarded<T>(what: string, step: () => T, failed: 'written' | 'read' = 'written'): T {
  try {
    return step();
  } catch (error) {
    throw storageFault(error, what, failed);
  }
}

/** The same of a step that only reads. */
export function guardedRead<T>(what: string, step: () => T): T {
  return guarded(what, step, 'read');
}
