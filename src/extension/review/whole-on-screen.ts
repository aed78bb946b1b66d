import type { CandidateFile } from '../../protocol/views.ts';
import type { ArtefactUri } from '../uris.ts';

/**
 * Whether every side of every file of a candidate is among what is shown, in exactly the bytes that the Kernel names: the
 * snapshot's side alone, or other bytes under the same path, are not what would be decided about. Pure.
 */
export function wholeOnScreen(files: readonly CandidateFile[], shown: readonly ArtefactUri[]): boolean {
  return files.every((file) =>
    (['before', 'after'] as const).every((side) => {
      const artefact = file[side];
      const those = shown.filter((uri) => uri.kind === 'candidate' && uri.side === side && uri.path === file.path);
      // Compared with anything but nothing, a new file would look as if it had been there.
      if (artefact === null) return those.every(({ size }) => size === 0);
      return those.some(({ sha256, size }) => sha256 === artefact.sha256 && size === artefact.size);
    }),
  );
}
