import type { Readable } from 'node:stream';
import * as z from 'zod';
import { BoundedLines } from '../../protocol/bounded-lines.ts';
import { channelBounds, insidePaths, WorkspaceReport } from '../../protocol/executor.ts';
import { sha256 } from '../../protocol/hash.ts';
import { RelPath, Sha256 } from '../../protocol/primitives.ts';
import type { Gathered } from './collection.ts';
import { Demux } from './demux.ts';
import type { ContainerEngine } from './engine.ts';
import type { PlacedFile } from './port.ts';

/** The whole workspace at 20 MB/s, and a start of Node on a machine under load. */
const readMs = 60_000;
/** One file in base64 with its envelope. */
const lineBytes = Math.ceil((channelBounds.fileBytes * 4) / 3) + 4096;
/** All tmpfs of the profile in base64: more can't be there. */
const totalBytes = 256 * 1024 * 1024;

/**
 * A supervisor that is asked to hold ends every process but itself, the reader too: once for the command that runs, once
 * more where its own patience with a silent Kernel ends at that moment.
 */
const readers = 3;

const Line = z.union([
  z.strictObject({ quiet: z.boolean() }),
  z.strictObject({ report: WorkspaceReport }),
  z.strictObject({
    file: z.strictObject({ path: RelPath, mode: z.number().int().min(0).max(0o777), sha256: Sha256, data: z.string() }),
  }),
  z.strictObject({ missing: z.strictObject({ path: RelPath, reason: z.string() }) }),
  z.strictObject({ audit: z.string() }),
  z.strictObject({ end: z.literal(true) }),
]);

/**
 * Reads a sandbox without a channel: starts the image's own reader by the engine's exec, as root, with fixed arguments.
 * Bounded in time and bytes; what came before a fault is kept. Never throws.
 */
export async function readByExec(
  engine: ContainerEngine,
  engineId: string,
  writable: readonly RelPath[],
): Promise<Gathered> {
  for (let left = readers - 1; ; left -= 1) {
    const { gathered, exitCode } = await readOnce(engine, engineId, writable);
    if (exitCode !== killed || left === 0) return gathered;
  }
}

/** The exit code of a program that SIGKILL ended, as engines say it. */
const killed = 137;

async function readOnce(
  engine: ContainerEngine,
  engineId: string,
  writable: readonly RelPath[],
): Promise<{ readonly gathered: Gathered; readonly exitCode: number | null }> {
  const files: PlacedFile[] = [];
  const gathered: { -readonly [K in keyof Gathered]: Gathered[K] } = {
    via: 'exec',
    fault: null,
    quiet: false,
    report: null,
    files,
    auditLog: null,
    executorHead: null,
  };
  let ended = false;
  let code: number | null = null;
  const take = (line: Buffer) => {
    const parsed = Line.parse(JSON.parse(line.toString('utf8')));
    if ('quiet' in parsed) gathered.quiet = parsed.quiet;
    else if ('report' in parsed) gathered.report = parsed.report;
    else if ('audit' in parsed) gathered.auditLog = Buffer.from(parsed.audit, 'base64');
    else if ('file' in parsed) {
      const bytes = Buffer.from(parsed.file.data, 'base64');
      if (sha256(bytes) !== parsed.file.sha256) throw new Error(`${parsed.file.path} arrived damaged`);
      if (writable.includes(parsed.file.path)) files.push({ path: parsed.file.path, mode: parsed.file.mode, bytes });
    } else if ('end' in parsed) ended = true;
  };
  try {
    const { output, exitCode } = await engine.exec(engineId, [
      insidePaths.node,
      '--single-threaded',
      '--max-old-space-size=256',
      insidePaths.executor,
      'read-out',
      JSON.stringify(writable),
    ]);
    await readLines(output, take);
    // The code means something only after the stream has been drained.
    if (!ended) {
      code = await exitCode();
      gathered.fault = `the reader ended early: ${endOfExec(code)}`;
    }
  } catch (error) {
    gathered.fault = `exec: ${error instanceof Error ? error.message : String(error)}`;
    if (gathered.report === null && files.length === 0) gathered.via = 'none';
  }
  return { gathered, exitCode: code };
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

async function readLines(output: Readable, take: (line: Buffer) => void): Promise<void> {
  const demux = new Demux();
  const lines = new BoundedLines(lineBytes);
  const deadline = setTimeout(() => output.destroy(new Error('time-out')), readMs);
  let total = 0;
  try {
    for await (const chunk of output) {
      total += (chunk as Buffer).length;
      if (total > totalBytes) throw new Error('more bytes than a sandbox holds');
      for (const part of demux.push(chunk as Buffer)) {
        if (part.stream !== 'stdout') continue;
        for (const line of lines.push(part.bytes)) {
          if (line.kind === 'too-long') throw new Error('a line that is too long');
          take(line.bytes);
        }
      }
      if (demux.fault !== undefined) throw new Error(`the engine's stream: ${demux.fault.kind}`);
    }
  } finally {
    clearTimeout(deadline);
    output.destroy();
  }
}
