import { lookup as dnsLookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { BlockList, isIP } from 'node:net';

/** An inference host that may be spoken to. */
export interface InferenceHost {
  /** As shown and recorded: scheme, host and port, e.g. `http://127.0.0.1:11434`. */
  readonly origin: string;
  readonly protocol: 'http:' | 'https:';
  readonly hostname: string;
  readonly port: number;
  /** True where the connection is bound to a loopback address whatever the name resolves to. */
  readonly loopbackOnly: boolean;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** True for 127.0.0.0/8 and ::1 (also as ::ffff:127.…), false for every name. */
export function isLoopbackAddress(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return loopback.check(address, 'ipv4');
  if (family === 6) return loopback.check(address, 'ipv6');
  return false;
}

/** Ollama's own port where the text names none. */
export const ollamaPort = 11_434;

/**
 * Reads a host as people write it (`127.0.0.1:11434`, `http://localhost:11434/`, `[::1]`). Anything that is not
 * loopback is refused unless `allowRemote`, which only a machine setting may say. Throws a plain Error whose message
 * says what is wrong.
 */
export function parseHost(text: string, allowRemote = false, portOtherwise = ollamaPort): InferenceHost {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  let url: URL;
  try {
    url = new URL(withScheme);
  } catch {
    throw new Error(`"${text}" is not a host`);
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new Error(`"${text}" is neither http nor https`);
  if (url.username !== '' || url.password !== '') throw new Error('a host with a user name or password is refused');
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new Error(`"${text}" has a path; only scheme, host and port are read`);
  const bare = url.hostname.replace(/^\[|\]$/g, '');
  // "every address" is how a server listens, not where a client connects; ours is loopback then.
  const hostname = bare === '0.0.0.0' ? '127.0.0.1' : bare === '::' ? '::1' : bare;
  const named = hostname === 'localhost' || hostname.endsWith('.localhost');
  const loopbackOnly = named || isLoopbackAddress(hostname);
  if (!loopbackOnly && !allowRemote) throw new Error(`${hostname} is not a loopback address`);
  const explicitPort = /:(\d+)\/?$/.exec(withScheme)?.[1];
  const port = explicitPort === undefined ? portOtherwise : Number(explicitPort);
  const shown = hostname.includes(':') ? `[${hostname}]` : hostname;
  return { origin: `${url.protocol}//${shown}:${port}`, protocol: url.protocol, hostname, port, loopbackOnly };
}

/** Resolves names, but only ever to loopback addresses: a hosts file or a resolver cannot move the engine elsewhere. */
export const loopbackLookup: LookupFunction = (hostname, options, callback) => {
  dnsLookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) {
      callback(error, '', 0);
      return;
    }
    const first = addresses.find((a) => isLoopbackAddress(a.address));
    if (first === undefined) {
      callback(Object.assign(new Error(`${hostname} does not resolve to loopback`), { code: 'ENOTLOOPBACK' }), '', 0);
      return;
    }
    if (options.all === true) callback(null, [first]);
    else callback(null, first.address, first.family);
  });
};
