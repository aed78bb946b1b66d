// The composed Kernel in this process, over the real engine, on a clock that the test moves: what nobody owns is found
// while the Kernel runs, without a restart and without anybody's asking.
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { sha256 } from '../../src/protocol/hash.ts';
import { createKernel } from '../../src/server/kernel.ts';
import { defaultSettings } from '../../src/server/settings.ts';
import { openStore } from '../../src/server/store/open-store.ts';
import { machineStream } from '../../src/server/store/port.ts';
import { makeHome } from '../fixtures/kernel.ts';
import { bytesOf, executorPath, file, pathOf, sandboxBench } from '../fixtures/sandbox.ts';

const fiveMinutes = 300_000;

const cleanUp: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

it('a container that appears while the Kernel runs is found by the sweep of every five minutes', async () => {
  const home = await makeHome();
  cleanUp.push(() => rm(home, { recursive: true, force: true }));
  const store = openStore({ home, now: Date.now });
  cleanUp.push(() => store.close());
  // Only what repeats: deadlines towards the engine go on in real time.
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  cleanUp.push(() => {
    vi.useRealTimers();
  });
  const kernel = createKernel({
    store,
    home,
    instanceId: 'periodic-sweep',
    now: Date.now,
    monotonic: () => performance.now(),
    log: () => undefined,
    distDir: path.dirname(executorPath),
    settings: defaultSettings,
    at: () => undefined,
    clients: () => [],
  });
  cleanUp.push(() => kernel.drain('stop'));

  // The same home's labels: as a create that the engine carries out late. `reconcile` was not called, so the timer is
  // the only one that can look.
  const bench = await sandboxBench({ homeId: store.homeId });
  cleanUp.push(() => bench.dispose());
  const writable = pathOf('src/a.py');
  const stray = await bench.provision({ files: [file('src/a.py', 'old\n')], writable: [writable] });
  await stray.write(writable, bytesOf('new\n'), sha256('old\n'));
  stray.detach();

  const stopped = Promise.withResolvers<void>();
  store.onAppended((events) => {
    if (events.some(({ type }) => type === 'container.swept')) stopped.resolve();
  });
  vi.advanceTimersByTime(fiveMinutes);
  await stopped.promise;
  const { name, engineId } = stray;
  expect(store.load(machineStream)).toMatchObject([
    {
      type: 'container.salvaged',
      data: { name, engineId, files: [{ path: 'src/a.py', sha256: sha256('new\n'), size: 4 }] },
    },
    { type: 'container.swept', data: { name, engineId, stop: 'stopped', absence: 'absent' } },
  ]);
  expect(await bench.engine.inspect(engineId)).toBeUndefined();
});
