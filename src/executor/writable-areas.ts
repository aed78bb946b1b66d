import { randomBytes } from 'node:crypto';
import { chmodSync, lchownSync, lstatSync, readdirSync, renameSync, rmdirSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { insidePaths, workerId } from '../protocol/executor.ts';

/** What a command may write to besides scratch, with the mode and owner that it must have again. */
const areas = [
  { path: insidePaths.tmp, mode: 0o1777, owner: 0 },
  { path: insidePaths.home, mode: 0o700, owner: workerId },
  { path: '/dev/shm', mode: 0o1777, owner: 0 },
] as const;

/**
 * Empties what commands write to, so that nothing that one leaves behind (a full disk, a module that the next one would
 * load) reaches the next. Only while no worker process is alive. Throws where something resists.
 */
export function clearWritableAreas(): void {
  for (const { path, mode, owner } of areas) {
    lchownSync(path, 0, 0);
    chmodSync(path, 0o700);
    empty(path);
    // In this order: only its owner may change a folder's mode.
    chmodSync(path, mode);
    lchownSync(path, owner, owner);
  }
}

/**
 * Without the capabilities to ignore rights, a folder is first taken over (chown, then chmod). Its folders are moved up
 * before they are emptied in turn: a path of a thousand levels can't be named. Under names that no command could know
 * and take, or what it left could not be moved out of the way.
 */
function empty(top: string): void {
  const prefix = `.escrow-${randomBytes(16).toString('hex')}`;
  let moved = 0;
  const waiting = [top];
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    for (const name of readdirSync(folder, { encoding: 'buffer' })) {
      // Names need not be UTF-8.
      const path = Buffer.concat([Buffer.from(`${folder}/`), name]);
      if (!lstatSync(path).isDirectory()) {
        unlinkSync(path);
        continue;
      }
      lchownSync(path, 0, 0);
      chmodSync(path, 0o700);
      moved += 1;
      const above = join(top, `${prefix}-${moved}`);
      renameSync(path, above);
      waiting.push(above);
    }
    if (folder !== top) rmdirSync(folder);
  }
}
