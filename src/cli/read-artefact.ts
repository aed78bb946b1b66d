import { EscrowError } from '../protocol/errors.ts';
import type { ArtefactRef } from '../protocol/primitives.ts';
import type { KernelLink } from './kernel-access.ts';

/** The whole of an artefact, in pieces of at most 1 MiB. The Kernel re-hashes it on read. */
export async function readArtefact(kernel: KernelLink, ref: ArtefactRef): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  for (let offset = 0; offset < ref.size;) {
    const { base64 } = await kernel.call('artefact/read', { sha256: ref.sha256, offset });
    const part = Buffer.from(base64, 'base64');
    if (part.length === 0)
      throw new EscrowError(
        'ArtefactDamaged',
        `artefact ${ref.sha256} ends at ${offset} of ${ref.size} bytes`,
        'See what is damaged with: escrow kernel verify',
      );
    parts.push(part);
    offset += part.length;
  }
  return Buffer.concat(parts);
}
