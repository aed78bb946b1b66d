import type { CommandEnd, FrozenDependencies, ProfileName } from '../../protocol/contract.ts';
import type { ArtefactRef, FileEntry, RelPath, Sha256, WallTime } from '../../protocol/primitives.ts';
import type { LimitReceipt, MemoryReading } from '../../protocol/attempt.ts';
import type { Health } from '../../protocol/status.ts';
import type { UsePeaks } from './monitor.ts';

/** An image by content. `reference` is what was asked for, `digest` is what counts (`sha256:…` of the image config). */
export interface ImageIdentity {
  readonly reference: string;
  readonly digest: string;
  readonly executorDigest: Sha256;
}

/** What an image is to be made of; null members: the default base, no packages, no steps. */
export interface ImageWanted {
  readonly base: string | null;
  /** Id that the reference stood for when the contract was frozen: it counts, not the reference. */
  readonly pinned: string | null;
  readonly language: Language | null;
  readonly dependencies: FrozenDependencies | null;
  readonly steps: readonly { readonly argv: readonly string[]; readonly network: boolean }[];
}

export type Language = 'node' | 'python' | 'go' | 'rust';

export type SandboxPurpose = 'attempt' | 'verification' | 'baseline';

/** Where the bytes of one file go as they are read out. */
export interface FileSink {
  /** The next bytes; they are valid during the call only. Never more than were announced. */
  add(bytes: Uint8Array): void;
  /** Once, when all of them have come: the hash of exactly these bytes. */
  whole(): ArtefactRef;
}

/** Where a collection's bytes go: no more than a piece of them is in memory at any time. Nothing of it fails. */
export interface CollectionSink {
  /** Begins a file of so many bytes; one before it that was not ended is given up. */
  file(size: number): FileSink;
  /** What has come is read once more from its start: nothing of it counts. */
  startOver(): void;
}

/** A command that may run: exactly this argv, nothing else. */
export interface CommandSpec {
  readonly id: string;
  readonly argv: readonly string[];
  readonly timeoutS: number;
  readonly captureKiB: number;
  readonly env: Readonly<Record<string, string>>;
}

export interface SandboxSpec {
  /** Deterministic, durable before the create: `escrow-<purpose>-<id>`. */
  readonly name: string;
  readonly purpose: SandboxPurpose;
  /** Attempt or run id. */
  readonly owner: string;
  readonly session: string | null;
  readonly epoch: number;
  readonly image: ImageIdentity;
  readonly profile: ProfileName;
  /** The whole workspace, by the hashes of its files. */
  readonly files: readonly FileEntry[];
  /** The bytes of one of them. Asked for when it is sent; what it rejects with, provisioning does. */
  readonly bytesOf: (file: FileEntry) => Promise<Uint8Array>;
  readonly readable: readonly RelPath[];
  readonly writable: readonly RelPath[];
  readonly scratch: readonly RelPath[];
  /** Folders `node_modules` that are filled with links to the image's packages. */
  readonly modules?: readonly RelPath[];
  readonly commands: readonly CommandSpec[];
  /** Bytes that the files which differ from what was placed may have together; left out: what there is room for. */
  readonly mayChange?: number;
}

/** Facts on the way to a usable sandbox, each awaited before the next step so that it can be made durable. */
export type ProvisionFact =
  | { readonly kind: 'created'; readonly engineId: string }
  | { readonly kind: 'started' }
  | { readonly kind: 'attached'; readonly nonce: string }
  | { readonly kind: 'limits'; readonly limits: readonly LimitReceipt[] }
  | { readonly kind: 'placed'; readonly files: number; readonly bytes: number };

export interface FileRead {
  readonly bytes: Uint8Array;
  readonly mode: number;
  readonly sha256: Sha256;
}

export interface CommandResult {
  readonly end: CommandEnd;
  /** stdout and stderr as they arrived, up to the capture limit. */
  readonly output: Uint8Array;
  readonly outputCut: boolean;
  readonly durationMs: number;
  /** Bytes; null where the cgroup could not be read. */
  readonly peakMemory: number | null;
}

export interface QuiesceObservation {
  /** Two scans of the process table in a row without a process of the worker uid. */
  readonly empty: boolean;
  readonly killed: number;
  readonly ms: number;
}

export interface Collection {
  readonly state: 'complete' | 'partial' | 'none';
  readonly reason: string | null;
  /** Each writable file as found, by the hash of the bytes that came; absent ones are not listed. */
  readonly files: readonly FileEntry[];
  readonly missing: readonly RelPath[];
  /** Hash of every workspace file as the executor saw it at collection (protected and readable ones too). */
  readonly manifest: readonly FileEntry[];
  readonly audit: {
    readonly entries: number;
    readonly kernelHead: Sha256;
    readonly executorHead: Sha256 | null;
    readonly agree: boolean;
  };
  /** The audit log's bytes as read out (NDJSON), null when it could not be read. */
  readonly auditLog: Uint8Array | null;
  /** True where bytes = baseline + audited writes; false is an incident. Null when it could not be compared. */
  readonly equalsAudit: boolean | null;
  /** Files outside the writable set that changed, vanished or appeared: an incident. */
  readonly violations: readonly string[];
  /** `channel`, or `exec` when the supervisor was silent. */
  readonly via: 'channel' | 'exec' | 'none';
  /** What the sandbox used while this Kernel was attached; null where it never was. */
  readonly monitor?: MonitorRecording | null;
}

/** A bounded record of samples (`readMonitor` reads it) and what they amount to. */
export interface MonitorRecording {
  readonly bytes: Uint8Array;
  readonly peaks: UsePeaks;
}

/** What could be read of a container that no record describes: the files that its log says were written. */
export interface Salvage {
  readonly files: readonly FileEntry[];
  readonly auditLog: Uint8Array | null;
  /** Why it may not be all; null where it is. */
  readonly fault: string | null;
}

/** Why the channel is no longer usable. */
export type ChannelEnd =
  | { readonly kind: 'closed-by-us' }
  | { readonly kind: 'stream-ended' }
  | { readonly kind: 'silent'; readonly ms: number }
  | { readonly kind: 'protocol'; readonly reason: string };

/** Thrown by sandbox calls; `code` tells whose fault it was. */
export class SandboxFault extends Error {
  override readonly name = 'SandboxFault';
  readonly code:
    | 'denied' // policy or executor refused: an answer for the agent
    | 'not-found'
    | 'conflict' // the file is not the one the edit was made against
    | 'too-large'
    | 'no-space' // a tmpfs is full
    | 'invalid'
    | 'channel' // the supervisor cannot be reached any more
    | 'limit-not-in-force'
    | 'engine' // the container engine refused, failed or is gone
    | 'cancelled';
  constructor(code: SandboxFault['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
  static is(value: unknown, code?: SandboxFault['code']): value is SandboxFault {
    return value instanceof SandboxFault && (code === undefined || value.code === code);
  }
}

/** How far an audit chain has come: its number of entries and its head. */
export interface AuditPoint {
  readonly entries: number;
  readonly head: Sha256 | null;
}

/** A live, owned container with its supervisor. Every call that acts is audited on both sides. */
export interface Sandbox {
  readonly name: string;
  readonly engineId: string;
  readonly limits: readonly LimitReceipt[];
  /** The Kernel's own chain so far: made durable now and then, so that a later Kernel can compare. */
  readonly witness: AuditPoint;
  /** Settles once, when the channel ends for whatever reason. Never rejects. */
  readonly ended: Promise<ChannelEnd>;
  /** `by: 'person'` marks a look through an attached window; the path must be in the snapshot or writable. */
  read(path: RelPath, by: 'agent' | 'person', signal?: AbortSignal): Promise<FileRead>;
  /** Compare-and-swap: `expected` is the hash the new bytes were made from, null to create. */
  write(
    path: RelPath,
    bytes: Uint8Array,
    expected: Sha256 | null,
    signal?: AbortSignal,
  ): Promise<{ readonly sha256: Sha256 }>;
  /** Runs a declared command by its id. Abort ⇒ the command is ended and the result says `cancelled`. */
  run(commandId: string, signal?: AbortSignal): Promise<CommandResult>;
  /** Puts a denial that the Kernel's policy made into the audit on both sides. */
  deny(request: string, reason: string): Promise<void>;
  /** Refuses further work inside, ends every process of the worker uid. */
  quiesce(): Promise<QuiesceObservation>;
  /** Reads out every writable file, whose bytes go into `into` as they come. Never throws: what could not be read is said in the result. */
  collect(into: CollectionSink): Promise<Collection>;
  /** Hashes of all workspace files now. */
  manifest(): Promise<readonly FileEntry[]>;
  /** Destroys the attachment (needed before a kill); the container goes on. */
  detach(): void;
}

export interface ObservedContainer {
  readonly name: string;
  readonly engineId: string;
  readonly state: 'created' | 'running' | 'paused' | 'exited' | 'dead' | 'other';
  readonly labels: Readonly<Record<string, string>>;
  readonly purpose: SandboxPurpose | null;
  readonly owner: string | null;
  readonly session: string | null;
  readonly epoch: number | null;
  /** Carries this Kernel home's instance identity, not only the product label. */
  readonly ours: boolean;
}

/**
 * What each source says of processes of one container that were ended for lack of memory. Null: it does not tell, or
 * could not be read. They need not agree: each is recorded as the word of its witness.
 */
export interface OomWord {
  /** The control group's count, as the supervisor told it last. */
  readonly inside: number | null;
  /** The same count, as this machine read it last. */
  readonly host: number | null;
  /** Events of the engine; at least so many where they are not whole. */
  readonly events: number | null;
  /** Heard without a break, from the container's start to its end. */
  readonly eventsWhole: boolean;
  /** The engine's flag at the stop. */
  readonly flag: boolean;
  /** By these words a shortage ended the container itself. */
  readonly ended: boolean;
}

export type StopObservation =
  | {
      readonly kind: 'stopped';
      readonly exitCode: number | null;
      readonly oomKilled: boolean;
      readonly finishedAt: string | null;
      readonly oom: OomWord;
    }
  | { readonly kind: 'absent' }
  /** Acknowledged or not, it was not seen stopped. */
  | { readonly kind: 'unconfirmed'; readonly reason: string };

export type AbsenceObservation =
  | { readonly kind: 'absent' }
  | { readonly kind: 'present'; readonly reason: string }
  | { readonly kind: 'unknown'; readonly reason: string };

export interface EngineHealth {
  readonly health: Health;
  readonly name: string | null;
  readonly version: string | null;
  /** One entry a finding: missing init, seccomp, cgroup version, rootless, permissions, each with the mend. */
  readonly findings: readonly {
    readonly code: string;
    readonly ok: boolean;
    readonly detail: string;
    readonly next: string;
  }[];
}

export interface SandboxService {
  /** Never throws: an engine that does not answer is a finding. */
  preflight(): Promise<EngineHealth>;
  /**
   * The prepared image (null: of the default base) that holds the executor; nothing is made. Throws EscrowError
   * ImageUnavailable or EngineUnavailable.
   */
  image(wanted: ImageWanted | null): Promise<ImageIdentity>;
  /** What a reference (null: the default base) stands for in the engine; undefined: nothing. Throws EscrowError EngineUnavailable. */
  baseOf(reference: string | null): Promise<{ readonly reference: string; readonly digest: string } | undefined>;
  /** Digest over every limit of the profile. */
  profileDigest(profile: ProfileName): Sha256;
  /** Create, start, attach, handshake, limits read back, files placed. On any fault the container is left for `kill`/`remove` and SandboxFault is thrown. */
  provision(spec: SandboxSpec, onFact: (fact: ProvisionFact) => Promise<void>, signal?: AbortSignal): Promise<Sandbox>;
  /** Attaches again to a container of an earlier epoch for collection; `recorded` is what that Kernel had made durable of its chain. Null when it is not running. Throws SandboxFault. */
  reattach(spec: SandboxSpec, engineId: string, epoch: number, recorded: AuditPoint): Promise<Sandbox | null>;
  /** Fallback when the supervisor is silent: a fixed, bounded reader by exec. */
  collectByExec(spec: SandboxSpec, engineId: string, recorded: AuditPoint, into: CollectionSink): Promise<Collection>;
  /** What is recorded so far of the resources that a container used, as in a collection; null where nothing is. */
  monitored(engineId: string): MonitorRecording | null;
  /** Reads out what is ours and that nothing is recorded of. Never throws. */
  salvage(engineId: string, into: CollectionSink): Promise<Salvage>;
  /** Kills and confirms by inspection. Never throws. Refuses what does not carry our labels and identity. */
  kill(engineIdOrName: string): Promise<StopObservation>;
  /** Removes and reads the absence back. Never throws. Refuses what is not ours. */
  remove(engineIdOrName: string): Promise<AbsenceObservation>;
  /** All containers that carry the product label. Throws EscrowError EngineUnavailable. */
  list(): Promise<readonly ObservedContainer[]>;
}

/** What a sandbox service is made from (composition root). */
export interface SandboxServiceOptions {
  /** Random id of the Kernel's home folder: part of the labels, so that two homes never touch each other's containers. */
  readonly homeId: string;
  readonly instanceId: string;
  /** Bundled executor file whose hash must be the one in the image. */
  readonly executorPath: string;
  /** Docker socket or host; null: DOCKER_HOST, then the platform's default. */
  readonly engineHost: string | null;
  /** Milliseconds to look for a stop or an absence before it counts as unconfirmed; left out: 10 s. */
  readonly confirmMs?: number;
  /** Where files for the engine may be kept (Podman reads the system call filter from one); left out: the temporary folder. */
  readonly stateFolder?: string;
  /** Memory of this machine and its GPUs, sampled beside the container's; left out: unavailable. Must not throw. */
  readonly hostMemory?: () => Promise<MemoryReading | null>;
  /** Called by name around engine calls and frames: where tests end the process. */
  readonly at?: (point: string) => void;
  readonly now: () => WallTime;
  readonly log: (
    level: 'debug' | 'info' | 'warn' | 'error',
    message: string,
    data?: Readonly<Record<string, unknown>>,
  ) => void;
}
