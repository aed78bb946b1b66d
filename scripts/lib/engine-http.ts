import http from 'node:http';
import { SetupError } from './ui.ts';

/** How the container engine is reached: `DOCKER_HOST`, else the platform's default socket. */
export type EngineAddress =
  | { readonly kind: 'socket'; readonly path: string; readonly named: boolean }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly named: true };

/** The engine's address from the environment. Throws SetupError for forms that cannot be used. */
export function engineAddress(env: NodeJS.ProcessEnv = process.env): EngineAddress {
  const host = env['DOCKER_HOST'];
  if (host === undefined || host === '') {
    const path = process.platform === 'win32' ? '//./pipe/docker_engine' : '/var/run/docker.sock';
    return { kind: 'socket', path, named: false };
  }
  const socket = /^(?:unix|npipe):\/\/(.+)$/.exec(host);
  if (socket?.[1] !== undefined) return { kind: 'socket', path: socket[1], named: true };
  const tcp = /^(?:tcp|http):\/\/([^/:]+):(\d+)\/?$/.exec(host);
  if (tcp?.[1] !== undefined) return { kind: 'tcp', host: tcp[1], port: Number(tcp[2]), named: true };
  throw new SetupError(
    `DOCKER_HOST is ${host}, which is no local socket, pipe or TCP address`,
    'Unset DOCKER_HOST, or point it at a socket: unix:///path',
  );
}

export interface EngineAnswer {
  readonly status: number;
  readonly body: string;
}

/** One request to the engine's HTTP API, 10 s at most. Rejects with the system's error when it does not answer. */
export function engineRequest(address: EngineAddress, method: string, path: string): Promise<EngineAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<EngineAnswer>();
  const request = http.request(
    {
      method,
      path,
      timeout: 10_000,
      ...(address.kind === 'socket' ? { socketPath: address.path } : { host: address.host, port: address.port }),
    },
    (response) => {
      const parts: Buffer[] = [];
      response.on('data', (chunk: Buffer) => parts.push(chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: Buffer.concat(parts).toString('utf8') }),
      );
      response.on('error', reject);
    },
  );
  request.on('timeout', () => request.destroy(new Error('no answer within 10 s')));
  request.on('error', reject);
  request.end();
  return promise;
}

/** The engine's version, or the code of the system error that stands in the way (`ENOENT`, `EACCES`, …). */
export async function pingEngine(
  address: EngineAddress,
): Promise<
  | { readonly ok: true; readonly version: string }
  | { readonly ok: false; readonly code: string; readonly message: string }
> {
  try {
    const answer = await engineRequest(address, 'GET', '/version');
    if (answer.status !== 200) return { ok: false, code: `HTTP${answer.status}`, message: answer.body.slice(0, 200) };
    const { Version } = JSON.parse(answer.body) as { Version?: string };
    return { ok: true, version: Version ?? 'unknown' };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return { ok: false, code: code ?? 'unknown', message };
  }
}

/** Names of all containers, running or not, that carry a label (`key` or `key=value`). */
export async function containersWithLabel(address: EngineAddress, label: string): Promise<readonly string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
  const answer = await engineRequest(address, 'GET', `/containers/json?all=1&filters=${filters}`);
  if (answer.status !== 200)
    throw new Error(`the container engine answered ${answer.status}: ${answer.body.slice(0, 200)}`);
  const list = JSON.parse(answer.body) as readonly { readonly Names?: readonly string[]; readonly Id: string }[];
  return list.map((container) => container.Names?.[0]?.replace(/^\//, '') ?? container.Id);
}
