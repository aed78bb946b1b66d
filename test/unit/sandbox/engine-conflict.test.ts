// A name of a container that somebody else has: it is a lock of preparations, so it must be told from other failures. A
// real socket that answers as engines do.
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { ContainerEngine } from '../../../src/server/sandbox/engine.ts';

const words = (name: string) =>
  `container create: creating container storage: the container name "${name}" is already in use by 1cff7845d24c. You have to remove that container to be able to reuse that name: that name is already in use`;

/** What is thrown where an engine of that make answers a creation so. */
async function refused(makes: readonly string[], status: number, message: string): Promise<unknown> {
  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-api-'));
  const socket = path.join(folder, 'engine.sock');
  const version = { ApiVersion: '1.41', Version: 'x', Arch: 'amd64', Components: makes.map((Name) => ({ Name })) };
  const server = createServer((request, response) => {
    const isVersion = request.url === '/version';
    response.writeHead(isVersion ? 200 : status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isVersion ? version : { message }));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  try {
    return await new ContainerEngine({ kind: 'socket', path: socket }).create({ name: 'taken', Image: 'i' }).then(
      () => undefined,
      (fault: unknown) => fault,
    );
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true });
  }
}

it.each([
  ['Docker says so', ['Engine'], 409, 'Conflict. The container name "/taken" is already in use', 'conflict'],
  ['Podman says so', ['Podman Engine'], 409, words('taken'), 'conflict'],
  ['Podman fails with it, as two ask at once', ['Podman Engine'], 500, words('taken'), 'conflict'],
  ['Podman fails otherwise', ['Podman Engine'], 500, 'creating container storage: no space left', 'refused'],
  ['Docker fails with these words', ['Engine'], 500, words('taken'), 'refused'],
])('a taken name: %s', async (_, makes, status, message, kind) => {
  expect(await refused(makes, status, message)).toMatchObject({ kind });
});
