import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { pathToFileURL } from 'node:url';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';

test('a script that is told to end takes the program it runs with it', async () => {
  const module = pathToFileURL(path.resolve(import.meta.dirname, '../../../scripts/lib/run.ts')).href;
  // The program says who it is, and would stay for long.
  const program = 'console.error(process.pid); setInterval(() => undefined, 60000)';
  const script = `import { runShown } from ${JSON.stringify(module)}; await runShown(process.execPath, ['-e', ${JSON.stringify(program)}]);`;
  const run = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(run, 'exit');
  const [line] = (await once(createInterface({ input: run.stderr }), 'line')) as [string];
  run.kill('SIGTERM');
  expect(await ended).toEqual([null, 'SIGTERM']);
  expect(() => process.kill(Number(line), 0)).toThrow('ESRCH');
});
