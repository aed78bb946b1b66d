import { test } from 'vitest';
import { nothingIsLeftOf } from '../fixtures/killed-run.ts';

test.each(['SIGTERM', 'SIGKILL'] as const)('a run ended by %s leaves no Kernel, no process and no folder', (signal) =>
  nothingIsLeftOf('windows', signal),
);
