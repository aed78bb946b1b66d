import type { Method, Notification, NotificationParams, Params, Result } from '../protocol/methods.ts';

/** A live connection to the Kernel, as far as commands need it. */
export interface KernelLink {
  call<M extends Method>(
    method: M,
    params: Params<M>,
    options?: {
      readonly signal?: AbortSignal;
      readonly onProgress?: (progress: {
        readonly code: string;
        readonly detail: string;
        readonly percent: number | null;
      }) => void;
    },
  ): Promise<Result<M>>;
  /** Returns the function that ends the subscription. */
  on<N extends Notification>(name: N, listener: (params: NotificationParams<N>) => void): () => void;
  /** Settles when the connection has ended, with the reason in words. */
  readonly ended: Promise<string>;
}

/** How a command reaches the Kernel. Connections are closed by `main.ts`, which owns them. */
export interface KernelAccess {
  /** Finds the Kernel or starts one. Throws EscrowError: NoKernel, VersionMismatch, RuntimeTooOld, Storage… */
  connect(): Promise<KernelLink>;
  /** The running Kernel, or undefined; starts none. Throws EscrowError when one is there but can't be spoken to. */
  find(): Promise<KernelLink | undefined>;
  /** Puts a backup in the place of the state; no Kernel may run. Throws EscrowError AnotherKernel, NotFound, Storage… */
  restore(folder: string): Promise<{
    readonly former: string;
    readonly events: number;
    readonly artefacts: number;
    readonly artefactBytes: number;
  }>;
  /** True once a Kernel was spoken to. */
  readonly connected: boolean;
  /** The state folder and the log file in it. */
  readonly home: string;
  readonly logFile: string;
}
