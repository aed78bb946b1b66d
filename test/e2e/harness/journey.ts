import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect } from 'vitest';
import { findOrStartKernel } from '../../../src/client/find-kernel.ts';
import { KernelConnection } from '../../../src/client/kernel-connection.ts';
import type { SessionView } from '../../../src/protocol/views.ts';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import { endKernel, eventually, makeHome, testHello } from '../../fixtures/kernel.ts';
import { root } from '../../../scripts/lib/root.ts';
import type { WorkbenchWindow } from './window.ts';
import { Workbench, type WorkbenchOptions } from './workbench.ts';

export interface Journey {
  /** State folder of the Kernel that the windows start. */
  readonly home: string;
  /** A git repository with `examples/utc-timestamp` in it. */
  readonly repo: string;
  readonly workbench: Workbench;
  /** A file that a held turn of the script waits for; `release` makes it. */
  readonly gate: (name: string) => { readonly file: string; readonly release: () => Promise<void> };
  /** Replaces the rehearsal script beside the contract. */
  readonly script: (turns: readonly unknown[], correction?: readonly unknown[]) => Promise<void>;
  /** A client of the same Kernel that only looks; the Kernel must be running. */
  readonly observe: () => Promise<KernelConnection>;
  readonly dispose: () => Promise<void>;
}

export interface JourneyOptions extends WorkbenchOptions {
  /** Seconds a window may be away. */
  readonly graceS?: number;
}

/** A workbench, a repository and an empty state folder; nothing is started yet. Everything goes with `dispose`. */
export async function startJourney(options: JourneyOptions = {}): Promise<Journey> {
  const home = await makeHome();
  const example = await exampleRepo('utc-timestamp');
  const gates = await makeHome();
  const connections: KernelConnection[] = [];
  const workbench = await Workbench.start({
    ...options,
    env: { ESCROW_HOME: home, ...options.env },
    settings: {
      'escrow.reviewer.name': 'Ada Reviewer',
      ...(options.graceS === undefined ? {} : { 'escrow.window.graceSeconds': options.graceS }),
      ...options.settings,
    },
  });
  return {
    home,
    repo: example.root,
    workbench,
    gate: (name) => {
      const file = path.join(gates, name);
      return { file, release: () => writeFile(file, '') };
    },
    script: (turns, correction) =>
      writeFile(
        path.join(example.root, 'rehearsal.json'),
        JSON.stringify({
          name: 'test',
          description: 'A script of the tests.',
          turns,
          ...(correction && { correction }),
        }),
      ),
    observe: async () => {
      const kernel = await findOrStartKernel({
        home,
        hello: testHello(),
        kernelPath: path.join(root, 'dist', 'kernel.cjs'),
        nodePath: process.execPath,
        autostart: false,
      });
      const connection = new KernelConnection(kernel);
      connections.push(connection);
      return connection;
    },
    dispose: async () => {
      const test = expect.getState().currentTestName ?? 'test';
      await workbench.screenshots(`last/${test.replaceAll(/[^A-Za-z0-9]+/g, '-').slice(0, 80)}`);
      for (const connection of connections) connection.dispose();
      await workbench.dispose();
      await endKernel(home);
      await Promise.all([
        example.dispose(),
        ...[home, gates].map((folder) => rm(folder, { recursive: true, force: true })),
      ]);
    },
  };
}

/** From the open window to a running session on the script beside the contract. */
export async function startSession(window: WorkbenchWindow): Promise<void> {
  await window.openEscrow();
  await window.pane('Sessions').getByText('No session yet').waitFor();
  await window.command('Escrow: Start Session');
  await window.pick('beside the contract');
}

/** Waits until the only session is as wanted, and gives it. */
export async function theSession(
  kernel: KernelConnection,
  what: string,
  there: (session: SessionView) => boolean,
  ms = 60_000,
): Promise<SessionView> {
  let last: SessionView | undefined;
  // A Kernel that does not answer is a failure of its own, not an endless wait.
  const signal = AbortSignal.timeout(ms);
  await eventually(
    what,
    async () => {
      const { sessions } = await kernel.call('session/list', {}, { signal });
      const [first] = sessions;
      if (first === undefined) return false;
      last = await kernel.call('session/get', { session: first.id }, { signal });
      return there(last);
    },
    ms,
  );
  if (last === undefined) throw new Error('no session');
  return last;
}
