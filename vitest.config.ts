import path from 'node:path';
import { defineConfig } from 'vitest/config';

/** Node keeps here what it made of our sources: a process that a test starts then needs a third of the time to begin. */
const env = { NODE_COMPILE_CACHE: path.join(import.meta.dirname, '.cache/node') };

/**
 * Half of the time of these layers is waiting: for containers, processes that end, deadlines that must really pass. Two
 * files side by side use it; each has homes, containers, folders and ports of its own (docs/testing.md).
 */
const filesAtOnce = 2;

/**
 * Milliseconds after which a test hangs. It is not what a test takes: a machine that is three times as slow, or busy
 * with something else, must not fail one. Longer than what tests wait for by themselves (`patienceMs` of
 * test/fixtures/kernel.ts), whose failure says what did not come.
 */
const unitMs = 120_000;
const sandboxMs = 300_000;
const crashMs = 600_000;

/** One project per layer: see docs/testing.md. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          env,
          testTimeout: unitMs,
          hookTimeout: unitMs,
          // Half of the files wait for processes and disks; a worker that keeps its modules begins the next at once.
          maxWorkers: '100%',
          isolate: false,
        },
      },
      {
        test: {
          name: 'sandbox',
          include: ['test/sandbox/**/*.test.ts'],
          env,
          globalSetup: ['test/fixtures/sandbox-engine.ts'],
          testTimeout: sandboxMs,
          hookTimeout: sandboxMs,
          maxWorkers: filesAtOnce,
        },
      },
      {
        test: {
          name: 'crash',
          include: ['test/crash/**/*.test.ts'],
          env,
          testTimeout: crashMs,
          hookTimeout: crashMs,
          maxWorkers: filesAtOnce,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 600_000,
          hookTimeout: 180_000,
          maxWorkers: filesAtOnce,
        },
      },
    ],
  },
});
