import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { greetClient } from '../../protocol/handshake.ts';
import { oldestProtocolVersion, protocolVersion } from '../../protocol/methods.ts';
import type { Logger } from '../log.ts';
import { serveConnection, type ClientConnection } from './connection.ts';
import type { DispatchPolicy } from './dispatch.ts';
import type { ConnectedClient, Kernel } from './port.ts';

/** Sockets that may be in the handshake at once, and clients that may be connected. */
const maxStrangers = 64;
const maxClients = 128;

/** Longest path of a Unix socket that every platform takes (macOS: 104 with the end mark). */
const maxSocketPath = 100;

export interface SocketPlace {
  readonly path: string;
  /** A folder made for this socket alone, removed with it. */
  readonly folder: string | undefined;
}

/** A private folder for a socket whose home is too deep: the runtime folder when it is ours and closed, else temporary. */
function runtimeFolder(env: Readonly<Record<string, string | undefined>>): string {
  const runtime = env['XDG_RUNTIME_DIR'];
  if (runtime !== undefined && runtime !== '') {
    try {
      const info = statSync(runtime);
      if (info.isDirectory() && info.uid === process.getuid?.() && (info.mode & 0o077) === 0) return runtime;
    } catch {
      // Not there: fall through.
    }
  }
  return os.tmpdir();
}

/** Removes the socket folders of a home that its dead Kernels left in a folder that others write to as well. */
function removeLeft(parent: string, prefix: string): void {
  for (const name of readdirSync(parent).filter((entry) => entry.startsWith(prefix))) {
    const left = path.join(parent, name);
    try {
      // Not following a link: the name may be somebody else's idea.
      const info = lstatSync(left);
      if (info.isDirectory() && info.uid === process.getuid?.()) rmSync(left, { recursive: true });
    } catch {
      // It stays: no reason not to start.
    }
  }
}

/** Chooses a fresh random path in a folder of mode 0700, and removes sockets that earlier Kernels of this home left. */
export function placeSocket(home: string, env: Readonly<Record<string, string | undefined>>): SocketPlace {
  const name = randomBytes(9).toString('hex');
  if (process.platform === 'win32')
    return { path: `\\\\.\\pipe\\escrow-${randomBytes(16).toString('hex')}`, folder: undefined };
  const run = path.join(home, 'run');
  mkdirSync(run, { recursive: true, mode: 0o700 });
  // The caller holds the lock of the home, so whoever listened here is dead.
  for (const old of readdirSync(run)) rmSync(path.join(run, old), { recursive: true, force: true });
  const usual = path.join(run, `${name}.sock`);
  if (Buffer.byteLength(usual) <= maxSocketPath) return { path: usual, folder: undefined };
  // By the home's name, so that the next Kernel of the home knows what is left of this one.
  const prefix = `escrow-${createHash('sha256').update(home).digest('hex').slice(0, 8)}-`;
  const parent = runtimeFolder(env);
  for (const place of new Set([parent, os.tmpdir()])) removeLeft(place, prefix);
  const folder = mkdtempSync(path.join(parent, prefix));
  return { path: path.join(folder, 'k.sock'), folder };
}

export interface ListenerOptions {
  readonly kernel: Kernel;
  readonly instanceId: string;
  readonly epoch: number;
  readonly version: string;
  readonly policy: DispatchPolicy;
  readonly log: Logger;
  /** Whether the Kernel goes to make room for a newer client of this version; starts the drain when true. */
  readonly drainIfIdle: (clientVersion: string) => boolean;
  /** Called after each connect and disconnect. */
  readonly onClientsChanged: () => void;
  /** Authenticated clients, in the order they came; shared with the composed Kernel. */
  readonly clients: ConnectedClient[];
}

export interface Listener {
  /** The secret that both sides of a handshake know; goes into the endpoint file only. */
  readonly token: string;
  listen(place: SocketPlace): Promise<void>;
  /** Stops listening and ends every connection after what was written has gone out. */
  close(): Promise<void>;
}

/** Accepts sockets, lets only proven clients through, and serves them. */
export function createListener(options: ListenerOptions): Listener {
  const { kernel, log, clients } = options;
  const strangers = new Set<Socket>();
  const connections = new Set<ClientConnection>();
  const token = randomBytes(32).toString('hex');
  let lastConnection = 0;
  let place: SocketPlace | undefined;
  let emptied: (() => void) | undefined;

  const admit = async (socket: Socket): Promise<void> => {
    const greeted = await greetClient(socket, {
      token,
      protocol: { min: oldestProtocolVersion, max: protocolVersion },
      instanceId: options.instanceId,
      epoch: options.epoch,
      version: options.version,
      drainIfIdle: options.drainIfIdle,
      refusal: () => {
        if (options.policy.draining()) {
          return new EscrowError(
            'KernelDraining',
            'The Kernel is settling its work and will end.',
            'Try again in a moment.',
          );
        }
        return clients.length < maxClients
          ? undefined
          : new EscrowError(
              'HandshakeRefused',
              'Too many clients are connected.',
              'Close windows that are not needed.',
            );
      },
    });
    strangers.delete(socket);
    if (greeted === undefined || socket.destroyed) return;
    lastConnection += 1;
    const connection = serveConnection({
      socket,
      connection: lastConnection,
      clientId: greeted.hello.clientId,
      hello: greeted.hello,
      protocol: greeted.protocol,
      kernel,
      policy: options.policy,
      version: options.version,
      log,
      onEnd: (client) => {
        connections.delete(connection);
        const at = clients.indexOf(client);
        if (at >= 0) clients.splice(at, 1);
        log('info', 'client gone', { client: client.clientId, connection: client.connection });
        kernel.clientGone(client);
        options.onClientsChanged();
        if (connections.size === 0) emptied?.();
      },
    });
    connections.add(connection);
    clients.push(connection.client);
    log('info', 'client connected', {
      client: greeted.hello.clientId,
      connection: lastConnection,
      kind: greeted.hello.kind,
    });
    kernel.clientConnected(connection.client);
    options.onClientsChanged();
  };

  const server: Server = createServer((socket) => {
    socket.on('error', (error) => log('debug', 'socket error', { error: error.message }));
    // Whoever has been silent for longest makes room: a crowd that says nothing must not keep a client out.
    if (strangers.size >= maxStrangers) {
      const [oldest] = strangers;
      if (oldest !== undefined) {
        strangers.delete(oldest);
        oldest.destroy();
      }
    }
    strangers.add(socket);
    socket.once('close', () => strangers.delete(socket));
    admit(socket).catch((error: unknown) => {
      log('error', 'a connection could not be served', { error });
      socket.destroy();
    });
  });

  return {
    token,

    async listen(chosen) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      server.once('error', reject);
      server.listen({ path: chosen.path, backlog: 128 }, () => {
        server.off('error', reject);
        server.on('error', (error) => log('error', 'the listener failed', { error }));
        resolve();
      });
      await promise;
      place = chosen;
    },

    async close() {
      server.close();
      for (const socket of strangers) socket.destroy();
      if (connections.size > 0) {
        const { promise, resolve } = Promise.withResolvers<void>();
        emptied = resolve;
        for (const connection of connections) connection.end();
        await promise;
      }
      if (place?.folder !== undefined) rmSync(place.folder, { recursive: true, force: true });
    },
  };
}
