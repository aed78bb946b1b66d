// Installing npm packages with the real npm from a registry of this test: a package whose scripts would act.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { installNpm } from '../../../src/server/dependencies/install-npm.ts';
import { findNpm, runClient } from '../../../src/server/dependencies/package-client.ts';

const run = promisify(execFile);

let folder: string;
let server: Server;
let canary: string;
let lock: object;
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-npm-'));
  canary = path.join(folder, 'canary');
  const scripts = Object.fromEntries(
    ['preinstall', 'install', 'postinstall', 'prepare'].map((name) => [name, `echo ${name} >> ${canary}`]),
  );
  const manifest = { name: 'eager', version: '1.0.0', scripts };
  await mkdir(path.join(folder, 'package'));
  await writeFile(path.join(folder, 'package', 'package.json'), JSON.stringify(manifest));
  await writeFile(path.join(folder, 'package', 'index.js'), 'module.exports = 1;\n');
  await run('tar', ['-czf', 'eager.tgz', 'package'], { cwd: folder });
  const archive = await readFile(path.join(folder, 'eager.tgz'));
  const integrity = `sha512-${createHash('sha512').update(archive).digest('base64')}`;
  let host = '';
  server = createServer((request, response) => {
    if (request.url?.endsWith('.tgz') === true) response.end(archive);
    else if (request.url === '/eager') {
      const dist = { tarball: `${host}/eager.tgz`, integrity };
      response.setHeader('content-type', 'application/json');
      response.end(
        JSON.stringify({
          name: 'eager',
          'dist-tags': { latest: '1.0.0' },
          versions: { '1.0.0': { ...manifest, hasInstallScript: true, dist } },
        }),
      );
    } else response.writeHead(404).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  host = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  // The user's own configuration says where packages come from.
  await writeFile(path.join(folder, '.npmrc'), `registry=${host}/\n`);
  vi.stubEnv('HOME', folder);
  lock = {
    name: 'one',
    version: '1.0.0',
    lockfileVersion: 3,
    packages: {
      '': { name: 'one', version: '1.0.0', dependencies: { eager: '1.0.0' } },
      'node_modules/eager': { version: '1.0.0', integrity, hasInstallScript: true },
    },
  };
});
afterEach(async () => {
  vi.unstubAllEnvs();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

const manifest = JSON.stringify({ name: 'one', version: '1.0.0', dependencies: { eager: '1.0.0' } });
const inTime = (): AbortSignal => AbortSignal.timeout(100_000);

test('no script of a package is run, and its files are there', async () => {
  const own = path.join(folder, 'own');
  await mkdir(own);
  const tree = await installNpm({
    folder: own,
    lock: { path: 'package-lock.json', bytes: Buffer.from(JSON.stringify(lock)) },
    manifests: [{ path: 'package.json', bytes: Buffer.from(manifest) }],
    platform: { architecture: 'amd64', libc: null, python: null },
    signal: inTime(),
  });
  expect(await readFile(path.join(tree, 'node_modules/eager/index.js'), 'utf8')).toContain('exports');
  expect(existsSync(canary)).toBe(false);
});

test('the same package acts where its scripts may run (control)', async () => {
  const plain = path.join(folder, 'plain');
  await mkdir(plain);
  await writeFile(path.join(plain, 'package-lock.json'), JSON.stringify(lock));
  await writeFile(path.join(plain, 'package.json'), manifest);
  const env = { HOME: folder, PATH: process.env['PATH'] ?? '' };
  await runClient(await findNpm(), ['ci', '--no-audit', '--no-update-notifier'], { cwd: plain, env, signal: inTime() });
  expect(await readFile(canary, 'utf8')).toContain('postinstall');
});
