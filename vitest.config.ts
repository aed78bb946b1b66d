import path from 'node:path';
import { defineConfig } from 'vitest/config';

/** Node keeps here what it made of our sources: a process that a test starts then needs a third of the time to begin. */
const env = { NODE_COMPILE_CACHE: path.join(import.meta.dirname, '.cache/node') };

/** One project per layer: see docs/testing.md. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          env,
          testTimeout: 20_000,
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
          testTimeout: 120_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'crash',
          include: ['test/crash/**/*.test.ts'],
          env,
          testTimeout: 300_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 600_000,
          hookTimeout: 180_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
