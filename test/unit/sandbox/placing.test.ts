// How files come into a sandbox: read as they are sent, a few MiB ahead of what was answered. The supervisor is a list of
// requests that are answered one by one.
import { expect, it } from 'vitest';
import { manifestDigest, type Policy } from '../../../src/protocol/executor.ts';
import { digestOf, sha256 } from '../../../src/protocol/hash.ts';
import type { FileEntry, RelPath } from '../../../src/protocol/primitives.ts';
import type { Channel } from '../../../src/server/sandbox/channel.ts';
import { place } from '../../../src/server/sandbox/placing.ts';

const mebibyte = 1024 * 1024;
const policy: Policy = { readable: [], writable: [], scratch: [], commands: [] };
const fileOf = (n: number, size: number): FileEntry => ({
  path: `f${n}` as RelPath,
  mode: 0o644,
  size,
  sha256: sha256(`${n}`),
});

/** Gives what was asked in its order, the most bytes in memory at once, and how it ended. */
async function placing(files: readonly FileEntry[], damaged?: FileEntry) {
  const asked: string[] = [];
  const held = { now: 0, most: 0 };
  const waiting: (() => void)[] = [];
  const request = (op: string, { path = '', size = 0 }: { path?: string; size?: number }): Promise<unknown> => {
    asked.push(`${op} ${path}`.trim());
    return new Promise((resolve) => {
      waiting.push(() => {
        if (op === 'place') held.now -= size;
        const bytes = files.reduce((sum, file) => sum + file.size, 0);
        const sealed = { files: files.length, manifest: manifestDigest(files), bytes };
        resolve({ result: op === 'open' ? { policy: digestOf(policy) } : sealed });
      });
      // An answer comes only after everything that can be sent was sent.
      setTimeout(() => waiting.shift()?.(), 0);
    });
  };
  const bytesOf = (file: FileEntry): Promise<Uint8Array> => {
    held.now += file.size;
    held.most = Math.max(held.most, held.now);
    if (file.path === damaged?.path) return Promise.reject(new Error(`${file.path} is damaged`));
    return Promise.resolve(new Uint8Array(file.size));
  };
  const channel = { request: request as unknown as Channel['request'] };
  const ended = await place(channel, policy, { files, bytesOf }, (step) => step).then(
    (placed) => placed,
    (error: unknown) => String(error),
  );
  return { asked, most: held.most, ended };
}

it('asks for all files in their order, with no more than 8 MiB of them in memory', async () => {
  const files = Array.from({ length: 40 }, (_, n) => fileOf(n, mebibyte));
  const { asked, most, ended } = await placing(files);
  expect(asked).toEqual(['open', ...files.map(({ path }) => `place ${path}`), 'seal']);
  expect(ended).toEqual({ files: 40, bytes: 40 * mebibyte });
  expect(most).toBe(8 * mebibyte);
});

it('has a larger file in memory alone', async () => {
  const { most, ended } = await placing([1, 20, 1, 0, 12].map((size, n) => fileOf(n, size * mebibyte)));
  expect(ended).toEqual({ files: 5, bytes: 34 * mebibyte });
  expect(most).toBe(20 * mebibyte);
});

it('ends with what a file could not be read for', async () => {
  const files = [0, 1, 2].map((n) => fileOf(n, 10));
  const { asked, ended } = await placing(files, files[1]);
  expect(ended).toBe('Error: f1 is damaged');
  expect(asked).toEqual(['open', 'place f0']);
});
