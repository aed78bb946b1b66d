import { replayAudit } from '../../protocol/executor.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import type { ContainerEngine } from './engine.ts';
import { readByExec } from './exec-reader.ts';
import type { CollectionSink, Salvage } from './port.ts';

/**
 * Reads out what a sandbox of ours was made to hold although no record says what it was for: its log tells what was
 * written, and a second look brings those files. The reader has the supervisor hold, so nothing more is done in it. Never
 * throws.
 */
export async function salvageByExec(
  engine: ContainerEngine,
  engineId: string,
  nonce: string,
  into: CollectionSink,
): Promise<Salvage> {
  const look = await readByExec(engine, engineId, { writable: [], scratch: [] }, into);
  if (look.auditLog === null) return { files: [], auditLog: null, fault: look.fault ?? 'no audit' };
  const { ok, entries } = replayAudit(Buffer.from(look.auditLog).toString('utf8'), nonce);
  const written = new Set<RelPath>();
  for (const { op, phase, request } of entries) {
    const parsed = op === 'write' && phase === 'done' ? parseRelPath(String(request['path'])) : undefined;
    if (parsed?.ok === true) written.add(parsed.path);
  }
  const damaged = ok ? null : 'audit-damaged';
  if (written.size === 0) return { files: [], auditLog: look.auditLog, fault: look.fault ?? damaged };
  const read = await readByExec(engine, engineId, { writable: [...written], scratch: [] }, into);
  return { files: read.files, auditLog: read.auditLog ?? look.auditLog, fault: read.fault ?? damaged };
}
