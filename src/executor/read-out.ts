import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { channelBounds, insidePaths } from '../protocol/executor.ts';
import { parseRelPath } from '../protocol/paths.ts';
import type { RelPath } from '../protocol/primitives.ts';
import { supervisorProcess, workerProcesses } from './process-table.ts';
import { Workspace } from './workspace.ts';

/** A supervisor that lives ends a command and its processes within 5 s (process-table.ts). */
const holdMs = 8_000;
const betweenLooksMs = 20;

/**
 * Collection without a channel, whose supervisor may hang: a fresh process of the same program, started by the engine,
 * reads the workspace and the audit log and writes them as frames: `{quiet}`, `{report}` and its bytes, for each
 * argument `file:PATH` `{file}`, its bytes and `{sha256}`, `{audit}` and its bytes, `{end}`. An argument `scratch:PATH`
 * names a folder that is not looked at. It changes nothing and ends
 * nobody itself: it asks the supervisor to hold, and `quiet` is what came of that. (Ending the supervisor would end the
 * container and its bytes.)
 */
export async function readOut(args: readonly string[], out: Writable): Promise<void> {
  await say(out, { quiet: await held() });
  const workspace = new Workspace(insidePaths.workspace);
  workspace.leaveOut(pathsAfter('scratch:', args));
  await carry(out, { report: true }, Buffer.from(JSON.stringify(workspace.report())));
  for (const path of pathsAfter('file:', args)) {
    try {
      await sayFile(out, workspace, path);
    } catch (error) {
      // Also of one that changed while it was read: what came of it does not count.
      await say(out, { missing: { path, reason: (error as Error).message } });
    }
  }
  const audit = readFileSync(insidePaths.audit);
  if (audit.length <= channelBounds.auditBytes) await carry(out, { audit: true }, audit);
  await say(out, { end: true });
}

function pathsAfter(prefix: string, args: readonly string[]): RelPath[] {
  const named = args.filter((arg) => arg.startsWith(prefix)).map((arg) => parseRelPath(arg.slice(prefix.length)));
  return named.flatMap((parsed) => (parsed.ok ? [parsed.path] : []));
}

/** Whether the supervisor says that it holds, and two scans in a row then found no process of the worker. */
async function held(): Promise<boolean> {
  const supervisor = supervisorProcess();
  if (supervisor === undefined) return false;
  process.kill(supervisor, 'SIGUSR2');
  const until = performance.now() + holdMs;
  for (let empty = 0; performance.now() < until; await delay(betweenLooksMs)) {
    empty = existsSync(insidePaths.held) && workerProcesses() === 0 ? empty + 1 : 0;
    if (empty === 2) return true;
  }
  return false;
}

async function sayFile(out: Writable, workspace: Workspace, path: RelPath): Promise<void> {
  const file = workspace.open(path);
  try {
    const { size, mode } = file;
    const hash = createHash('sha256');
    await say(out, { file: { path, mode, size } });
    for (let left = size; left > 0;) {
      // A fresh one each time: the stream may still look at the last.
      const bytes = file.read(Buffer.allocUnsafeSlow(channelBounds.chunkBytes + 1));
      hash.update(bytes);
      await say(out, { p: bytes.length }, bytes);
      left -= bytes.length;
    }
    await say(out, { sha256: hash.digest('hex') });
  } finally {
    file.close();
  }
}

async function carry(out: Writable, what: Readonly<Record<string, unknown>>, bytes: Buffer): Promise<void> {
  await say(out, { ...what, size: bytes.length });
  for (let offset = 0; offset < bytes.length; offset += channelBounds.chunkBytes) {
    const part = bytes.subarray(offset, offset + channelBounds.chunkBytes);
    await say(out, { p: part.length }, part);
  }
}

async function say(out: Writable, value: Readonly<Record<string, unknown>>, payload?: Buffer): Promise<void> {
  out.cork();
  let free = out.write(`${JSON.stringify(value)}\n`);
  if (payload !== undefined) {
    out.write(payload);
    free = out.write('\n');
  }
  out.uncork();
  if (!free) await once(out, 'drain');
}
