// verify, backup, restore and prune by the built command line against the built Kernel. No container engine is needed.
import { mkdtemp, rm } from 'node:fs/promises';
import { existsSync, readdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { escrow, type CliResult } from '../../../scripts/lib/cli.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { endKernel, makeHome } from '../../fixtures/kernel.ts';
import { fillStore } from '../../fixtures/session-crowd.ts';

let home: string;
let outside: string;
/** Events that the home begins with. */
let events: number;
const cli = (...args: readonly string[]): Promise<CliResult> => escrow(args, { cwd: outside, home });
const errorCode = (result: CliResult): string => (result.value as { error: { code: string } }).error.code;

beforeEach(async () => {
  home = await makeHome();
  outside = await mkdtemp(path.join(os.tmpdir(), 'escrow-backups-'));
  const store = openStore({ home, now: () => Date.now() - 90 * 86_400_000 });
  events = fillStore(store, { sessions: 3, events: 60 });
  await store.artefacts.put(Buffer.from('bytes'), 'contract:x');
  store.close();
});
afterEach(async () => {
  await endKernel(home);
  await rm(home, { recursive: true, force: true });
  await rm(outside, { recursive: true, force: true });
});

it('a backup is announced, made, verified and brought back; what was there is kept', async () => {
  expect(await cli('kernel', 'verify')).toMatchObject({ code: 0, value: { whole: true, events, artefacts: 1 } });
  expect(await cli('kernel', 'backup')).toMatchObject({ code: 0, value: { folder: null, events, artefacts: 1 } });
  const folder = path.join(outside, 'b');
  expect(existsSync(folder)).toBe(false);
  expect(await cli('kernel', 'backup', folder)).toMatchObject({ code: 0, value: { folder, events } });
  // While a Kernel runs, and without a yes, nothing is replaced.
  expect((await cli('kernel', 'restore', folder)).code).toBe(2);
  const busy = await cli('kernel', 'restore', folder, '--yes');
  expect([busy.code, errorCode(busy)]).toEqual([3, 'AnotherKernel']);
  await cli('kernel', 'stop');

  const restored = await cli('kernel', 'restore', folder, '--yes');
  expect(restored).toMatchObject({ code: 0, value: { events, artefacts: 1 } });
  expect(readdirSync((restored.value as { former: string }).former)).toContain('escrow.db');
  expect(await cli('kernel', 'verify')).toMatchObject({ code: 0, value: { whole: true, events } });
  const status = (await cli('kernel', 'status')).value as { epoch: number };
  expect(status.epoch).toBeGreaterThan(2);
  const missing = await cli('kernel', 'restore', path.join(outside, 'none'), '--yes');
  expect(missing.code).not.toBe(0);
});

it('damage is found by name, with what to do', async () => {
  const db = new Database(path.join(home, 'escrow.db'));
  db.exec("DROP TRIGGER event_is_kept_as_written; UPDATE event SET data = '{}' WHERE seq = 7");
  db.close();
  const found = await cli('kernel', 'verify');
  expect(found.code).toBe(1);
  expect(found.value).toMatchObject({ whole: false, broken: [{ reason: 'content does not match its hash' }] });
});

it('pruning shows first what would go and why the rest stays; it needs a name to do it', async () => {
  const preview = await cli('kernel', 'prune', '--older-than', '30');
  expect(preview).toMatchObject({ code: 0, value: { applied: false, sessions: [], kept: { undecided: 3 } } });
  expect((await cli('kernel', 'prune')).code).toBe(2);
  expect((await cli('kernel', 'prune', '--older-than', '30', '--apply')).code).toBe(2);
  const applied = await cli('kernel', 'prune', '--older-than', '30', '--apply', '--reviewer', 'ada');
  expect(applied).toMatchObject({ code: 0, value: { applied: false, kept: { undecided: 3 } } });
});

it('a reconciliation needs a wait, a reason and a name', async () => {
  expect((await cli('session', 'reconcile', 'last', '--reviewer', 'ada')).code).toBe(2);
  const none = await cli('session', 'reconcile', 'last', '--why', 'gone', '--reviewer', 'ada', '--yes');
  expect([none.code, errorCode(none)]).toEqual([4, 'WrongState']);
});
