import type { Socket } from 'node:net';

/** Bytes of one line of the handshake, without its end. */
export const maxLineBytes = 4096;

/** No whole line came: the connection ended, failed or was silent. Says nothing about who was on the other side. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost';
}

/**
 * Reads one line from a socket that nobody else reads, and leaves everything after it in the socket, which is then
 * neither flowing nor paused: the next reader just attaches. Rejects when the line is too long, not UTF-8, when the
 * socket ends first, or when the signal aborts.
 */
export function readLine(socket: Socket, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    let held: Buffer = Buffer.alloc(0);
    const finish = (outcome: () => void): void => {
      socket.off('readable', onReadable);
      socket.off('end', onEnd);
      socket.off('close', onEnd);
      socket.off('error', onError);
      signal.removeEventListener('abort', onAbort);
      outcome();
    };
    const onReadable = (): void => {
      for (;;) {
        const chunk = socket.read() as Buffer | null;
        if (chunk === null) return;
        const seen = held.length;
        held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
        const end = held.indexOf(0x0a, seen);
        if (end > maxLineBytes || (end < 0 && held.length > maxLineBytes)) {
          finish(() => reject(new Error(`a line is longer than ${maxLineBytes} bytes`)));
          return;
        }
        if (end < 0) continue;
        const line = held.subarray(0, end);
        const rest = held.subarray(end + 1);
        finish(() => {
          if (rest.length > 0) socket.unshift(rest);
          try {
            resolve(new TextDecoder('utf-8', { fatal: true }).decode(line));
          } catch {
            reject(new Error('a line is not UTF-8'));
          }
        });
        return;
      }
    };
    const onEnd = (): void => finish(() => reject(new ConnectionLost('the other side ended the connection')));
    const onError = (error: Error): void => finish(() => reject(new ConnectionLost(error.message, { cause: error })));
    const onAbort = (): void => finish(() => reject(new ConnectionLost('the other side did not answer in time')));
    if (signal.aborted) {
      onAbort();
      return;
    }
    signal.addEventListener('abort', onAbort, { once: true });
    socket.on('end', onEnd);
    socket.on('close', onEnd);
    socket.on('error', onError);
    socket.on('readable', onReadable);
  });
}

/** Writes one line; the caller has checked its size. */
export function writeLine(socket: Socket, value: unknown): void {
  socket.write(`${JSON.stringify(value)}\n`);
}
