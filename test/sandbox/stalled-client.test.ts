// Nobody reads what the supervisor says for thirty seconds: longer than both sides wait for each other. The short form of
// this is in channel.test.ts; time itself is what is tested here, so it belongs to the full run.
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { collect } from '../fixtures/collected.ts';
import { file, pathOf, python, sandboxBench, textOf, type SandboxBench } from '../fixtures/sandbox.ts';
import { supervisorClient } from '../fixtures/supervisor-client.ts';
import { fullRun, leftOut } from '../fixtures/left-out.ts';

const path = pathOf('src/a.py');
const stalledMs = 30_000;

describe.runIf(fullRun)(`a client that is attached and does not read for 30 s${leftOut.fullRun}`, () => {
  let bench: SandboxBench;
  beforeAll(async () => {
    bench = await sandboxBench();
  });
  afterAll(() => bench.dispose());

  it('[29+] stops no deadline: what runs is ended on time, the Kernel gives up in time, the bytes are all there', async () => {
    const spec = bench.spec({
      files: [file('src/a.py', 'old\n')],
      writable: [path],
      commands: [python('sleep-1', 'import time; time.sleep(60)', { timeoutS: 1 })],
    });
    const sandbox = await bench.service.provision(spec, async () => {});
    const big = Buffer.alloc(8 * 1024 * 1024, 'x');
    await sandbox.write(path, big, sha256('old\n'));
    const client = await supervisorClient(bench.engine, sandbox.engineId);
    client.stream.pause();
    const stalled = delay(stalledMs);
    const running = sandbox.run('sleep-1');
    running.catch(() => {});
    const read = sandbox.read(path, 'agent');
    read.catch(() => {});
    // On Docker one client that does not read blocks the others: the Kernel hears nothing and says so.
    expect(await sandbox.ended).toMatchObject({ kind: 'silent' });
    await stalled;
    client.stream.resume();
    client.leave();
    const again = await bench.service.reattach(spec, sandbox.engineId, 2, sandbox.witness);
    const collection = await collect(again!);
    expect(collection?.files.map(({ bytes }) => bytes.length)).toEqual([big.length]);
    expect(collection).toMatchObject({ equalsAudit: true, violations: [] });
    const ended = textOf(collection?.auditLog ?? new Uint8Array())
      .split('\n')
      .find((line) => line.includes('"end":{'));
    expect(ended).toContain('"end":{"afterMs":1000,"kind":"timeout"}');
    // Long before anybody read again.
    expect(Number(/"durationMs":(\d+)/.exec(ended ?? '')?.[1])).toBeLessThan(stalledMs / 2);
    again?.detach();
  });
});
