// What Podman is asked for, and how what it says is read, without an engine.
import { describe, expect, it } from 'vitest';
import type { InspectedContainer } from '../../../src/server/sandbox/engine.ts';
import { asDockerSays, podmanShape } from '../../../src/server/sandbox/podman.ts';
import { bounded, createOptions } from '../../../src/server/sandbox/profile.ts';

const wanted = createOptions(bounded, { name: 'c', image: 'i', labels: {}, nonce: 'n', engineCpus: 2 });

const seen = (hostConfig: object): InspectedContainer => ({
  id: 'c',
  name: 'c',
  state: 'running',
  running: true,
  pid: 1,
  exitCode: null,
  oomKilled: false,
  finishedAt: null,
  createdAt: 0,
  labels: {},
  environment: [],
  image: 'i',
  mounts: 0,
  networks: [],
  hostConfig,
});

describe('namespaces on Podman', () => {
  it('are asked for by name: what is not said is what the user’s settings make of it', () => {
    const { options } = podmanShape(wanted, bounded, '/filter.json');
    expect(options.HostConfig).toMatchObject({
      PidMode: 'private',
      UTSMode: 'private',
      IpcMode: 'private',
      NetworkMode: 'none',
    });
  });

  it.each([
    ['private', ''],
    ['host', 'host'],
    ['container:other', 'container:other'],
  ])('of processes: %s is read as %j', async (said, read) => {
    expect((await asDockerSays(seen({ PidMode: said }), bounded)).hostConfig.PidMode).toBe(read);
  });
});
