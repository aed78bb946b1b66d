// Containers that nobody owns, with the real store and records, and an engine in memory that does as it is told.
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { ObservedContainer, Salvage, SandboxService, StopObservation } from '../../../src/server/sandbox/port.ts';
import { RunLedger } from '../../../src/server/sandbox/run-ledger.ts';
import { Leftovers } from '../../../src/server/session/leftovers.ts';
import { SalvageBook } from '../../../src/server/session/salvaged.ts';
import { Sessions } from '../../../src/server/session/sessions.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { machineStream, type Store } from '../../../src/server/store/port.ts';
import { file, type TestFile } from '../../fixtures/sandbox.ts';

const stray: ObservedContainer = {
  name: 'escrow-attempt-att_1',
  engineId: 'engine-1',
  state: 'running',
  labels: {},
  purpose: 'attempt',
  owner: 'att_1',
  session: null,
  epoch: 1,
  ours: true,
};
const oom = { inside: null, host: null, events: null, eventsWhole: false, flag: false, ended: false };
const stopped: StopObservation = { kind: 'stopped', exitCode: 137, oomKilled: false, finishedAt: null, oom };
/** What the reader brings: files with their bytes. */
type Held = Omit<Salvage, 'files'> & { readonly files: readonly TestFile[] };
const whole: Held = { files: [file('a.py', 'new\n')], auditLog: Buffer.from('log'), fault: null };
const partly: Held = { ...whole, auditLog: null, fault: 'the reader ended early' };

let home: string;
let store: Store;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'escrow-leftovers-'));
});
afterEach(() => {
  store.close();
  rmSync(home, { recursive: true, force: true });
});

/** What the engine has and says; `did` is what it was asked to do, with the number of records at that moment. */
interface Engine {
  containers: ObservedContainer[];
  salvage: Held;
  stop: StopObservation;
  readonly did: string[];
}

function bench(parts: Partial<Engine> = {}, allowance?: number) {
  store = openStore({ home, now: () => 1000, ...(allowance === undefined ? {} : { artefactAllowance: allowance }) });
  const engine: Engine = { containers: [stray], salvage: whole, stop: stopped, did: [], ...parts };
  const records = () => store.load(machineStream).map(({ type, data }) => ({ type, data }));
  const note = (what: string): void => void engine.did.push(`${what} ${records().length}`);
  const sandbox: Partial<SandboxService> = {
    list: () => Promise.resolve([...engine.containers]),
    salvage: (_, into) => {
      note('read');
      const files = engine.salvage.files.map(({ path: name, mode, bytes }) => {
        const sink = into.file(bytes.length);
        sink.add(bytes);
        return { path: name, mode, ...sink.whole() };
      });
      return Promise.resolve({ ...engine.salvage, files });
    },
    kill: () => {
      note('kill');
      return Promise.resolve(engine.stop);
    },
    remove: () => {
      note('remove');
      engine.containers = [];
      return Promise.resolve({ kind: 'absent' });
    },
  };
  const clock = { now: 0 };
  const leftovers = new Leftovers({
    sandbox: sandbox as SandboxService,
    sessions: new Sessions(store, () => 0),
    runs: new RunLedger(store, () => 1000),
    store,
    salvaged: new SalvageBook(store),
    monotonic: () => clock.now,
    log: () => undefined,
  });
  return { engine, leftovers, records, clock };
}

describe('a container that no record knows', () => {
  it('is on record with its bytes before it is stopped and removed', async () => {
    const { engine, leftovers, records } = bench();
    await leftovers.sweep();
    expect(engine.did).toEqual(['read 0', 'kill 1', 'remove 1']);
    expect(records()).toMatchObject([
      { type: 'container.salvaged', data: { engineId: 'engine-1', fault: null, files: [{ path: 'a.py', size: 4 }] } },
      { type: 'container.swept', data: { engineId: 'engine-1', stop: 'stopped', absence: 'absent' } },
    ]);
    expect(store.artefacts.has(sha256('new\n'))).toBe(true);
  });

  it('that can’t be read whole is tried three times, a minute apart; then what was read is kept as incomplete', async () => {
    const { engine, leftovers, records, clock } = bench({ salvage: partly });
    await leftovers.sweep();
    await leftovers.sweep();
    expect(engine.did).toEqual(['read 0']);
    clock.now += 60_000;
    await leftovers.sweep();
    expect([engine.did.length, records()]).toEqual([2, []]);
    clock.now += 60_000;
    await leftovers.sweep();
    expect(engine.did.slice(2)).toEqual(['read 0', 'kill 1', 'remove 1']);
    expect(records()).toMatchObject([
      {
        type: 'container.salvaged',
        data: { fault: 'the reader ended early', tries: 3, files: [{ path: 'a.py' }], auditLog: null },
      },
      { type: 'container.swept' },
    ]);
  });

  it('that could be read after all is complete', async () => {
    const { engine, leftovers, records, clock } = bench({ salvage: partly });
    await leftovers.sweep();
    engine.salvage = whole;
    clock.now += 60_000;
    await leftovers.sweep();
    expect(records()[0]).toMatchObject({ type: 'container.salvaged', data: { fault: null, tries: 2 } });
  });

  it('is not read again where its stop could not be seen: the record knows', async () => {
    const { engine, leftovers, records } = bench({ stop: { kind: 'unconfirmed', reason: 'still running' } });
    await leftovers.sweep();
    engine.stop = stopped;
    await leftovers.sweep();
    expect(engine.did).toEqual(['read 0', 'kill 1', 'kill 2', 'remove 2']);
    expect(records().map(({ type }) => type)).toEqual(['container.salvaged', 'container.swept', 'container.swept']);
    expect(records()[1]).toMatchObject({ data: { stop: 'unconfirmed', absence: 'not_tried' } });
  });

  it('whose files find no room is incomplete by their names', async () => {
    const files = [file('big.py', 'x'.repeat(4000)), file('small.py', 'y\n')];
    const { leftovers, records, clock } = bench({ salvage: { ...whole, files } }, 1000);
    for (let n = 0; n < 3; n += 1) {
      await leftovers.sweep();
      clock.now += 60_000;
    }
    expect(records()[0]).toMatchObject({
      type: 'container.salvaged',
      data: { fault: 'no room', lost: ['big.py'], files: [{ path: 'small.py' }] },
    });
  });

  it('whose log finds no room is incomplete, and names no file for it', async () => {
    const salvage = { ...whole, auditLog: Buffer.from('x'.repeat(4000)) };
    const { leftovers, records, clock } = bench({ salvage }, 1000);
    for (let n = 0; n < 3; n += 1) {
      await leftovers.sweep();
      clock.now += 60_000;
    }
    expect(records()[0]).toMatchObject({
      type: 'container.salvaged',
      data: { fault: 'no room', lost: [], files: [{ path: 'a.py' }], auditLog: null },
    });
  });

  it('is left as it is, whatever the tries, while nothing can be recorded: nobody else has its bytes', async () => {
    const { engine, leftovers, records, clock } = bench();
    const put = store.artefacts.put.bind(store.artefacts);
    store.artefacts.put = () => Promise.reject(new EscrowError('StorageUnwritable', 'read-only', 'make room'));
    for (let n = 0; n < 5; n += 1) {
      await leftovers.sweep();
      clock.now += 60_000;
    }
    expect(engine.did).toEqual(Array(5).fill('read 0'));
    store.artefacts.put = put;
    await leftovers.sweep();
    expect(records().map(({ type }) => type)).toEqual(['container.salvaged', 'container.swept']);
  });

  it.each(['created', 'exited', 'dead'] as const)(
    'and is %s has nothing to give: it is removed, on record',
    async (state) => {
      const { engine, leftovers, records } = bench({ containers: [{ ...stray, state }] });
      await leftovers.sweep();
      expect(engine.did).toEqual(['kill 0', 'remove 0']);
      expect(records()).toMatchObject([{ type: 'container.swept', data: { found: state } }]);
    },
  );

  const others: Record<string, Partial<ObservedContainer>> = {
    'another home’s': { ours: false },
    'one in which an image is prepared': { purpose: null, state: 'created' },
    'one of which the engine says nothing clear': { state: 'other' },
  };
  it.each(Object.entries(others))('is not touched where it is %s (control)', async (_, parts) => {
    const { engine, leftovers, records } = bench({ containers: [{ ...stray, ...parts }] });
    await leftovers.sweep();
    expect([engine.did, records()]).toEqual([[], []]);
  });
});
