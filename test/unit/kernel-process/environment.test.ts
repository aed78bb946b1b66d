import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { kernelEnvironment } from '../../../src/client/kernel-environment.ts';
import { nativeFileName, shippedBinding } from '../../../src/server/store/native.ts';

test.skipIf(process.platform === 'win32')('a Kernel gets a fixed environment, whatever the window has', () => {
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
    DOCKER_HOST: 'tcp://elsewhere',
    OLLAMA_HOST: 'http://elsewhere',
    ESCROW_INFERENCE_HOST: 'http://elsewhere',
  };
  const made = kernelEnvironment({ home: '/h', electron: false, from });
  expect(Object.keys(made).toSorted()).toEqual(['ESCROW_HOME', 'HOME', 'LANG', 'PATH', 'USER', 'XDG_RUNTIME_DIR']);
  expect(made).toMatchObject({ ESCROW_HOME: '/h', USER: 'me', HOME: os.homedir() });
  expect(made['PATH']).not.toContain('evil');
});

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
