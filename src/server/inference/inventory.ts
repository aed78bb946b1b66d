import * as z from 'zod';
import type { InventoryChange } from '../../protocol/attempt.ts';

/** What an engine has and holds, at one moment. Kept as an artefact, so its shape is part of the stored format. */
export const Inventory = z.strictObject({
  host: z.string(),
  version: z.string().nullable(),
  models: z.array(z.strictObject({ name: z.string(), digest: z.string().nullable() })),
  loaded: z.array(z.strictObject({ name: z.string(), digest: z.string().nullable(), context: z.number().nullable() })),
  /** Folder of the model files and what lies in it, where this host may read it. */
  store: z
    .strictObject({
      path: z.string(),
      files: z.array(z.strictObject({ name: z.string(), size: z.number() })).nullable(),
    })
    .nullable(),
});
export type Inventory = z.infer<typeof Inventory>;

/** Differences named one by one; more than this of one kind is a list nobody reads. */
const mostChanges = 200;

/** What differs between two looks at the same engine, in a fixed order. Pure. */
export function inventoryChanges(before: Inventory, after: Inventory): InventoryChange[] {
  const changes: InventoryChange[] = [];
  if (before.version !== after.version)
    changes.push({ what: 'engine_version', name: after.host, before: before.version, after: after.version });
  const compare = (
    a: ReadonlyMap<string, string>,
    b: ReadonlyMap<string, string>,
    added: InventoryChange['what'],
    removed: InventoryChange['what'],
    changed: InventoryChange['what'],
  ): void => {
    for (const [name, value] of b) {
      const former = a.get(name);
      if (former === undefined) changes.push({ what: added, name, before: null, after: value });
      else if (former !== value) changes.push({ what: changed, name, before: former, after: value });
    }
    for (const [name, value] of a) if (!b.has(name)) changes.push({ what: removed, name, before: value, after: null });
  };
  const models = (i: Inventory): Map<string, string> => new Map(i.models.map((m) => [m.name, m.digest ?? 'unknown']));
  const loaded = (i: Inventory): Map<string, string> =>
    new Map(i.loaded.map((m) => [m.name, `${m.digest ?? 'unknown'} context ${m.context ?? 'unknown'}`]));
  compare(models(before), models(after), 'model_added', 'model_removed', 'model_changed');
  compare(loaded(before), loaded(after), 'loaded', 'unloaded', 'loaded');
  // Only two readable lists of the same folder can be compared.
  if (before.store?.files && after.store?.files && before.store.path === after.store.path) {
    const files = (list: readonly { readonly name: string; readonly size: number }[]): Map<string, string> =>
      new Map(list.map((f) => [f.name, `${f.size} bytes`]));
    compare(files(before.store.files), files(after.store.files), 'file_added', 'file_removed', 'file_changed');
  }
  return changes.slice(0, mostChanges);
}
