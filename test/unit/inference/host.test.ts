import { describe, expect, test } from 'vitest';
import { canonicalTag, isCloudName, isWellFormedTag } from '../../../src/server/inference/cloud.ts';
import { isLoopbackAddress, parseHost } from '../../../src/server/inference/host.ts';
import { isSupportedVersion } from '../../../src/server/inference/wire.ts';

describe('hosts', () => {
  test.each([
    ['127.0.0.1:11434', 'http://127.0.0.1:11434'],
    ['127.0.0.1', 'http://127.0.0.1:11434'],
    ['http://localhost:8080/', 'http://localhost:8080'],
    ['http://127.0.0.1:80', 'http://127.0.0.1:80'],
    ['0.0.0.0:11434', 'http://127.0.0.1:11434'],
    ['[::1]:11434', 'http://[::1]:11434'],
    ['127.9.9.9:1', 'http://127.9.9.9:1'],
  ])('%s', (text, origin) => {
    expect(parseHost(text).origin).toBe(origin);
  });

  test('a remote host only where a setting allows it', () => {
    expect(() => parseHost('http://gpu.example:11434')).toThrow('not a loopback address');
    expect(parseHost('http://gpu.example:11434', true)).toMatchObject({ hostname: 'gpu.example', loopbackOnly: false });
  });

  test('loopback is decided by address', () => {
    expect(['127.0.0.1', '127.255.0.1', '::1', '::ffff:127.0.0.1'].every(isLoopbackAddress)).toBe(true);
    expect(['128.0.0.1', '10.0.0.1', '::2', 'localhost', '127.0.0.1.example'].some(isLoopbackAddress)).toBe(false);
  });
});

describe('names', () => {
  test.each([
    ['qwen3:4b', false],
    ['nextcloud:7b', false],
    ['cloudy:latest', false],
    ['qwen3:cloud', true],
    ['qwen3:480b-cloud', true],
    ['QWEN3:CLOUD', true],
    ['x-cloud', true],
    ['library/x-cloud:latest', true],
    [' qwen3:cloud ', true],
  ])('%s is cloud: %s', (tag, expected) => {
    expect(isCloudName(tag)).toBe(expected);
  });

  test('well-formed tags', () => {
    expect(['qwen3', 'qwen3:4b', 'hf.co/user/Model-GGUF:Q4_K_M', 'host:5000/a/b:c'].every(isWellFormedTag)).toBe(true);
    expect(['', 'a b', '../x', 'x\n', 'a:b:c', '-x', 'x/../y', 'x'.repeat(600)].some(isWellFormedTag)).toBe(false);
  });

  test('names compare as the engine compares them', () => {
    expect(canonicalTag('Qwen3')).toBe(canonicalTag('qwen3:latest'));
    expect(canonicalTag('host:5000/x')).toBe('host:5000/x:latest');
  });

  test.each([
    ['0.30.0', true],
    ['0.33.1-rc2', true],
    ['1.0.0', true],
    ['0.29.9', false],
    ['0.9.6', false],
    ['newest', false],
  ])('version %s', (version, supported) => {
    expect(isSupportedVersion(version)).toBe(supported);
  });
});
