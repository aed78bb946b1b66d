import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Sha256 } from '../../../src/protocol/primitives.ts';
import { artefactAllowance } from '../../../src/server/store/artefacts.ts';
import { openStore } from '../../../src/server/store/open-store.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-killed-'));
});
afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

/** Lets a writer reach a number, kills it at once, and returns the last number that it called durable. */
function writeAndKill(until: number): Promise<number> {
  const writer = spawn(process.execPath, [path.resolve(import.meta.dirname, '../../fixtures/store-writer.ts'), home]);
  let text = '';
  let complaint = '';
  writer.stderr.on('data', (chunk: Buffer) => {
    complaint += chunk.toString();
  });
  writer.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    if (Number(text.trimEnd().split('\n').at(-1)) >= until) writer.kill('SIGKILL');
  });
  return new Promise((resolve, reject) => {
    writer.once('close', (code) => {
      if (code === null) resolve(Number(text.slice(0, text.lastIndexOf('\n')).split('\n').at(-1)));
      else reject(new Error(complaint));
    });
  });
}

test('what was called durable is there after a kill, whole, and nothing of an unfinished write', async () => {
  for (const [i, until] of [7, 31, 64].entries()) {
    const last = await writeAndKill(until);
    const store = openStore({ home, now: () => 1 });
    try {
      expect(store.epoch).toBe(2 * (i + 1));
      expect(store.verifyChains()).toEqual([]);
      const events = store.load('stream');
      expect(events.length).toBeGreaterThan(last);
      expect(store.view('session', 'k')?.json).toBe(events.length - 1);
      for (const event of events) {
        const { n, sha256 } = event.data as { n: number; sha256: Sha256 };
        expect(Buffer.from(await store.artefacts.get(sha256)).toString()).toBe(`artefact ${n}`.repeat(2000));
      }
      expect(readdirSync(path.join(home, 'artefacts', 'tmp'))).toEqual([]);
    } finally {
      store.close();
    }
  }
});

/** All the points that a collection passes, and its two ends. */
const points = [
  'intake-before-file',
  'intake-file',
  'intake-added',
  'intake-whole',
  'intake-dropped',
  'artefact-before-write',
  'artefact-written',
  'artefact-synced',
  'artefact-renamed',
  'artefact-lasting',
  'artefact-before-row',
  'artefact-row',
  'committed',
];

test.each(points)('of what comes piece by piece, a kill at %s leaves all of it or nothing', async (point) => {
  const collector = path.resolve(import.meta.dirname, '../../fixtures/store-collector.ts');
  await expect(promisify(execFile)(process.execPath, [collector, home, point])).rejects.toMatchObject({
    signal: 'SIGKILL',
    stderr: '',
  });
  const store = openStore({ home, now: () => 1 });
  try {
    const folder = path.join(home, 'artefacts');
    expect(readdirSync(path.join(folder, 'tmp'))).toEqual([]);
    await store.artefacts.sweepOrphans();
    const kept = point === 'artefact-row' || point === 'committed';
    expect(await store.artefacts.verify()).toEqual({ checked: kept ? 3 : 0, faults: [] });
    const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    expect(files).toHaveLength(kept ? 3 : 0);
    expect(store.artefacts.room('ses')).toBe(artefactAllowance - (kept ? 301_000 : 0));
  } finally {
    store.close();
  }
});
