import path from 'node:path';
import { extract, type ExtractEvents } from 'tar-stream';
import type { ImagePlatform } from '../dependencies/platform.ts';
import type { ContainerEngine } from './engine.ts';

/** An interpreter or a C library; more is not read. */
const maxFileBytes = 64 * 1024 * 1024;

/** A file of a container that was never started, by whatever links a path leads to it. */
export async function followFile(
  engine: ContainerEngine,
  container: string,
  start: string,
): Promise<{ readonly file: string; readonly bytes: Buffer } | undefined> {
  const file = await engine.followPath(container, start);
  const archive = file === undefined ? undefined : await engine.getFiles(container, file);
  if (file === undefined || archive === undefined) return undefined;
  const reader = extract();
  archive.on('error', (error) => reader.destroy(error)).pipe(reader);
  try {
    for await (const entry of reader as AsyncIterable<ExtractEvents['entry'][1]>) {
      const { type, size } = entry.header;
      if (type !== 'file' || (size ?? 0) > maxFileBytes) return undefined;
      const parts: Buffer[] = [];
      for await (const part of entry as unknown as AsyncIterable<Buffer>) parts.push(part);
      return { file, bytes: Buffer.concat(parts) };
    }
    return undefined;
  } finally {
    archive.destroy();
    reader.destroy();
  }
}

const triplets = { amd64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' } as const;
const muslNames = { amd64: 'x86_64', arm64: 'aarch64' } as const;

/**
 * What packages with compiled code have to fit, from the files of a container that was never started. Nothing of the
 * image is run. Null for a processor that is not known.
 */
export async function readPlatform(
  engine: ContainerEngine,
  container: string,
  architecture: string,
): Promise<ImagePlatform | null> {
  if (architecture !== 'amd64' && architecture !== 'arm64') return null;
  return {
    architecture,
    libc: await readLibc(engine, container, architecture),
    python: await readPython(engine, container),
  };
}

async function readLibc(
  engine: ContainerEngine,
  container: string,
  architecture: 'amd64' | 'arm64',
): Promise<ImagePlatform['libc']> {
  for (const folder of [
    `/lib/${triplets[architecture]}`,
    `/usr/lib/${triplets[architecture]}`,
    '/lib64',
    '/usr/lib64',
  ]) {
    const found = await followFile(engine, container, `${folder}/libc.so.6`);
    const version =
      found === undefined ? null : /GNU C Library [^\0]*?version (\d+)\.(\d+)/.exec(found.bytes.toString('latin1'));
    if (version !== null) return { kind: 'glibc', major: Number(version[1]), minor: Number(version[2]) };
  }
  const musl = await followFile(engine, container, `/lib/ld-musl-${muslNames[architecture]}.so.1`);
  // Wheels know musl 1.1 and 1.2; 1.2 has been everywhere since 2020.
  return musl === undefined ? null : { kind: 'musl', major: 1, minor: 2 };
}

async function readPython(engine: ContainerEngine, container: string): Promise<ImagePlatform['python']> {
  for (const folder of ['/usr/local/bin', '/usr/bin']) {
    const program = `${folder}/python3`;
    const found = await followFile(engine, container, program);
    const minor = found === undefined ? undefined : /\/python3\.(\d+)$/.exec(found.file)?.[1];
    if (found === undefined || minor === undefined) continue;
    const exact = new RegExp(`\\0(3\\.${minor}\\.\\d+)\\0`);
    const prefix = path.posix.dirname(folder);
    // A Python that is built as a library has its version there.
    const library = await followFile(engine, container, `${prefix}/lib/libpython3.${minor}.so.1.0`);
    const full = [found.bytes, library?.bytes].flatMap((bytes) => {
      const match = bytes === undefined ? null : exec(exact, bytes);
      return match === null ? [] : [match];
    })[0];
    return { program, minor: Number(minor), full: full ?? `3.${minor}.0` };
  }
  return null;
}

function exec(pattern: RegExp, bytes: Buffer): string | null {
  return pattern.exec(bytes.toString('latin1'))?.[1] ?? null;
}
