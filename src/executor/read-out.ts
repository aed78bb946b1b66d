import { existsSync, readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { channelBounds, insidePaths } from '../protocol/executor.ts';
import { parseRelPath } from '../protocol/paths.ts';
import { supervisorProcess, workerProcesses } from './process-table.ts';
import { Workspace } from './workspace.ts';

/** A supervisor that lives ends a command and its processes within 5 s (process-table.ts). */
const holdMs = 8_000;
const betweenLooksMs = 20;

/**
 * Collection without a channel, whose supervisor may hang: a fresh process of the same program, started by the engine,
 * reads the workspace and the audit log and writes them as lines: `{quiet}`, `{report}`, `{file}` for each path of the
 * given JSON array, `{audit}`, `{end}`. It changes nothing and ends nobody itself: it asks the supervisor to hold, and
 * `quiet` is what came of that. (Ending the supervisor would end the container and its bytes.)
 */
export async function readOut(paths: string, out: Writable): Promise<void> {
  await say(out, { quiet: await held() });
  const workspace = new Workspace(insidePaths.workspace);
  await say(out, { report: workspace.report() });
  const wanted: unknown = JSON.parse(paths);
  if (!Array.isArray(wanted)) throw new Error('the paths are no array');
  for (const path of wanted.slice(0, 256)) {
    const parsed = parseRelPath(String(path));
    if (!parsed.ok) continue;
    try {
      const { bytes, mode, sha256 } = workspace.read(parsed.path);
      await say(out, { file: { path: parsed.path, mode, sha256, data: bytes.toString('base64') } });
    } catch (error) {
      await say(out, { missing: { path: parsed.path, reason: (error as Error).message } });
    }
  }
  const audit = readFileSync(insidePaths.audit);
  if (audit.length <= channelBounds.auditBytes) await say(out, { audit: audit.toString('base64') });
  await say(out, { end: true });
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

function say(out: Writable, value: unknown): Promise<void> {
  return new Promise((resolve, reject) => {
    out.write(`${JSON.stringify(value)}\n`, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(error);
    });
  });
}
