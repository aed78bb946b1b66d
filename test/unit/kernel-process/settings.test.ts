import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { defaultSettings, isLoopback, readSettings } from '../../../src/server/settings.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(path.join(os.tmpdir(), 'escrow-settings-'));
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});
const write = (value: unknown) =>
  writeFile(path.join(home, 'settings.json'), typeof value === 'string' ? value : JSON.stringify(value));
const invalid = expect.objectContaining({ code: 'InvalidSettings' });

test('without a file and variables the defaults hold', async () => {
  expect(await readSettings(home, {})).toEqual(defaultSettings);
  expect(defaultSettings).toMatchObject({
    graceMs: 20_000,
    inferenceHost: 'http://127.0.0.1:11434',
    executionEnabled: true,
  });
});

test('the file overrides defaults, variables override the file, empty variables say nothing', async () => {
  await write({ graceMs: 5, engineHost: '/x.sock', executionEnabled: false });
  expect(await readSettings(home, { ESCROW_GRACE_MS: '7', ESCROW_ENGINE_HOST: '' })).toMatchObject({
    graceMs: 7,
    engineHost: '/x.sock',
    executionEnabled: false,
  });
  expect(await readSettings(home, { ESCROW_EXECUTION_ENABLED: 'true' })).toMatchObject({ executionEnabled: true });
});

test.for([
  ['what is not JSON', '{'],
  ['an unknown member', { grace: 5 }],
  ['a wrong type', { graceMs: '5' }],
  ['a negative time', { idleExitMs: -1 }],
  ['a URL that is none', { inferenceHost: 'localhost' }],
  ['a URL of another kind', { inferenceHost: 'file:///etc/passwd' }],
] as const)('%s in the file is refused', async ([, value]) => {
  await write(value);
  await expect(readSettings(home, {})).rejects.toEqual(invalid);
});

test.for([
  ['ESCROW_GRACE_MS', 'soon'],
  ['ESCROW_EXECUTION_ENABLED', 'maybe'],
  ['ESCROW_INFERENCE_HOST', 'x'],
] as const)('%s=%s is refused', async ([name, value]) => {
  await expect(readSettings(home, { [name]: value })).rejects.toEqual(invalid);
});

test('another machine for inference counts from the file, never from a variable', async () => {
  const host = 'http://10.0.0.5:11434';
  await expect(readSettings(home, { ESCROW_INFERENCE_HOST: host })).rejects.toEqual(invalid);
  await write({ inferenceHost: host });
  expect(await readSettings(home, {})).toMatchObject({ inferenceHost: host });
});

test('only the machine itself is loopback', () => {
  const yes = ['http://127.0.0.1:1', 'http://127.9.9.9', 'http://localhost:2', 'http://[::1]:3', 'http://LOCALHOST'];
  const no = [
    'http://127.0.0.1.example.com',
    'http://localhost.example.com',
    'http://0.0.0.0',
    'http://[::2]',
    'http://user@10.0.0.1',
  ];
  expect(yes.filter((url) => !isLoopback(url))).toEqual([]);
  expect(no.filter((url) => isLoopback(url))).toEqual([]);
});
