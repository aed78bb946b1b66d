import { once } from 'node:events';
import type { Header as FoundHeader, Pack } from 'tar-stream';

export type Header = Partial<FoundHeader> & Pick<FoundHeader, 'name'>;

/** Numbers count, names of users would be looked up in the image. */
export const rootOwned = { uid: 0, gid: 0, uname: '', gname: '' } as const;

/** Adds a file whose size the header says. As fast as the archive is read, no faster. */
export async function addStream(archive: Pack, header: Header, content: AsyncIterable<Uint8Array>): Promise<void> {
  const written = new Promise<void>((resolve, reject) => {
    const target = archive.entry(header, (error) => (error ? reject(error) : resolve()));
    void feed(target, content).catch(reject);
  });
  await written;
}

async function feed(target: ReturnType<Pack['entry']>, content: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of content) {
    if (!target.write(chunk)) await once(target as unknown as NodeJS.EventEmitter, 'drain');
  }
  target.end(null);
}

export async function addBytes(archive: Pack, header: Header, bytes: Buffer): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    archive.entry({ ...header, size: bytes.length }, bytes, (error) => (error ? reject(error) : resolve()));
  });
}

/** A folder or a link. */
export async function addEmpty(archive: Pack, header: Header): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    archive.entry({ ...header, size: 0 }, (error) => (error ? reject(error) : resolve()));
  });
}
