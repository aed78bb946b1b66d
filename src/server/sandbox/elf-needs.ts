import { open, type FileHandle } from 'node:fs/promises';

/** What a program needs of the system that starts it. */
export interface ProgramNeeds {
  /** Path of the loader; null for a static program, which needs nothing. */
  readonly loader: string | null;
  /** Each library by its name, with the versions of symbols that it has to have. */
  readonly libraries: ReadonlyMap<string, readonly string[]>;
}

/** Names and tables of a program are short; a longer one is none of ours. */
const maxTableBytes = 4 * 1024 * 1024;

/** Of the ELF format: kinds of segments, and tags of the dynamic table. */
const segment = { load: 1, dynamic: 2, loader: 3 } as const;
const tag = { needed: 1, strings: 5, stringsSize: 10, versions: 0x6fff_fffe, versionCount: 0x6fff_ffff } as const;

interface Segment {
  readonly kind: number;
  readonly offset: number;
  readonly address: number;
  readonly size: number;
}

/** Reads a 64-bit little-endian ELF program: its headers and its tables, not its code. Throws for anything else. */
export async function needsOf(path: string): Promise<ProgramNeeds> {
  const file = await open(path);
  try {
    const header = await bytesAt(file, 0, 64);
    if (header.toString('latin1', 0, 6) !== '\u007fELF\u0002\u0001') throw new Error(`${path} is no 64-bit program`);
    const segments = await segmentsOf(file, header);
    const loader = segments.find(({ kind }) => kind === segment.loader);
    const dynamic = segments.find(({ kind }) => kind === segment.dynamic);
    if (loader === undefined || dynamic === undefined) return { loader: null, libraries: new Map() };
    return {
      loader: textAt(await bytesAt(file, loader.offset, loader.size), 0),
      libraries: await librariesOf(file, segments, await bytesAt(file, dynamic.offset, dynamic.size)),
    };
  } finally {
    await file.close();
  }
}

async function segmentsOf(file: FileHandle, header: Buffer): Promise<readonly Segment[]> {
  const entryBytes = header.readUInt16LE(54);
  const count = header.readUInt16LE(56);
  const table = await bytesAt(file, Number(header.readBigUInt64LE(32)), entryBytes * count);
  return Array.from({ length: count }, (_, index) => {
    const at = index * entryBytes;
    return {
      kind: table.readUInt32LE(at),
      offset: Number(table.readBigUInt64LE(at + 8)),
      address: Number(table.readBigUInt64LE(at + 16)),
      size: Number(table.readBigUInt64LE(at + 32)),
    };
  });
}

async function librariesOf(
  file: FileHandle,
  segments: readonly Segment[],
  dynamic: Buffer,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const entries: { readonly tag: number; readonly value: number }[] = [];
  for (let at = 0; at + 16 <= dynamic.length; at += 16) {
    entries.push({ tag: Number(dynamic.readBigInt64LE(at)), value: Number(dynamic.readBigUInt64LE(at + 8)) });
  }
  const valueOf = (wanted: number): number => entries.find((entry) => entry.tag === wanted)?.value ?? 0;
  /** Addresses are those in memory; the file has them at the offset of their segment. */
  const offsetOf = (address: number): number => {
    const within = segments.find(
      ({ kind, address: start, size }) => kind === segment.load && address >= start && address < start + size,
    );
    if (within === undefined) throw new Error('a table outside of the program');
    return within.offset + address - within.address;
  };
  const strings = await bytesAt(file, offsetOf(valueOf(tag.strings)), valueOf(tag.stringsSize));
  const names = entries.filter((entry) => entry.tag === tag.needed).map(({ value }) => textAt(strings, value));
  const libraries = new Map<string, readonly string[]>(names.map((name) => [name, []]));
  let at = valueOf(tag.versions) === 0 ? 0 : offsetOf(valueOf(tag.versions));
  // One record a library, behind it one a version; each says how far it is to the next.
  for (let left = valueOf(tag.versionCount); left > 0; left -= 1) {
    const library = await bytesAt(file, at, 16);
    const versions: string[] = [];
    let versionAt = at + library.readUInt32LE(8);
    for (let more = library.readUInt16LE(2); more > 0; more -= 1) {
      const version = await bytesAt(file, versionAt, 16);
      versions.push(textAt(strings, version.readUInt32LE(8)));
      versionAt += version.readUInt32LE(12);
    }
    libraries.set(textAt(strings, library.readUInt32LE(4)), versions);
    at += library.readUInt32LE(12);
  }
  return libraries;
}

async function bytesAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  if (length > maxTableBytes) throw new Error('a table that is too long');
  const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, position);
  if (bytesRead !== length) throw new Error('the program is cut');
  return buffer;
}

function textAt(bytes: Buffer, start: number): string {
  return bytes.toString('latin1', start, bytes.indexOf(0, start));
}
