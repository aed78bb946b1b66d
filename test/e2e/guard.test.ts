import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { root } from '../../scripts/lib/root.ts';
import { makeHome } from '../fixtures/kernel.ts';
import { isRunning } from './harness/processes.ts';
import { until } from './harness/until.ts';

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'a run ended by %s leaves no Kernel, no process and no folder',
  async (signal) => {
    const home = await makeHome();
    const run = spawn(process.execPath, [path.join(root, 'test/fixtures/guarded-run.ts'), home], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = (await once(createInterface({ input: run.stdout }), 'line')) as [string];
    const { kernel, child } = JSON.parse(line) as { kernel: number; child: number };
    expect(await isRunning(kernel)).toBe(true);
    expect(await isRunning(child)).toBe(true);
    run.kill(signal);
    for (const pid of [kernel, child]) {
      await until(`${pid} is gone`, 60_000, async () => ((await isRunning(pid)) ? undefined : true));
    }
    await until('the folder is gone', 60_000, () =>
      access(home).then(
        () => undefined,
        () => true as const,
      ),
    );
  },
);
