import { describe, expect, it } from 'vitest';
import { engineAddress } from '../../../src/server/sandbox/engine-address.ts';
import { EngineFault } from '../../../src/server/sandbox/engine-fault.ts';

describe('engineAddress', () => {
  it('takes the platform’s default where nothing is named', () => {
    expect(engineAddress(null, undefined, 'linux')).toEqual({ kind: 'socket', path: '/var/run/docker.sock' });
    expect(engineAddress(null, '', 'win32')).toEqual({ kind: 'socket', path: '//./pipe/docker_engine' });
  });
  it.each([
    ['unix:///run/user/1000/podman/podman.sock', { kind: 'socket', path: '/run/user/1000/podman/podman.sock' }],
    ['/run/x.sock', { kind: 'socket', path: '/run/x.sock' }],
    ['npipe:////./pipe/other', { kind: 'socket', path: '//./pipe/other' }],
    ['tcp://127.0.0.1:2375', { kind: 'tcp', host: '127.0.0.1', port: 2375 }],
    ['tcp://[::1]:2375', { kind: 'tcp', host: '::1', port: 2375 }],
  ])('reads %s from the environment', (text, address) => {
    expect(engineAddress(null, text, 'linux')).toEqual(address);
  });
  it('prefers the setting', () => {
    expect(engineAddress('/a.sock', 'unix:///b.sock', 'linux')).toEqual({ kind: 'socket', path: '/a.sock' });
  });
  it('uses another machine only where the setting names it', () => {
    expect(engineAddress('tcp://10.0.0.5:2375', undefined, 'linux')).toMatchObject({ host: '10.0.0.5' });
    expect(() => engineAddress(null, 'tcp://10.0.0.5:2375', 'linux')).toThrow(EngineFault);
  });
  it.each(['ssh://user@host', 'nonsense', 'tcp://127.0.0.1'])('refuses %s', (text) => {
    expect(() => engineAddress(null, text, 'linux')).toThrow(EngineFault);
  });
});
