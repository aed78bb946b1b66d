// Which version of the engine's interface is spoken: the newest that both know, and none that either has dropped. A real
// socket that answers as engines of other years do.
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { ContainerEngine } from '../../../src/server/sandbox/engine.ts';

let server: Server | undefined;
let folder: string | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => (server === undefined ? resolve(0) : server.close(resolve)));
  if (folder !== undefined) await rm(folder, { recursive: true });
  server = undefined;
  folder = undefined;
});

/** Asks an engine that says this of itself for its containers, and tells which address it was asked at. */
async function asked(version: object): Promise<{ readonly address: string | undefined; readonly error: unknown }> {
  folder = await mkdtemp(path.join(tmpdir(), 'escrow-api-'));
  const socket = path.join(folder, 'engine.sock');
  let address: string | undefined;
  server = createServer((request, response) => {
    const isVersion = request.url === '/version';
    if (!isVersion) address = request.url;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(isVersion ? version : []));
  });
  await new Promise<void>((resolve) => server?.listen(socket, resolve));
  const engine = new ContainerEngine({ kind: 'socket', path: socket });
  const error: unknown = await engine.list(['a=b']).then(
    () => undefined,
    (fault: unknown) => fault,
  );
  return { address, error };
}

describe('the version of the interface', () => {
  it.each([
    ['Docker 20.10, which knows no newer one', { ApiVersion: '1.41', MinAPIVersion: '1.12' }, '/v1.41/'],
    ['Podman 4.3, which says it without a least one', { ApiVersion: '1.41' }, '/v1.41/'],
    ['Docker 27', { ApiVersion: '1.47', MinAPIVersion: '1.24' }, '/v1.47/'],
    ['Docker 29, which wants 1.44', { ApiVersion: '1.52', MinAPIVersion: '1.44' }, '/v1.47/'],
    ['one whose minor has three digits', { ApiVersion: '1.100', MinAPIVersion: '1.44' }, '/v1.47/'],
  ])('of %s', async (_, version, prefix) => {
    const { address, error } = await asked({ Version: 'x', Arch: 'amd64', ...version });
    expect(error).toBeUndefined();
    expect(address?.startsWith(prefix)).toBe(true);
  });

  it.each([
    ['is too old', { ApiVersion: '1.40', MinAPIVersion: '1.12' }],
    ['has dropped what is spoken here', { ApiVersion: '1.60', MinAPIVersion: '1.48' }],
    ['says something else', { ApiVersion: 'latest' }],
  ])('of an engine that %s is none: it is asked for nothing, and both sides’ versions are told', async (_, version) => {
    const { address, error } = await asked({ Version: 'x', Arch: 'amd64', ...version });
    expect(address).toBeUndefined();
    expect(error).toMatchObject({ kind: 'unsupported', message: expect.stringContaining('needed is 1.41 to 1.47') });
  });
});
