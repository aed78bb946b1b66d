import { readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { channelBounds, insidePaths } from '../protocol/executor.ts';
import { parseRelPath } from '../protocol/paths.ts';
import { Workspace } from './workspace.ts';

/**
 * Collection without the supervisor, which may hang: a fresh process of the same program, started by the engine, reads
 * the workspace and the audit log and writes them as lines: `{report}`, `{file}` for each path of the given JSON array,
 * `{audit}`. It changes nothing and ends nobody: ending the supervisor would end the container and its bytes.
 */
export async function readOut(paths: string, out: Writable): Promise<void> {
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

function say(out: Writable, value: unknown): Promise<void> {
  return new Promise((resolve, reject) => {
    out.write(`${JSON.stringify(value)}\n`, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(error);
    });
  });
}
