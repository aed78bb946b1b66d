import { isAbsolute } from 'node:path';
import { EngineFault } from './engine-fault.ts';

export type EngineAddress =
  | { readonly kind: 'socket'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

/**
 * Where the engine listens: what a machine setting names, else DOCKER_HOST, else the platform's default. A remote
 * engine is only used when the setting names it: an environment variable alone must not move work off the machine.
 * Throws EngineFault `unsupported`.
 */
export function engineAddress(
  setting: string | null,
  environment: string | undefined,
  platform: NodeJS.Platform,
): EngineAddress {
  const text = setting ?? environment ?? '';
  if (text === '') {
    return { kind: 'socket', path: platform === 'win32' ? '//./pipe/docker_engine' : '/var/run/docker.sock' };
  }
  if (isAbsolute(text)) return { kind: 'socket', path: text };
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new EngineFault('unsupported', `${text} is no address of a container engine`);
  }
  if (url.protocol === 'unix:') return { kind: 'socket', path: decodeURIComponent(url.pathname) };
  if (url.protocol === 'npipe:') return { kind: 'socket', path: text.slice('npipe://'.length) };
  if ((url.protocol === 'tcp:' || url.protocol === 'http:') && url.port !== '') {
    const loopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
    if (setting === null && !loopback) {
      throw new EngineFault(
        'unsupported',
        `${text} is on another machine; only a machine setting may name such an engine`,
      );
    }
    return { kind: 'tcp', host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) };
  }
  throw new EngineFault('unsupported', `${url.protocol} addresses of container engines are not supported`);
}
