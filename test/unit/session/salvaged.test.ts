import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { sha256 } from '../../../src/protocol/hash.ts';
import { SalvageBook, type SalvageRecord } from '../../../src/server/session/salvaged.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { machineStream, type Store } from '../../../src/server/store/port.ts';

let home: string;
let store: Store;
let clock: number;
const open = (): Store => openStore({ home, now: () => clock });
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-salvaged-'));
  clock = 1000;
  store = open();
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

const file = (name: string) => ({ path: name, mode: 0o644, sha256: sha256(name), size: name.length });
const record = (parts: Partial<SalvageRecord> = {}): SalvageRecord => ({
  name: 'escrow-attempt-att_1',
  engineId: 'e1',
  owner: 'att_1',
  session: null,
  purpose: 'attempt',
  fault: null,
  tries: 1,
  files: [file('a.py')],
  lost: [],
  auditLog: null,
  ...parts,
});

it('a container is found by its id, listed newest first in pages, and none is lost between pages of one moment', () => {
  const book = new SalvageBook(store);
  for (let n = 0; n < 5; n += 1) {
    if (n === 4) clock += 1;
    book.record(record({ engineId: `e${n}` }));
  }
  const first = book.list(2);
  const last = first.at(-1)!;
  const rest = book.list(10, { at: last.at, engineId: last.engineId });
  expect(first.map(({ engineId }) => engineId)).toEqual(['e4', 'e0']);
  expect(rest.map(({ engineId }) => engineId)).toEqual(['e1', 'e2', 'e3']);
  expect([book.has('e3'), book.has('e5')]).toEqual([true, false]);
});

it('its files are given in pages, what found no room after what is kept', () => {
  const book = new SalvageBook(store);
  book.record(record({ files: [file('a.py'), file('b.py')], lost: ['big.bin'], fault: 'no room' }));
  const { container, files, more } = book.get('e1', 0, 2);
  expect(container).toMatchObject({ files: 2, bytes: 8, lost: 1, paths: ['a.py', 'b.py'], fault: 'no room' });
  expect([files.map((each) => each.path), more]).toEqual([['a.py', 'b.py'], true]);
  expect(book.get('e1', 2, 2)).toMatchObject({
    files: [{ path: 'big.bin', mode: null, artefact: null }],
    more: false,
  });
  expect(() => book.get('e2', 0, 1)).toThrow(expect.objectContaining({ code: 'NotFound' }));
});

it('is answered from its rows alone, however long the stream of the machine is', () => {
  const book = new SalvageBook(store);
  book.record(record());
  const swept = { type: 'container.swept', data: { name: 'x' } };
  store.append(
    machineStream,
    1,
    Array.from({ length: 1200 }, () => swept),
  );
  book.record(record({ engineId: 'e2' }));
  let read = 0;
  const streamSince = store.streamSince.bind(store);
  store.load = () => expect.fail('the whole stream was loaded');
  store.streamSince = (...args) => {
    const events = streamSince(...args);
    read += events.length;
    return events;
  };
  expect([book.has('e1'), book.list(20).length, book.get('e2', 0, 10).files.length]).toEqual([true, 2, 1]);
  expect(read).toBe(1);
});

it('records of earlier versions, in which there were no rows, are found after an update, wherever they stand', () => {
  const old = { name: 'escrow-attempt-att_9', engineId: 'e9', files: [file('old.py')] };
  const swept = { type: 'container.swept', data: { name: 'x' } };
  store.append(
    machineStream,
    0,
    Array.from({ length: 700 }, () => swept),
  );
  store.append(machineStream, 700, [{ type: 'container.salvaged', data: old }]);
  const book = new SalvageBook(store);
  expect(book.has('e9')).toBe(true);
  expect(book.list(5)).toMatchObject([{ engineId: 'e9', at: 1000, purpose: null, tries: 1, paths: ['old.py'] }]);
  // And what is recorded from then on too, by whichever Kernel reads it.
  book.record(record());
  store.close();
  store = open();
  expect(new SalvageBook(store).list(5).map(({ engineId }) => engineId)).toEqual(['e1', 'e9']);
});
