import { EscrowError } from '../../protocol/errors.ts';

const fullCodes = new Set(['SQLITE_FULL', 'ENOSPC', 'EDQUOT']);
const unwritable =
  /^(SQLITE_(READONLY|IOERR|CANTOPEN|PERM|CORRUPT|NOTADB|PROTOCOL|NOLFS)|EROFS$|EACCES$|EPERM$|EIO$|ENXIO$|ENODEV$|EMFILE$|ENFILE$|ELOOP$|ENOTDIR$)/;

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;

/**
 * Turns what SQLite or the file system says into the coded error a person can act on: StorageFull or
 * StorageUnwritable. Anything else is returned as it came: a defect, or already typed.
 */
export function storageFault(error: unknown, what: string): unknown {
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
  if (unwritable.test(code)) {
    const damaged = code.startsWith('SQLITE_CORRUPT') || code.startsWith('SQLITE_NOTADB');
    return new EscrowError(
      'StorageUnwritable',
      damaged ? `The state database is damaged (${what}).` : `The state folder could not be written while ${what}.`,
      damaged
        ? 'Restore a copy from the backups folder of the state folder.'
        : 'Check the permissions and health of the disk that holds the state folder.',
      { reason: damaged ? 'damaged' : 'unwritable', cause: code },
    );
  }
  return error;
}

/** Runs a synchronous storage step; throws the typed fault. */
export function guarded<T>(what: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    throw storageFault(error, what);
  }
}
