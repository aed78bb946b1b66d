import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openFileLog } from '../../../src/server/log.ts';

let folder: string;
const file = (): string => path.join(folder, 'kernel.log');
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'escrow-log-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});
const lines = (): Record<string, unknown>[] =>
  readFileSync(file(), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

test('each entry is one line of JSON, errors with their stack, hostile text escaped', () => {
  const { log, close } = openFileLog({ file: file(), now: () => 0 });
  log('info', 'two\nlines', { text: '\u001B[31m' });
  log('error', 'failed', { error: new TypeError('why') });
  log('debug', 'not wanted');
  close();
  expect(lines()).toMatchObject([
    { at: '1970-01-01T00:00:00.000Z', level: 'info', message: 'two\nlines', data: { text: '\u001B[31m' } },
    {
      level: 'error',
      data: { error: { name: 'TypeError', message: 'why', stack: expect.stringContaining('log.test.ts') } },
    },
  ]);
  expect(readFileSync(file(), 'utf8')).not.toContain('\u001B');
  expect(statSync(file()).mode & 0o777).toBe(0o600);
});

test('size and number of files are bounded', () => {
  const { log, close } = openFileLog({ file: file(), now: () => 0, maxBytes: 2000, keep: 2 });
  for (let i = 0; i < 200; i++) log('info', `entry ${i}`, { filler: 'x'.repeat(50) });
  log('info', 'a long one', { filler: 'x'.repeat(1_000_000) });
  close();
  expect(readdirSync(folder).toSorted()).toEqual(['kernel.log', 'kernel.log.1', 'kernel.log.2']);
  for (const name of readdirSync(folder)) expect(statSync(path.join(folder, name)).size).toBeLessThan(20_000);
  expect(lines().at(-1)).toMatchObject({ message: 'a long one', cut: expect.any(String) });
});

test('what cannot be written or serialised never throws', () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const { log } = openFileLog({ file: path.join(folder, 'no', 'such', 'folder'), now: () => 0 });
  log('error', 'lost');
  const real = openFileLog({ file: file(), now: () => 0 });
  real.log('info', 'circular', circular);
  real.close();
  expect(lines()).toMatchObject([{ message: 'circular', data: '<not serialisable>' }]);
});

test('a link in place of the log is not followed', () => {
  const target = path.join(folder, 'target');
  symlinkSync(target, file());
  openFileLog({ file: file(), now: () => 0 }).log('info', 'x');
  expect(readdirSync(folder)).toEqual(['kernel.log']);
});
