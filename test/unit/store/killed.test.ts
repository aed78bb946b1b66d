import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Sha256 } from '../../../src/protocol/primitives.ts';
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
