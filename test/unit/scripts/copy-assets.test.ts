// dist/ is written by builds, set-up and tests, and read by whatever runs from it, at the same time.
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { copyAssets } from '../../../scripts/lib/bundle.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-assets-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const bindings = async (): Promise<readonly string[]> => readdir(path.join(folder, 'prebuilds'));

it('what the bundles read is there all the time while several builds copy it', async () => {
  await copyAssets(folder);
  const [first = ''] = await bindings();
  const binding = path.join(folder, 'prebuilds', first);
  const whole = await readFile(binding);
  const { mtimeMs } = await stat(binding);
  // One that differs is what a build has to write again.
  const example = path.join(folder, 'examples', 'README.md');
  await writeFile(example, 'old');
  const built = Promise.all([copyAssets(folder), copyAssets(folder), copyAssets(folder)]);
  const state = { over: false };
  const over = built.finally(() => {
    state.over = true;
  });
  const seen = new Set<string>();
  while (!state.over) {
    expect(whole.equals(await readFile(binding))).toBe(true);
    seen.add(await readFile(example, 'utf8'));
  }
  await over;
  expect([...seen].every((text) => text === 'old' || text.length > 100)).toBe(true);
  expect((await readFile(example, 'utf8')).length).toBeGreaterThan(100);
  // What was right was not touched.
  expect((await stat(binding)).mtimeMs).toBe(mtimeMs);
});

it('what is no asset any more goes', async () => {
  await copyAssets(folder);
  const before = await bindings();
  await writeFile(path.join(folder, 'prebuilds', 'old-platform.node'), 'x');
  await copyAssets(folder);
  expect(new Set(await bindings())).toEqual(new Set(before));
});
