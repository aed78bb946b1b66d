import { Agent, type ClientRequestArgs } from 'node:http';
import { connect, type IpcNetConnectOpts, type Socket, type TcpNetConnectOpts } from 'node:net';
import type { Duplex } from 'node:stream';

/** As much as a local socket holds on Linux (net.core.rmem_default is 208 KiB): one call takes all that waits. */
const readBytes = 256 * 1024;

/**
 * Connections that can read into one buffer again and again: for streams that carry a workspace, which would otherwise
 * leave as many bytes behind in small pieces, and have the garbage collector run several times while it is read.
 */
export class ReusedReads extends Agent {
  readonly #reused = new WeakSet<Duplex>();

  /**
   * From now on a chunk of this connection is valid during its `data` event only. What comes while nobody listens is
   * kept as usual. Without effect on a stream that is not of this agent.
   */
  begin(stream: Duplex): void {
    this.#reused.add(stream);
  }

  override createConnection(options: ClientRequestArgs): Socket {
    const socket: Socket = connect({
      ...(options as TcpNetConnectOpts | IpcNetConnectOpts),
      onread: {
        buffer: Buffer.allocUnsafeSlow(readBytes),
        callback: (length, buffer) => {
          const chunk = Buffer.from(buffer.buffer, buffer.byteOffset, length);
          const listened = socket.readableFlowing === true && socket.readableLength === 0;
          if (!listened || !this.#reused.has(socket)) return socket.push(Buffer.from(chunk));
          socket.emit('data', chunk);
          return true;
        },
      },
    });
    return socket;
  }
}
