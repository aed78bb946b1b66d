import { createHash, type Hash } from 'node:crypto';
import { EscrowError } from '../../protocol/errors.ts';
import type { ArtefactRef, Sha256 } from '../../protocol/primitives.ts';
import { storageFault } from './faults.ts';
import type { FileLayer, GrowingFile } from './file-layer.ts';
import type { Intake } from './port.ts';

/** Up to here a file waits in memory: most small ones are as they were and never need one on the disk. */
const smallBytes = 64 * 1024;
/** What one intake holds in memory at most. */
const heldBytes = 4 * 1024 * 1024;

/** A file on the disk under a name of its own, still open. */
export interface TemporaryFile {
  readonly path: string;
  readonly file: GrowingFile;
}

/** What an artefact is made of: bytes in memory, or a temporary file that has them. */
export type Content = Uint8Array | TemporaryFile;

export interface Item {
  readonly hash: Sha256;
  readonly size: number;
  readonly content: Content;
}

/** What an intake asks of its store; all of it concerns one owner. */
export interface IntakeParts {
  readonly files: FileLayer;
  /** A path for a temporary file. */
  readonly temporary: () => string;
  /** Counts so many bytes as under way. Throws EscrowError StorageFull where there is no room, or what reading says. */
  readonly reserve: (size: number) => void;
  readonly release: (size: number) => void;
  /** Whether it counts as kept for the owner already. */
  readonly kept: (hash: Sha256) => boolean;
  /** Takes what was reserved for them over in the same step. What of the contents it did not use is left as it is. */
  readonly put: (items: readonly Item[]) => Promise<void>;
  readonly at: (point: string) => void;
}

/** A file while it comes. Without content its bytes are only hashed, for the reason that `refused` says. */
interface Arrival {
  readonly size: number;
  readonly hash: Hash;
  filled: number;
  content: Content | undefined;
  refused: Error | undefined;
}

/** A way into the store for one collection. The store makes it. */
export function createIntake(parts: IntakeParts): Intake {
  const { files, at } = parts;
  let coming: Arrival | undefined;
  const whole = new Map<Sha256, Arrival>();
  const refusals = new Map<Sha256, Error | undefined>();
  let held = 0;
  let over = false;

  /** Its content, which is nobody's then, nor anything reserved for it. */
  const taken = (arrival: Arrival): Content | undefined => {
    const { content, size } = arrival;
    if (content === undefined) return undefined;
    arrival.content = undefined;
    if (content instanceof Uint8Array) held -= size;
    parts.release(size);
    return content;
  };

  const letGo = (arrival: Arrival): void => discard(taken(arrival));

  const contentFor = (size: number): Content => {
    if (size <= smallBytes && held + size <= heldBytes) {
      held += size;
      return Buffer.allocUnsafeSlow(size);
    }
    const path = parts.temporary();
    at('intake-before-file');
    const file = files.grow(path);
    at('intake-file');
    return { path, file };
  };

  const begin = (size: number): Arrival => {
    const arrival: Arrival = { size, hash: createHash('sha256'), filled: 0, content: undefined, refused: undefined };
    if (over) return arrival;
    if (coming !== undefined) letGo(coming);
    coming = arrival;
    try {
      parts.reserve(size);
    } catch (error) {
      arrival.refused = fault(error);
      return arrival;
    }
    try {
      arrival.content = contentFor(size);
    } catch (error) {
      parts.release(size);
      arrival.refused = fault(error);
    }
    return arrival;
  };

  const add = (arrival: Arrival, bytes: Uint8Array): void => {
    const { content, filled, size } = arrival;
    if (filled + bytes.byteLength > size) throw new RangeError('more bytes than were announced');
    arrival.filled += bytes.byteLength;
    arrival.hash.update(bytes);
    if (content === undefined) return;
    try {
      if (content instanceof Uint8Array) content.set(bytes, filled);
      else content.file.append(bytes);
    } catch (error) {
      arrival.refused = fault(error);
      letGo(arrival);
    }
    at('intake-added');
  };

  const end = (arrival: Arrival): ArtefactRef => {
    if (arrival.filled < arrival.size) throw new RangeError('not all bytes have come');
    const hash = arrival.hash.digest('hex') as Sha256;
    // One that was let go meanwhile is not asked for any more.
    if (coming === arrival) {
      coming = undefined;
      if (arrival.content === undefined) refusals.set(hash, arrival.refused);
      else if (whole.has(hash) || isKept(hash)) letGo(arrival);
      else whole.set(hash, arrival);
    }
    at('intake-whole');
    return { sha256: hash, size: arrival.size };
  };

  /** One that can't be looked up is not let go for it: what is wrong will be heard when it is kept. */
  const isKept = (hash: Sha256): boolean => {
    try {
      return parts.kept(hash);
    } catch {
      return false;
    }
  };

  const startOver = (): void => {
    if (coming !== undefined) letGo(coming);
    for (const arrival of whole.values()) letGo(arrival);
    coming = undefined;
    whole.clear();
    refusals.clear();
  };

  const refusal = (hash: Sha256): Error | undefined => {
    if (whole.has(hash) || isKept(hash)) return undefined;
    const reason = refusals.get(hash);
    if (reason !== undefined) return reason;
    return new EscrowError('NotFound', `Artefact ${hash} is not among what came in.`, 'Collect it again.', {
      sha256: hash,
    });
  };

  const drop = (): void => {
    over = true;
    startOver();
  };

  return {
    file(size) {
      const arrival = begin(size);
      return { add: (bytes) => add(arrival, bytes), whole: () => end(arrival) };
    },
    startOver,
    refusal,
    async commit(wanted) {
      const refused = wanted.map(refusal).find((reason) => reason !== undefined);
      const names = new Set(refused === undefined ? wanted : []);
      const items: Item[] = [];
      for (const [hash, arrival] of whole) {
        const { size } = arrival;
        const content = names.has(hash) ? taken(arrival) : undefined;
        if (content !== undefined) items.push({ hash, size, content });
      }
      drop();
      if (refused !== undefined) throw refused;
      try {
        // Without a pause since what was reserved for them was released.
        await parts.put(items);
      } finally {
        for (const { content } of items) discard(content);
      }
    },
    drop,
  };
}

function fault(error: unknown): Error {
  const named = storageFault(error, 'keeping what is collected');
  return named instanceof Error ? named : new Error('not kept', { cause: error });
}

function discard(content: Content | undefined): void {
  if (content !== undefined && !(content instanceof Uint8Array)) content.file.discard();
}
