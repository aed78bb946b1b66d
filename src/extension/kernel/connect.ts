import { findOrStartKernel, type KernelSocket } from '../../client/find-kernel.ts';
import { messageTransports } from '../../client/kernel-connection.ts';
import { homePath } from '../../protocol/home.ts';
import type { ClientHello } from '../../protocol/methods.ts';
import type { OpenedConnection } from './kernel-link.ts';

export interface ConnectOptions {
  readonly hello: ClientHello;
  /** `dist/kernel.cjs` of this extension. */
  readonly kernelPath: string;
  /** The machine setting, or empty: then VS Code's own runtime. */
  readonly nodePath: string;
  /** Machine settings as the Kernel's variables; they count for a Kernel that this call starts. */
  readonly environment: Readonly<Record<string, string>>;
  readonly autostart: boolean;
  readonly signal: AbortSignal;
}

/** Finds or starts the Kernel of this user. Throws EscrowError. */
export async function connectKernel(options: ConnectOptions): Promise<OpenedConnection> {
  const own = options.nodePath === '';
  const kernel: KernelSocket = await findOrStartKernel({
    home: homePath(),
    hello: options.hello,
    kernelPath: options.kernelPath,
    nodePath: own ? process.execPath : options.nodePath,
    electron: own && process.versions['electron'] !== undefined,
    environment: options.environment,
    autostart: options.autostart,
    signal: options.signal,
  });
  return {
    transports: messageTransports(kernel),
    kernelVersion: kernel.welcome.version,
    updatePending: kernel.updatePending,
    end: () => {
      kernel.socket.end();
      kernel.socket.destroySoon();
    },
  };
}
