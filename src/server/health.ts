import { accessSync, constants, statfsSync } from 'node:fs';
import { EscrowError } from '../protocol/errors.ts';
import type { Health, KernelStatus } from '../protocol/status.ts';
import type { Engines } from './engines.ts';
import type { ImageIdentity, SandboxService } from './sandbox/port.ts';
import type { KernelSettings } from './settings.ts';
import type { Store } from './store/port.ts';

type Parts = Pick<KernelStatus, 'engine' | 'image' | 'inference'>;

/** Below this many free bytes the state folder's disk is called degraded: two sessions' allowance of artefacts. */
const lowDisk = 256 * 1024 * 1024;
/** Below this many it is called full: a transaction of a few pages of the database does not fit any more. */
const fullDisk = 64 * 1024;

export interface HealthWatchDeps {
  readonly sandbox: SandboxService;
  readonly engines: Engines;
  readonly settings: KernelSettings;
  readonly store: Store;
  readonly home: string;
  readonly now: () => number;
  readonly changed: () => void;
}

/** The last observation of what the Kernel depends on, each with its time. Never asserts what it has not just seen. */
export class HealthWatch {
  readonly #deps: HealthWatchDeps;
  #parts: Parts;
  #probing: Promise<void> | undefined;
  /** What the last look said of the disk: `storage` itself is asked anew each time. */
  #storageCode: string | null = null;
  #image: ImageIdentity | null = null;

  constructor(deps: HealthWatchDeps) {
    this.#deps = deps;
    const unknown: Health = { state: 'unknown', code: null, detail: '', next: '', observedAt: deps.now() };
    this.#parts = {
      engine: { ...unknown, name: null, version: null },
      image: { ...unknown, digest: null },
      inference: { ...unknown, host: deps.settings.inferenceHost, version: null },
    };
  }

  get parts(): Parts {
    return this.#parts;
  }
  /** The default image as last seen. */
  get image(): ImageIdentity | null {
    return this.#image;
  }

  /** Looks at everything anew; calls that overlap share one look. Never throws. */
  async probe(): Promise<void> {
    this.#probing ??= this.#look().finally(() => {
      this.#probing = undefined;
    });
    await this.#probing;
  }

  storage(): KernelStatus['storage'] {
    const { store, home, now } = this.#deps;
    const base = { artefactBytes: store.artefacts.total(), events: store.head(), observedAt: now() };
    try {
      accessSync(home, constants.W_OK);
    } catch (error) {
      return {
        ...base,
        state: 'unavailable',
        code: 'not_writable',
        detail: `the state folder cannot be written: nothing can be recorded (${String(error)})`,
        next: `Make ${home} writable.`,
      };
    }
    try {
      const { bavail, bsize } = statfsSync(home);
      const free = bavail * bsize;
      if (free < fullDisk) {
        return {
          ...base,
          state: 'unavailable',
          code: 'disk_full',
          detail: 'no space left: nothing can be recorded',
          next: `Free space on the disk that holds ${home}.`,
        };
      }
      if (free < lowDisk) {
        return {
          ...base,
          state: 'degraded',
          code: 'disk_low',
          detail: `${Math.round(free / 1_048_576)} MiB free`,
          next: `Free space on the disk that holds ${home}.`,
        };
      }
      return { ...base, state: 'ok', code: null, detail: `${Math.round(free / 1_048_576)} MiB free`, next: '' };
    } catch (error) {
      return { ...base, state: 'unknown', code: 'not_readable', detail: String(error), next: '' };
    }
  }

  async #look(): Promise<void> {
    const [engine, inference] = await Promise.all([this.#deps.sandbox.preflight(), this.#inference()]);
    const image = await this.#lookAtImage();
    const before = JSON.stringify(stable(this.#parts));
    this.#parts = {
      engine: { ...engine.health, name: engine.name, version: engine.version, findings: [...engine.findings] },
      image,
      inference,
    };
    const storageBefore = this.#storageCode;
    this.#storageCode = this.storage().code;
    if (JSON.stringify(stable(this.#parts)) !== before || this.#storageCode !== storageBefore) this.#deps.changed();
  }

  async #inference(): Promise<Parts['inference']> {
    const { engines, settings, now } = this.#deps;
    try {
      return { ...(await engines.ollama().health()), host: settings.inferenceHost };
    } catch (error) {
      return { ...fromError(error, now()), host: settings.inferenceHost, version: null };
    }
  }

  async #lookAtImage(): Promise<Parts['image']> {
    const { sandbox, now } = this.#deps;
    try {
      this.#image = await sandbox.image(null);
      const { reference, digest } = this.#image;
      return { state: 'ok', code: null, detail: reference, next: '', observedAt: now(), digest };
    } catch (error) {
      this.#image = null;
      return { ...fromError(error, now()), digest: null };
    }
  }
}

function fromError(error: unknown, observedAt: number): Health {
  if (EscrowError.is(error)) {
    return { state: 'unavailable', code: error.code, detail: error.message, next: error.next, observedAt };
  }
  const detail = error instanceof Error ? error.message : String(error);
  return { state: 'unavailable', code: 'internal', detail, next: 'See the log of the Kernel.', observedAt };
}

/** Without the times of observation: a new time alone is no change. */
const stable = (parts: Parts): unknown =>
  Object.values(parts).map(({ observedAt: _, ...rest }: Health & Record<string, unknown>) => rest);
