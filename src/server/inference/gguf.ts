import { open } from 'node:fs/promises';

/** What a model file says of itself, read by this host; null where it does not say. */
export interface GgufFacts {
  readonly architecture: string | null;
  readonly name: string | null;
  /** `gpt2` is byte-level BPE, `llama` is SentencePiece with byte fallback; both make at most one token a byte. */
  readonly tokenizer: string | null;
  readonly contextLength: number | null;
}

/** The vocabulary of a big model takes some 8 MiB; what is wanted stands before or shortly after it. */
const mostRead = 33_554_432;
const mostEntries = 4096;

/** Sizes of GGUF's fixed types by number; strings (8) and arrays (9) carry their own. */
const sizes: Readonly<Record<number, number>> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };

class End extends Error {}

/** Reads the metadata of a GGUF file (versions 2 and 3); null where the file is none. Throws what opening throws. */
export async function readGguf(path: string): Promise<GgufFacts | null> {
  const handle = await open(path, 'r');
  let bytes: Buffer;
  try {
    const { size } = await handle.stat();
    bytes = Buffer.alloc(Math.min(size, mostRead));
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
    bytes = bytes.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
  return parseGguf(bytes);
}

/** The same from the beginning of a file's bytes; what lies beyond them is not there. Pure. */
export function parseGguf(bytes: Buffer): GgufFacts | null {
  if (bytes.length < 24 || bytes.toString('latin1', 0, 4) !== 'GGUF') return null;
  const version = bytes.readUInt32LE(4);
  if (version !== 2 && version !== 3) return null;
  let at = 8;
  const need = (n: number): number => {
    const from = at;
    if (n < 0 || from + n > bytes.length) throw new End();
    at = from + n;
    return from;
  };
  const count = (): number => {
    const value = bytes.readBigUInt64LE(need(8));
    if (value > BigInt(mostRead)) throw new End();
    return Number(value);
  };
  const string = (): string => {
    const length = count();
    const from = need(length);
    return bytes.toString('utf8', from, from + length);
  };
  const value = (type: number, depth: number): string | number | null => {
    if (type === 8) return string();
    if (type === 9) {
      if (depth > 2) throw new End();
      const inner = bytes.readUInt32LE(need(4));
      const length = count();
      const fixed = sizes[inner];
      if (fixed !== undefined) need(fixed * length);
      else for (let i = 0; i < length; i += 1) value(inner, depth + 1);
      return null;
    }
    const size = sizes[type];
    if (size === undefined) throw new End();
    const from = need(size);
    if (type === 4) return bytes.readUInt32LE(from);
    if (type === 10) return Number(bytes.readBigUInt64LE(from));
    return null;
  };
  const found = new Map<string, string | number>();
  try {
    count(); // tensors
    const entries = Math.min(count(), mostEntries);
    for (let i = 0; i < entries; i += 1) {
      const key = string();
      const read = value(bytes.readUInt32LE(need(4)), 0);
      if (read !== null) found.set(key, read);
    }
  } catch (error) {
    // A file that is cut or longer than what is read: what was found so far stands.
    if (!(error instanceof End)) throw error;
  }
  const text = (key: string): string | null => {
    const held = found.get(key);
    return typeof held === 'string' ? held.slice(0, 200) : null;
  };
  const architecture = text('general.architecture');
  const context = found.get(`${architecture}.context_length`);
  return {
    architecture,
    name: text('general.name'),
    tokenizer: text('tokenizer.ggml.model'),
    contextLength: typeof context === 'number' ? context : null,
  };
}
