// Which engine is used, and that nothing but a machine setting moves work to another machine.
import { describe, expect, it } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { EngineFault } from '../../../src/server/sandbox/engine-fault.ts';
import { chooseEngine, engineChoice, type EngineSurroundings } from '../../../src/server/sandbox/engine-choice.ts';

const around = (parts: {
  env?: Record<string, string>;
  files?: Record<string, string>;
  sockets?: readonly string[];
}): EngineSurroundings => ({
  env: parts.env ?? {},
  platform: 'linux',
  homeFolder: '/home/u',
  read: (path) => parts.files?.[path],
  exists: (path) => parts.sockets?.includes(path) === true,
});
const context = (name: string, host: string, folder = '/home/u/.docker') => ({
  [`${folder}/config.json`]: JSON.stringify({ auths: {}, currentContext: name }),
  [`${folder}/contexts/meta/${sha256(name)}/meta.json`]: JSON.stringify({
    Name: name,
    Endpoints: { docker: { Host: host, SkipTLSVerify: false } },
  }),
});
const socket = (path: string) => ({ kind: 'socket', path });

describe('the choice of an engine', () => {
  it('is the setting, before everything else', () => {
    const files = context('colima', 'unix:///home/u/.colima/docker.sock');
    const env = { DOCKER_HOST: 'unix:///env.sock' };
    expect(chooseEngine('/set.sock', around({ env, files }))).toEqual(socket('/set.sock'));
    expect(chooseEngine(null, around({ env, files }))).toEqual(socket('/env.sock'));
  });
  it('is the user’s docker context', () => {
    const files = context('colima', 'unix:///home/u/.colima/docker.sock');
    expect(chooseEngine(null, around({ files, sockets: ['/var/run/docker.sock'] }))).toEqual(
      socket('/home/u/.colima/docker.sock'),
    );
  });
  it('is the context of DOCKER_CONTEXT, in the folder of DOCKER_CONFIG', () => {
    const files = context('other', 'tcp://127.0.0.1:2375', '/etc/d');
    const env = { DOCKER_CONFIG: '/etc/d', DOCKER_CONTEXT: 'other' };
    expect(chooseEngine(null, around({ env, files }))).toEqual({ kind: 'tcp', host: '127.0.0.1', port: 2375 });
  });
  it('is never another machine’s by a context, nor one over ssh', () => {
    for (const host of ['tcp://10.0.0.5:2375', 'ssh://me@far']) {
      const choose = () => chooseEngine(null, around({ files: context('far', host) }));
      expect(choose).toThrow(EngineFault);
      expect(choose).toThrow(/docker context far/);
    }
  });
  it('is refused where the context names nothing, rather than another one than the user has chosen', () => {
    const files = { '/home/u/.docker/config.json': '{"currentContext":"lost"}' };
    expect(() => chooseEngine(null, around({ files, sockets: ['/var/run/docker.sock'] }))).toThrow(/lost/);
  });
  it('is Docker’s socket for the default context, an empty or a broken file', () => {
    for (const text of ['{"currentContext":"default"}', '{}', '', '{', '[]']) {
      const files = { '/home/u/.docker/config.json': text };
      expect(chooseEngine(null, around({ files }))).toEqual(socket('/var/run/docker.sock'));
    }
  });
  it('says who named the engine, so that nobody is told to start another one', () => {
    const files = context('colima', 'unix:///home/u/.colima/docker.sock');
    const by = (setting: string | null, env: Record<string, string>, some = files) =>
      engineChoice(setting, around({ env, files: some })).namedBy;
    expect(by('/set.sock', { DOCKER_HOST: 'unix:///env.sock' })).toBe('the machine setting');
    expect(by(null, { DOCKER_HOST: 'unix:///env.sock' })).toBe('DOCKER_HOST');
    expect(by(null, {})).toBe('docker context colima');
    expect(by(null, {}, {})).toBeNull();
  });
  it('is Podman’s socket where Docker has none', () => {
    const env = { XDG_RUNTIME_DIR: '/run/user/7' };
    const user = '/run/user/7/podman/podman.sock';
    expect(chooseEngine(null, around({ env, sockets: [user, '/run/podman/podman.sock'] }))).toEqual(socket(user));
    expect(chooseEngine(null, around({ env, sockets: ['/run/podman/podman.sock'] }))).toEqual(
      socket('/run/podman/podman.sock'),
    );
    expect(chooseEngine(null, around({ env }))).toEqual(socket('/var/run/docker.sock'));
  });
});
