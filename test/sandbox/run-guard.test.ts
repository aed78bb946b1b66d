import { beforeAll, test } from 'vitest';
import { nothingIsLeftOf } from '../fixtures/killed-run.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';
import { leftOut } from '../fixtures/left-out.ts';

beforeAll(() => ensureSandboxImage());

test('a run ended by SIGKILL leaves no sandbox of its own service, no image, and no disk mounted', () =>
  nothingIsLeftOf('sandboxes', 'SIGKILL'));

test.runIf(process.platform === 'linux' && process.getuid?.() === 0)(
  `a run ended by SIGKILL leaves no user of this system that it made${leftOut.linux}${leftOut.root}`,
  () => nothingIsLeftOf('user', 'SIGKILL'),
);

test.each(['SIGTERM', 'SIGKILL'] as const)('a run ended by %s leaves no Kernel and nothing of its attempt', (signal) =>
  nothingIsLeftOf('attempt', signal),
);
