import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { endpointFile, publishEndpoint, readEndpoint, retractEndpoint } from '../../../src/protocol/endpoint.ts';
import { processStart, processState } from '../../../src/protocol/process-identity.ts';
import { compareVersions, productVersion } from '../../../src/protocol/version.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(path.join(os.tmpdir(), 'escrow-endpoint-'));
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

const endpoint = {
  pid: 1234,
  processStart: 'boot:5',
  instanceId: 'instance-1',
  protocol: { min: 1, max: 1 },
  path: '/x/y.sock',
  token: 'ab'.repeat(32),
  version: '0.1.0',
};

test('an endpoint is read as it was published, whole and closed to others', async () => {
  await publishEndpoint(home, endpoint);
  expect(await readEndpoint(home)).toEqual(endpoint);
  expect((await stat(endpointFile(home))).mode & 0o777).toBe(0o600);
  expect(await readdir(home)).toEqual(['endpoint.json']);
  await retractEndpoint(home);
  await retractEndpoint(home);
  expect(await readEndpoint(home)).toBeUndefined();
});

test('members of a newer Kernel are ignored; what is not an endpoint counts as none', async () => {
  await writeFile(endpointFile(home), JSON.stringify({ ...endpoint, invented: 1 }));
  expect(await readEndpoint(home)).toEqual(endpoint);
  for (const text of [
    '',
    '{',
    '[]',
    JSON.stringify({ ...endpoint, token: 'short' }),
    JSON.stringify({ ...endpoint, pid: -1 }),
  ]) {
    await writeFile(endpointFile(home), text);
    expect(await readEndpoint(home), text).toBeUndefined();
  }
});

test('readers at the same time see the old or the new endpoint, never a part', async () => {
  await publishEndpoint(home, endpoint);
  const done = new AbortController();
  const writing = (async () => {
    for (let i = 0; i < 50; i++) await publishEndpoint(home, { ...endpoint, path: '/'.repeat(1 + i * 50) });
    done.abort();
  })();
  while (!done.signal.aborted) expect(await readEndpoint(home)).toBeDefined();
  await writing;
});

test('a process is told from another that got its number', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
  const pid = child.pid!;
  const start = await processStart(pid);
  expect(start).toBeDefined();
  expect(await processState(pid, start!)).toBe('alive');
  expect(await processState(pid, 'boot:1')).toBe('dead');
  expect(await processState(pid, null)).toBe('unknown');
  const gone = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill('SIGKILL');
  await gone;
  expect(await processState(pid, start!)).toBe('dead');
  expect(await processStart(pid)).toBeUndefined();
});

test('versions are compared by their numbers', () => {
  const sorted = ['0.1.0', '0.2.0', '0.10.0', '1.0.0', '1.0.1'];
  expect(sorted.toReversed().toSorted(compareVersions)).toEqual(sorted);
  expect(compareVersions('1.2', '1.2.0')).toBe(0);
  expect(compareVersions('1.2.0-rc.1', '1.2.0')).toBe(0);
});

test('the version in the code is the one of the package', () => {
  const manifest = JSON.parse(readFileSync(path.resolve(import.meta.dirname, '../../../package.json'), 'utf8')) as {
    version: string;
  };
  expect(productVersion).toBe(manifest.version);
});
