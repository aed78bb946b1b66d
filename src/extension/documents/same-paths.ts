import { realpathSync } from 'node:fs';
import path from 'node:path';

/**
 * A path as the file system has it: links resolved, letters as they are stored where their case does not matter. For a
 * file that is not there, its folder's; unchanged where even that is not there.
 */
export function realPath(file: string): string {
  for (const [folder, rest] of [
    [file, ''],
    [path.dirname(file), path.basename(file)],
  ] as const) {
    try {
      return path.join(realpathSync.native(folder), rest);
    } catch {
      continue;
    }
  }
  return path.resolve(file);
}

/**
 * Those of `asked` that name the same file as one of `files`, as they were asked. The Kernel knows a repository by its
 * real path; a window may have opened it through a link.
 */
export function samePaths(
  asked: readonly string[],
  files: readonly string[],
  real: (file: string) => string,
): readonly string[] {
  // Mostly nothing is unsaved: then no disk is touched.
  if (files.length === 0) return [];
  const held = new Set(files.map(real));
  return asked.filter((file) => held.has(real(file)));
}
