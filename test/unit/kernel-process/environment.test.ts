import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { kernelEnvironment } from '../../../src/client/kernel-environment.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { EngineFault } from '../../../src/server/sandbox/engine-fault.ts';
import { chooseEngine } from '../../../src/server/sandbox/engine-choice.ts';
import { nativeFileName, shippedBinding } from '../../../src/server/store/native.ts';
import { leftOut } from '../../fixtures/left-out.ts';

test.skipIf(process.platform === 'win32')(
  `a Kernel gets a fixed environment, whatever the window has${leftOut.posix}`,
  () => {
    const from = {
      PATH: '/evil',
      USER: 'me',
      XDG_RUNTIME_DIR: '/run/user/1000',
      VSCODE_IPC_HOOK_CLI: '/x',
      ELECTRON_RUN_AS_NODE: '1',
      NODE_OPTIONS: '--require /evil.js',
      NODE_EXTRA_CA_CERTS: '/x',
      HTTPS_PROXY: 'http://proxy',
      AWS_SECRET_ACCESS_KEY: 'secret',
      LD_PRELOAD: '/evil.so',
      OLLAMA_HOST: 'http://elsewhere',
      ESCROW_INFERENCE_HOST: 'http://elsewhere',
    };
    const made = kernelEnvironment({ home: '/h', electron: false, from });
    expect(Object.keys(made).toSorted()).toEqual(['ESCROW_HOME', 'HOME', 'LANG', 'PATH', 'USER', 'XDG_RUNTIME_DIR']);
    expect(made).toMatchObject({ ESCROW_HOME: '/h', USER: 'me', HOME: os.homedir() });
    expect(made['PATH']).not.toContain('evil');
  },
);

test.skipIf(process.platform === 'win32')(
  `a Kernel uses the container engine that its user has chosen, as far as it is on this machine${leftOut.posix}`,
  () => {
    const chosen = (env: Record<string, string>, files: Record<string, string> = {}): unknown =>
      chooseEngine(null, {
        env: kernelEnvironment({ home: '/h', electron: true, from: env }),
        platform: 'linux',
        homeFolder: '/home/u',
        read: (file) => files[file],
        exists: (file) => file === '/var/run/docker.sock',
      });
    const meta = `/etc/d/contexts/meta/${sha256('colima')}/meta.json`;
    const files = { [meta]: JSON.stringify({ Endpoints: { docker: { Host: 'unix:///colima.sock' } } }) };
    expect(chosen({ DOCKER_HOST: 'unix:///mine.sock' })).toEqual({ kind: 'socket', path: '/mine.sock' });
    expect(chosen({ DOCKER_CONTEXT: 'colima', DOCKER_CONFIG: '/etc/d' }, files)).toEqual({
      kind: 'socket',
      path: '/colima.sock',
    });
    expect(chosen({})).toEqual({ kind: 'socket', path: '/var/run/docker.sock' });
    // Nothing falls back to another engine than the chosen one, and nothing leaves the machine by a variable.
    for (const far of ['tcp://10.0.0.5:2375', 'ssh://me@far'])
      expect(() => chosen({ DOCKER_HOST: far })).toThrow(EngineFault);
  },
);

test("only VS Code's own runtime is told to be Node", () => {
  expect(kernelEnvironment({ home: '/h', electron: true })).toMatchObject({ ELECTRON_RUN_AS_NODE: '1' });
  expect(kernelEnvironment({ home: '/h', electron: false, extra: { A: 'b' } })).toMatchObject({ A: 'b' });
});

test('the binding beside a bundle is the one of this platform, and only when it is there', () => {
  expect(nativeFileName({ platform: 'linux', arch: 'x64', musl: true })).toBe('linuxmusl-x64.node');
  expect(nativeFileName({ platform: 'darwin', arch: 'arm64', musl: false })).toBe('darwin-arm64.node');
  const dist = mkdtempSync(path.join(os.tmpdir(), 'escrow-dist-'));
  try {
    expect(shippedBinding(dist)).toBeUndefined();
    const name = nativeFileName({ platform: process.platform, arch: process.arch, musl: false });
    mkdirSync(path.join(dist, 'prebuilds'));
    writeFileSync(path.join(dist, 'prebuilds', name), '');
    writeFileSync(path.join(dist, 'prebuilds', name.replace('linux-', 'linuxmusl-')), '');
    expect(path.dirname(shippedBinding(dist) ?? '')).toBe(path.join(dist, 'prebuilds'));
  } finally {
    rmSync(dist, { recursive: true, force: true });
  }
});
