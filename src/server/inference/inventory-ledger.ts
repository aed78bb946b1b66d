import type { Sha256, WallTime } from '../../protocol/primitives.ts';
import type { Store } from '../store/port.ts';
import { Inventory } from './inventory.ts';

/** The last inventory that was seen of each engine, over all sessions: what changed in between is disclosed by the next. */
export class InventoryLedger {
  readonly #store: Store;
  readonly #now: () => WallTime;

  constructor(store: Store, now: () => WallTime) {
    this.#store = store;
    this.#now = now;
  }

  /** The inventory at the end of the last attempt on this engine; null for the first, or where its bytes are lost. */
  async last(host: string): Promise<Inventory | null> {
    const row = this.#store.view('inventory', host);
    if (row === undefined) return null;
    const { sha256 } = row.json as unknown as { readonly sha256: Sha256 };
    try {
      const bytes = await this.#store.artefacts.get(sha256);
      return Inventory.parse(JSON.parse(Buffer.from(bytes).toString('utf8')));
    } catch {
      return null;
    }
  }

  /** Keeps an inventory as the last one. `owner` is charged for its bytes. Throws EscrowError StorageFull. */
  async keep(inventory: Inventory, owner: string): Promise<void> {
    const ref = await this.#store.artefacts.put(Buffer.from(JSON.stringify(inventory)), owner);
    const at = this.#now();
    const data = { host: inventory.host, sha256: ref.sha256, size: ref.size };
    // Attempts end one at a time, but two Kernels may follow each other: the version is read right before the write.
    const version = this.#store.load(`inventory:${inventory.host}`).at(-1)?.version ?? 0;
    this.#store.append(`inventory:${inventory.host}`, version, [{ type: 'inventory.seen', data }], () => [
      { kind: 'inventory', key: inventory.host, root: '', createdAt: at, updatedAt: at, json: data },
    ]);
  }
}
