import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { ArtefactRef, IntegrationId, RelPath } from '../../protocol/primitives.ts';

/** A file's content and whether it is executable: all that an integration changes of it. */
export const FileState = z.strictObject({ ...ArtefactRef.shape, executable: z.boolean() });
export type FileState = z.infer<typeof FileState>;

/** One file from one state to another; null: it does not exist. */
export const FileChange = z.strictObject({
  path: RelPath,
  from: FileState.nullable(),
  to: FileState.nullable(),
});
export type FileChange = z.infer<typeof FileChange>;

/**
 * What is about to happen to a tree, durable before the first touch of it. `prepared`: nothing but temporary files and
 * new folders can exist; `applying`: each file is in its old or in its new state.
 */
export const Journal = z.strictObject({
  version: z.literal(1),
  id: IntegrationId,
  purpose: z.enum(['integrate', 'undo']),
  root: z.string(),
  phase: z.enum(['prepared', 'applying']),
  steps: z.array(z.strictObject({ ...FileChange.shape, temporary: z.string() })),
  /** Folders that did not exist, outermost first. */
  newFolders: z.array(z.string()),
});
export type Journal = z.infer<typeof Journal>;

/** Where journals are kept between the intent and its observed end. A test puts a failing one in its place. */
export interface JournalStore {
  write(journal: Journal): Promise<void>;
  remove(id: IntegrationId): Promise<void>;
  /** All that were left behind, with those that can't be read. */
  list(): Promise<{ readonly journals: readonly Journal[]; readonly unreadable: readonly string[] }>;
}

/** Journals as files of a folder in the Kernel's home: temp → fsync → rename → fsync of the folder. */
export function openJournalStore(folder: string, at: (point: string) => void = () => undefined): JournalStore {
  const fileOf = (id: string): string => join(folder, `${id}.json`);
  const sync = async (): Promise<void> => {
    if (process.platform === 'win32') return;
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  };
  return {
    async write(journal) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const temporary = `${fileOf(journal.id)}.tmp`;
      const file = await open(temporary, 'w', 0o600);
      try {
        await file.writeFile(JSON.stringify(journal));
        await file.sync();
      } finally {
        await file.close();
      }
      at('journal-synced');
      await rename(temporary, fileOf(journal.id));
      at('journal-renamed');
      await sync();
      at('journal-lasting');
    },
    async remove(id) {
      try {
        await unlink(fileOf(id));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
        throw error;
      }
      at('journal-removed');
      await sync();
    },
    async list() {
      let names: string[];
      try {
        names = await readdir(folder);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { journals: [], unreadable: [] };
        throw error;
      }
      const journals: Journal[] = [];
      const unreadable: string[] = [];
      for (const name of names.toSorted()) {
        // A temporary was never renamed: its intent did not become durable, so nothing was done under it.
        if (!name.endsWith('.json')) continue;
        try {
          journals.push(Journal.parse(JSON.parse(await readFile(join(folder, name), 'utf8'))));
        } catch {
          unreadable.push(join(folder, name));
        }
      }
      return { journals, unreadable };
    },
  };
}
