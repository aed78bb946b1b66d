import { beforeAll, test } from 'vitest';
import { nothingIsLeftOf } from '../fixtures/killed-run.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

beforeAll(() => ensureSandboxImage());

test('a run that is killed right after it has killed a Kernel leaves nothing of the attempt', () =>
  nothingIsLeftOf('attempt of a killed Kernel', 'SIGKILL'));

test('a run that is killed leaves nothing of a container engine of its own', () =>
  nothingIsLeftOf('engine', 'SIGKILL'));
