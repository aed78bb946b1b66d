import { randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync, readdirSync, renameSync, statSync, unlinkSync, utimesSync } from 'node:fs';
import path from 'node:path';
import { ClientId } from '../protocol/primitives.ts';

/**
 * Which window this is, so that a reload is known as the same client and a second window of the same folder is not.
 *
 * VS Code offers no such id (`env.sessionId` is new with each load), so windows keep their own records: an empty file
 * `<id>.<owner>` in the workspace's storage folder, where the owner is a process id or `free`. `rename` is atomic: of
 * two windows that start together only one gets a record. A record may be taken when its owner gave it up (`deactivate`
 * runs before a reload), or when its process is gone (a killed extension host), and when it was touched recently; the
 * most recent one wins. Plain `node:fs`: VS Code's own file system and Memento need the window, which may be going.
 */
export interface WindowIdentity {
  readonly clientId: ClientId;
  /** Whether another extension host used the id before: a reload, or a window that was closed a moment ago. */
  readonly resumed: boolean;
  /** When a window of this folder was last seen before this one (wall clock, ms); null when never. */
  readonly lastWindowAt: number | null;
  /** Keeps the record recent; call it when the window has proved itself. */
  touch(): void;
  /** Gives the id to the next extension host. Synchronous: `deactivate` may not get another turn. */
  release(): void;
}

export interface WindowIdentityOptions {
  /** The workspace's storage folder; is made when missing. */
  readonly folder: string;
  /** Records that nobody touched for longer are not taken: their sessions have settled. */
  readonly takeOverWithinMs: number;
  readonly pid: number;
  readonly now: () => number;
  readonly isAlive: (pid: number) => boolean;
}

interface Record {
  readonly file: string;
  readonly id: ClientId;
  readonly owner: number | 'free';
  readonly touchedAt: number;
}

function readRecords(folder: string): readonly Record[] {
  const records: Record[] = [];
  for (const file of readdirSync(folder)) {
    const match = /^(window-[0-9a-f]{24})\.(free|\d+)$/.exec(file);
    const id = ClientId.safeParse(match?.[1]);
    if (match === null || !id.success) continue;
    try {
      const touchedAt = statSync(path.join(folder, file)).mtimeMs;
      records.push({ file, id: id.data, owner: match[2] === 'free' ? 'free' : Number(match[2]), touchedAt });
    } catch {
      continue; // taken by another window meanwhile
    }
  }
  return records.toSorted((a, b) => b.touchedAt - a.touchedAt);
}

/** Takes the record of the window that this extension host continues, or makes a new one. Throws fs errors. */
export function claimWindowIdentity(options: WindowIdentityOptions): WindowIdentity {
  const { folder, pid, now } = options;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const records = readRecords(folder);
  const lastWindowAt = records[0]?.touchedAt ?? null;

  let claimed: { id: ClientId; file: string } | undefined;
  for (const record of records) {
    if (record.owner !== 'free' && options.isAlive(record.owner)) continue;
    const source = path.join(folder, record.file);
    try {
      if (claimed !== undefined || now() - record.touchedAt > options.takeOverWithinMs) {
        if (now() - record.touchedAt > options.takeOverWithinMs) unlinkSync(source);
        continue;
      }
      const file = path.join(folder, `${record.id}.${pid}`);
      renameSync(source, file);
      claimed = { id: record.id, file };
    } catch {
      continue; // another window was quicker
    }
  }

  const resumed = claimed !== undefined;
  if (claimed === undefined) {
    const id = ClientId.parse(`window-${randomBytes(12).toString('hex')}`);
    claimed = { id, file: path.join(folder, `${id}.${pid}`) };
    closeSync(openSync(claimed.file, 'wx', 0o600));
  }
  const { id, file } = claimed;
  const touch = (): void => {
    try {
      utimesSync(file, now() / 1000, now() / 1000);
    } catch {
      // The storage folder may be cleared under us: the id stays ours for the life of this host.
    }
  };
  touch();
  return {
    clientId: id,
    resumed,
    lastWindowAt,
    touch,
    release: () => {
      touch();
      try {
        renameSync(file, path.join(folder, `${id}.free`));
      } catch {
        // Nothing to hand on; the next host makes a new record.
      }
    },
  };
}
