/** What a caught value says, for a record or a log: nothing says that only errors are thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
