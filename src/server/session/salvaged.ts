import * as z from 'zod';
import { EscrowError } from '../../protocol/errors.ts';
import { ArtefactRef, type WallTime } from '../../protocol/primitives.ts';
import { SalvagedContainer, type SalvagedFile } from '../../protocol/salvage.ts';
import { machineStream, type Json, type Store, type StoredEvent, type ViewRow } from '../store/port.ts';

const recordedAs = 'container.salvaged';

/** Version of the rows by which salvaged containers are found and listed; raised whenever what they hold changes. */
const projection = 1;
/** Paths that a row names. */
const namedPaths = 10;
/** Events that are read at once when rows are made anew. */
const page = 500;

/** Data of the event. Members with a default are missing in records of earlier versions. */
const Recorded = z.object({
  name: z.string(),
  engineId: z.string(),
  owner: z.string().nullable().default(null),
  session: z.string().nullable().default(null),
  purpose: z.string().nullable().default(null),
  fault: z.string().nullable().default(null),
  tries: z.number().default(1),
  files: z.array(ArtefactRef.extend({ path: z.string(), mode: z.number() })),
  /** Files that found no room. */
  lost: z.array(z.string()).default([]),
  auditLog: ArtefactRef.nullable().default(null),
});
export type SalvageRecord = z.infer<typeof Recorded>;

const Row = SalvagedContainer.extend({ seq: z.number() });

function recordIn({ type, data }: StoredEvent): SalvageRecord | undefined {
  return type === recordedAs ? Recorded.safeParse(data).data : undefined;
}

function rowsOf(event: StoredEvent): readonly ViewRow[] {
  const record = recordIn(event);
  if (record === undefined) return [];
  const { files, lost, auditLog, ...what } = record;
  const { at, seq } = event;
  const json = {
    ...what,
    at,
    seq,
    files: files.length,
    bytes: files.reduce((sum, { size }) => sum + size, 0),
    paths: files.slice(0, namedPaths).map(({ path }) => path),
    lost: lost.length,
    auditLog: auditLog === null ? null : { ...auditLog },
  } satisfies z.input<typeof Row>;
  return [{ kind: 'salvaged', key: record.engineId, root: '', createdAt: at, updatedAt: at, json }];
}

/**
 * What was read out of containers that no record knew: events of the machine's stream, found by the container. An engine
 * gives an id once, and what is on record is not read out again.
 */
export class SalvageBook {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
    store.reproject('salvaged', projection, () => this.#everyRow());
  }

  /** Throws as `Store.append` does. */
  record(what: SalvageRecord): void {
    const data: Json = {
      ...what,
      files: what.files.map((file) => ({ ...file })),
      lost: [...what.lost],
      auditLog: what.auditLog === null ? null : { ...what.auditLog },
    };
    this.#store.append(machineStream, this.#store.version(machineStream), [{ type: recordedAs, data }], (stored) =>
      stored.flatMap(rowsOf),
    );
  }

  has(engineId: string): boolean {
    return this.#store.view('salvaged', engineId) !== undefined;
  }

  /** Newest first, at most `limit`; `before` is the last one seen. */
  list(limit: number, before?: { readonly at: WallTime; readonly engineId: string }): readonly SalvagedContainer[] {
    const from = before === undefined ? {} : { before: before.at, beforeKey: before.engineId };
    return this.#store.views('salvaged', { ...from, limit }).map(({ json }) => containerOf(Row.parse(json)));
  }

  /**
   * One of them, and what it was made to hold, from the file after the first `after` on: those that are kept, then those
   * that found no room. Throws EscrowError NotFound.
   */
  get(
    engineId: string,
    after: number,
    limit: number,
  ): { readonly container: SalvagedContainer; readonly files: readonly SalvagedFile[]; readonly more: boolean } {
    const view = this.#store.view('salvaged', engineId);
    const row = view === undefined ? undefined : Row.parse(view.json);
    const [event] = row === undefined ? [] : this.#store.streamSince(machineStream, row.seq - 1, 1);
    const record = event === undefined ? undefined : recordIn(event);
    if (row === undefined || record === undefined) {
      throw new EscrowError(
        'NotFound',
        'Nothing was read out of a container with this id.',
        'List those that were read out, and take an id from there.',
      );
    }
    const all: readonly SalvagedFile[] = [
      ...record.files.map(({ path, mode, sha256, size }) => ({ path, mode, artefact: { sha256, size } })),
      ...record.lost.map((path) => ({ path, mode: null, artefact: null })),
    ];
    return { container: containerOf(row), files: all.slice(after, after + limit), more: all.length > after + limit };
  }

  *#everyRow(): Generator<ViewRow> {
    let after = 0;
    for (;;) {
      const events = this.#store.streamSince(machineStream, after, page);
      for (const event of events) yield* rowsOf(event);
      const last = events.at(-1);
      if (last === undefined) return;
      after = last.seq;
    }
  }
}

function containerOf({ seq: _, ...container }: z.infer<typeof Row>): SalvagedContainer {
  return container;
}
