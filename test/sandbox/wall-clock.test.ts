// The supervisor in a container whose wall clock jumps with every look: deadlines, silence and the record go by a clock
// that only goes on. (A jump under the Kernel: test/crash/other-deaths.)
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { engineThatChanges, type ChangingEngine } from '../fixtures/bad-peers/engine-that-changes-requests.ts';
import { collect } from '../fixtures/collected.ts';
import {
  bytesOf,
  command,
  file,
  pathOf,
  python,
  rootProgram,
  sandboxBench,
  textOf,
  type SandboxBench,
} from '../fixtures/sandbox.ts';

/** A year forth and back, from one look to the next; what two looks in a row said is left where it can be read. */
const jumping = `
import { writeFileSync } from 'node:fs';
const year = 365 * 86_400_000;
let looks = 0;
const real = Date.now;
const now = () => real() + ((looks += 1) % 2 === 0 ? -year : year);
globalThis.Date = class extends Date {
  constructor(...given) { super(...(given.length === 0 ? [now()] : given)); }
  static now() { return now(); }
};
writeFileSync('/exchange/clock', String(Math.abs(Date.now() - Date.now()) > year));`;

let engine: ChangingEngine;
let bench: SandboxBench;
beforeAll(async () => {
  engine = await engineThatChanges((body) => {
    const words = body['Cmd'] as string[];
    const clock = `--import=data:text/javascript,${encodeURIComponent(jumping)}`;
    return { ...body, Cmd: [...words.slice(0, -1), clock, ...words.slice(-1)] };
  });
  bench = await sandboxBench({ engineHost: engine.address });
});
afterAll(async () => {
  await bench.dispose();
  await engine.close();
});

describe('[51+] a wall clock that jumps', () => {
  it('ends no command early or late, and nothing that is recorded goes back in time', async () => {
    const path = pathOf('src/a.py');
    const sandbox = await bench.provision({
      files: [file('src/a.py', 'old\n')],
      writable: [path],
      commands: [command('true', ['true']), python('sleep', 'import time; time.sleep(60)', { timeoutS: 1 })],
    });
    expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
    const { end, durationMs } = await sandbox.run('sleep');
    expect(end).toEqual({ kind: 'timeout', afterMs: 1000 });
    expect(durationMs).toBeGreaterThanOrEqual(999);
    expect(durationMs).toBeLessThan(30_000);
    await sandbox.write(path, bytesOf('new\n'), sha256('old\n'));
    // Control: in this supervisor, the clock did jump.
    expect(
      await rootProgram(bench.engine, sandbox.engineId, `console.log(fs.readFileSync('/exchange/clock', 'utf8'))`),
    ).toBe('true\n');
    const collection = await collect(sandbox);
    expect(collection).toMatchObject({ state: 'complete', equalsAudit: true, violations: [], audit: { agree: true } });
    const times = textOf(collection.auditLog ?? new Uint8Array())
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { at: number }).at);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(Math.max(...times)).toBeLessThan(3_600_000);
    sandbox.detach();
  });
});
