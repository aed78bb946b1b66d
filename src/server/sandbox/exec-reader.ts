import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { channelBounds, insidePaths, type Policy } from '../../protocol/executor.ts';
import { WorkspaceReport } from '../../protocol/executor-answers.ts';
import { FrameReader } from '../../protocol/frame-reader.ts';
import { RelPath, Sha256, type FileEntry } from '../../protocol/primitives.ts';
import type { Gathered } from './collection.ts';
import { Demux } from './demux.ts';
import type { ContainerEngine } from './engine.ts';
import { Incoming, IncomingFile } from './incoming.ts';
import type { CollectionSink } from './port.ts';

/** The whole workspace at 20 MB/s, and a start of Node on a machine under load. */
const readMs = 60_000;

/**
 * A supervisor that is asked to hold ends every process but itself, the reader too: while it ends the command that runs,
 * for up to 5 s (process-table.ts), and once more where its own patience with a silent Kernel ends at that moment. So a
 * reader that was ended is followed by another one a little later, for longer than that.
 */
const readers = 12;
const betweenReadersMs = 300;
/** No other reader is started later than this after the first: one that hung took its whole time. */
const readersMs = 30_000;

const size = z.number().int().nonnegative();
const Line = z.union([
  z.strictObject({ quiet: z.boolean() }),
  z.strictObject({ p: z.number().int().min(1).max(channelBounds.chunkBytes) }),
  z.strictObject({ report: z.literal(true), size: size.max(channelBounds.reportBytes) }),
  z.strictObject({
    file: z.strictObject({
      path: RelPath,
      mode: z.number().int().min(0).max(0o777),
      size: size.max(channelBounds.fileBytes),
    }),
  }),
  /** Ends a file. */
  z.strictObject({ sha256: Sha256 }),
  z.strictObject({ missing: z.strictObject({ path: RelPath, reason: z.string() }) }),
  z.strictObject({ audit: z.literal(true), size: size.max(channelBounds.auditBytes) }),
  z.strictObject({ end: z.literal(true) }),
]);
type Line = z.infer<typeof Line>;

/**
 * Reads a sandbox without a channel: starts the image's own reader by the engine's exec, as root, with fixed arguments.
 * Bounded in time and bytes; what came before a fault is kept. The files' bytes go into `into`. Never throws.
 */
export async function readByExec(
  engine: ContainerEngine,
  engineId: string,
  paths: Pick<Policy, 'writable' | 'scratch'>,
  into: CollectionSink,
): Promise<Gathered> {
  const until = performance.now() + readersMs;
  for (let left = readers - 1; ; left -= 1) {
    const { gathered, exitCode, spoke } = await readOnce(engine, engineId, paths, into);
    // One that was ended while it came up says nothing; what the engine says in its place differs.
    const settled = spoke && exitCode !== killed;
    if (settled || left === 0 || performance.now() > until) return gathered;
    into.startOver();
    await delay(betweenReadersMs);
  }
}

/** The exit code of a program that SIGKILL ended, as engines say it. */
const killed = 137;

async function readOnce(
  engine: ContainerEngine,
  engineId: string,
  { writable, scratch }: Pick<Policy, 'writable' | 'scratch'>,
  into: CollectionSink,
): Promise<{ readonly gathered: Gathered; readonly exitCode: number | null; readonly spoke: boolean }> {
  const gathered: { -readonly [K in keyof Gathered]: Gathered[K] } = {
    via: 'exec',
    fault: null,
    quiet: false,
    report: null,
    files: [],
    auditLog: null,
    executorHead: null,
  };
  const reading = new Reading(writable, gathered, into);
  let code: number | null = null;
  try {
    const { output, exitCode } = await engine.exec(engineId, [
      insidePaths.node,
      '--single-threaded',
      '--max-old-space-size=256',
      insidePaths.executor,
      'read-out',
      // Each an argument of its own: Linux takes no single one of more than 128 KiB.
      ...writable.map((path) => `file:${path}`),
      ...scratch.map((path) => `scratch:${path}`),
    ]);
    await readFrames(output, reading);
    // The code means something only after the stream has been drained.
    if (!reading.ended) {
      code = await exitCode();
      gathered.fault = `the reader ended early: ${endOfExec(code)}`;
    }
  } catch (error) {
    gathered.fault = `exec: ${error instanceof Error ? error.message : String(error)}`;
    if (gathered.report === null && gathered.files.length === 0) gathered.via = 'none';
  }
  return { gathered, exitCode: code, spoke: reading.spoke };
}

/** An exec's exit code in words; engines use some of them for what is not the program's own end. */
function endOfExec(code: number | null): string {
  switch (code) {
    case null:
      return 'no exit code';
    case 126:
      return 'it could not be executed (126)';
    case 127:
      return 'it was not found (127)';
    case killed:
      return 'it was killed (137)';
    default:
      return `exit code ${code}`;
  }
}

/** What the reader in the container has said so far. Throws what a frame of another form or order is. */
class Reading {
  ended = false;
  /** A first frame has come. */
  spoke = false;
  /** Files that were asked for and have not come. */
  readonly #wanted: Set<string>;
  readonly #gathered: { -readonly [K in keyof Gathered]: Gathered[K] };
  readonly #files: FileEntry[] = [];
  readonly #into: CollectionSink;
  #incoming: { readonly of: 'report' | 'audit'; readonly bytes: Incoming } | IncomingFile | undefined;
  #announced = 0;
  #fault: Error | undefined;

  constructor(
    writable: readonly RelPath[],
    gathered: { -readonly [K in keyof Gathered]: Gathered[K] },
    into: CollectionSink,
  ) {
    this.#wanted = new Set<string>(writable);
    this.#gathered = gathered;
    this.#into = into;
    gathered.files = this.#files;
  }

  get #bytes(): Incoming | IncomingFile | undefined {
    return this.#incoming instanceof IncomingFile ? this.#incoming : this.#incoming?.bytes;
  }

  readonly sink = {
    line: (bytes: Buffer): number => {
      if (bytes.length === 0 || this.#fault !== undefined) return 0;
      try {
        const line = Line.parse(JSON.parse(bytes.toString('utf8')));
        this.spoke = true;
        return this.#take(line);
      } catch (error) {
        this.#fault = error as Error;
        return 0;
      }
    },
    payload: (bytes: Buffer): void => {
      this.#bytes?.add(bytes);
      if (this.#bytes?.missing === 0) this.#whole();
    },
    tooLong: (): void => {
      this.#fault ??= new Error('a line that is too long');
    },
  };

  /** Throws the first fault. */
  check(): void {
    if (this.#fault !== undefined) throw this.#fault;
  }

  #take(line: Line): number {
    if ('p' in line) {
      if (line.p > (this.#bytes?.missing ?? 0)) throw new Error('more bytes than were announced');
      return line.p;
    }
    if ('sha256' in line) this.#file(line.sha256);
    else if ('missing' in line) this.#incoming = undefined;
    else if ('quiet' in line) this.#gathered.quiet = line.quiet;
    else if (this.#incoming !== undefined) throw new Error('fewer bytes than were announced');
    else if ('file' in line) this.#begin(line.file);
    else if ('report' in line) this.#expect('report', line.size);
    else if ('audit' in line) this.#expect('audit', line.size);
    else this.ended = true;
    return 0;
  }

  #announce(bytes: number): void {
    this.#announced += bytes;
    // More than all that a sandbox can hold: somebody lies.
    if (this.#announced > channelBounds.collectionBytes) throw new Error('more bytes than a sandbox holds');
  }

  #begin({ path, mode, size }: Extract<Line, { file: unknown }>['file']): void {
    this.#announce(size);
    if (!this.#wanted.delete(path)) throw new Error(`${path} was not asked for, or came before`);
    this.#incoming = new IncomingFile({ path, mode }, size, this.#into.file(size));
  }

  #expect(of: 'report' | 'audit', bytes: number): void {
    this.#announce(bytes);
    this.#incoming = { of, bytes: new Incoming(bytes) };
    if (bytes === 0) this.#whole();
  }

  /** A report or an audit is over with its last byte, a file with its hash. */
  #whole(): void {
    const incoming = this.#incoming;
    if (incoming === undefined || incoming instanceof IncomingFile) return;
    this.#incoming = undefined;
    const { bytes } = incoming.bytes.whole();
    if (incoming.of === 'audit') this.#gathered.auditLog = bytes;
    else {
      try {
        this.#gathered.report = WorkspaceReport.parse(JSON.parse(bytes.toString('utf8')));
      } catch (error) {
        this.#fault ??= error as Error;
      }
    }
  }

  #file(said: Sha256): void {
    const incoming = this.#incoming;
    this.#incoming = undefined;
    if (!(incoming instanceof IncomingFile)) throw new Error('a hash of no file');
    const file = incoming.whole();
    if (file.sha256 !== said) throw new Error(`${file.path} arrived damaged`);
    this.#files.push(file);
  }
}

async function readFrames(output: Readable, reading: Reading): Promise<void> {
  const demux = new Demux();
  const frames = new FrameReader(channelBounds.frameBytes, reading.sink);
  const deadline = setTimeout(() => output.destroy(new Error('time-out')), readMs);
  let total = 0;
  try {
    for await (const chunk of output) {
      total += (chunk as Buffer).length;
      if (total > channelBounds.collectionBytes + channelBounds.reportBytes) {
        throw new Error('more bytes than a sandbox holds');
      }
      for (const part of demux.push(chunk as Buffer)) if (part.stream === 'stdout') frames.push(part.bytes);
      reading.check();
      if (demux.fault !== undefined) throw new Error(`the engine's stream: ${demux.fault.kind}`);
    }
  } finally {
    clearTimeout(deadline);
    output.destroy();
  }
}
