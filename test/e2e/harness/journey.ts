import { cp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, expect } from 'vitest';
import { findOrStartKernel } from '../../../src/client/find-kernel.ts';
import { KernelConnection } from '../../../src/client/kernel-connection.ts';
import type { SessionView } from '../../../src/protocol/views.ts';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import { prepareContract, turns } from '../../fixtures/journey.ts';
import { endKernel, makeHome, testHello } from '../../fixtures/kernel.ts';
import { root } from '../../../scripts/lib/root.ts';
import type { SmallDisk } from '../../fixtures/small-disk.ts';
import { guardFolder, guardHome } from '../../fixtures/run-guard.ts';
import { phase } from './phases.ts';
import type { WorkbenchWindow } from './window.ts';
import { Workbench, type OpenOptions, type WindowOptions, type WorkbenchOptions } from './workbench.ts';

/** What one test has to itself: a repository, a state folder with its Kernel, and its windows. */
export interface Journey {
  /** State folder of the Kernel that the windows start. */
  readonly home: string;
  /** A git repository with `examples/utc-timestamp` in it. */
  readonly repo: string;
  /** Shared by the tests of a file that ask for the same; its windows are this test's own. */
  readonly workbench: Workbench;
  /** A file that a held turn of the script waits for; `release` makes it. */
  readonly gate: (name: string) => { readonly file: string; readonly release: () => Promise<void> };
  /** Replaces the rehearsal script beside the contract. */
  readonly script: (turns: readonly unknown[], correction?: readonly unknown[]) => Promise<void>;
  /** A client of the same Kernel that only looks; the Kernel must be running. */
  readonly observe: () => Promise<KernelConnection>;
  /** As `observe`, where the Kernel may have to be started. */
  readonly start: () => Promise<KernelConnection>;
  /** Starts the Kernel and checks the baseline of the contract, for a test that is about what comes after. */
  readonly prepare: () => Promise<KernelConnection>;
}

export interface JourneyOptions extends WorkbenchOptions, Omit<WindowOptions, 'environment'> {
  /** A disk of its own for the state folder; ended with the journey. */
  readonly disk?: SmallDisk;
  /** A state folder that the test has made, and knows; it goes with the journey. */
  readonly home?: string;
  /** Seconds a window may be away. */
  readonly graceS?: number;
  /** `settings.json` of the Kernel's state folder. */
  readonly kernelSettings?: Readonly<Record<string, unknown>>;
}

const workbenches = new Map<string, Workbench>();
const disposals: ((failed: boolean) => Promise<void>)[] = [];

// Whoever starts a journey has it ended after its test, and the servers after the last test of the file.
afterEach(async ({ task }) => {
  for (const dispose of disposals.splice(0)) await dispose(task.result?.state === 'fail');
});
afterAll(async () => {
  await Promise.all([...workbenches.values()].map((workbench) => workbench.dispose()));
  workbenches.clear();
});

async function sharedWorkbench(options: WorkbenchOptions): Promise<Workbench> {
  const key = JSON.stringify([options.vsix, options.workspaceTrust, options.reconnectionGraceS]);
  const known = workbenches.get(key);
  if (known?.running === true) return known;
  await known?.dispose();
  const started = await Workbench.start(options);
  workbenches.set(key, started);
  return started;
}

/** A workbench, a repository and an empty state folder; no Kernel is started yet. Everything goes after the test. */
export async function startJourney(options: JourneyOptions = {}): Promise<Journey> {
  const [home, gates, example] = await Promise.all([
    options.disk?.folder ?? options.home ?? makeHome(),
    makeHome(),
    exampleRepo('utc-timestamp'),
  ]);
  const folders = [gates, example.root, ...(options.disk === undefined ? [home] : [])];
  const free = [guardHome(home), ...folders.map(guardFolder)];
  const connections: KernelConnection[] = [];
  const connect = async (autostart: boolean): Promise<KernelConnection> => {
    const kernel = await findOrStartKernel({
      home,
      hello: testHello(),
      kernelPath: path.join(root, 'dist', 'kernel.cjs'),
      nodePath: process.execPath,
      autostart,
    });
    const connection = new KernelConnection(kernel);
    connections.push(connection);
    return connection;
  };
  const workbench = await phase('start a server', () => sharedWorkbench(options));
  if (options.kernelSettings !== undefined) {
    await writeFile(path.join(home, 'settings.json'), JSON.stringify(options.kernelSettings));
  }
  await workbench.configure({
    environment: { ESCROW_HOME: home },
    settings: {
      'escrow.reviewer.name': 'Ada Reviewer',
      ...(options.graceS === undefined ? {} : { 'escrow.window.graceSeconds': options.graceS }),
      ...options.settings,
    },
    ...(options.machineSettings === undefined ? {} : { machineSettings: options.machineSettings }),
  });
  const testName = expect.getState().currentTestName ?? 'test';
  disposals.push(async (failed) => {
    if (failed) await keepTraces(workbench, home, testName);
    for (const connection of connections) connection.dispose();
    await phase('close windows', () => workbench.closeWindows());
    await phase('end the Kernel', () => endKernel(home));
    await Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true })));
    await options.disk?.dispose();
    for (const release of free) release();
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
    observe: () => connect(false),
    start: () => connect(true),
    prepare: () =>
      phase('check a baseline beforehand', async () => {
        const kernel = await connect(true);
        await prepareContract(kernel, example.contract);
        return kernel;
      }),
  };
}

/** What a failed test leaves for eyes: pictures of its windows, the logs of Kernel and server. */
async function keepTraces(workbench: Workbench, home: string, testName: string): Promise<void> {
  const name = `last/${testName.replaceAll(/[^A-Za-z0-9]+/g, '-').slice(0, 80)}`;
  await workbench.screenshots(name);
  const target = (kind: string): string => path.join(root, 'test-results', 'screenshots', `${name}-${kind}.log`);
  await Promise.allSettled([
    cp(path.join(home, 'kernel.log'), target('kernel')),
    cp(path.join(workbench.folder, 'server.log'), target('server')),
  ]);
}

/** From the open window to a running session on the script beside the contract. */
export async function startSession(window: WorkbenchWindow): Promise<void> {
  await phase('start a session', async () => {
    await window.openEscrow();
    await window.pane('Sessions').getByText('No session yet').waitFor();
    await window.command('Escrow: Start Session');
    await window.pick('beside the contract');
  });
}

/** A window with an attempt that is held in the middle, after its edit. */
export async function heldAttempt(options: JourneyOptions & OpenOptions = {}) {
  const journey = await startJourney(options);
  const gate = journey.gate('hold');
  await journey.script([turns.view, turns.edit, { ...turns.test, holdUntilFile: gate.file }, turns.finish]);
  const [window, kernel] = await Promise.all([journey.workbench.open(journey.repo, options), journey.prepare()]);
  await startSession(window);
  await theSession(kernel, 'the edit was made and the attempt is held', ({ attempts: [attempt] }) => {
    const edited = attempt?.activity.some(({ kind, title }) => kind === 'result' && title.includes('usage.py'));
    return edited === true && attempt !== undefined && attempt.requests >= 3;
  });
  return { ...journey, gate, window, kernel };
}

/** Waits until the only session is as wanted, and gives it. The Kernel tells when there is something new to look at. */
export async function theSession(
  kernel: KernelConnection,
  what: string,
  there: (session: SessionView) => boolean,
  ms = 120_000,
): Promise<SessionView> {
  const signal = AbortSignal.timeout(ms);
  let news = Promise.withResolvers<void>();
  const tell = (): void => news.resolve();
  const forget = [kernel.on('evidence/events', tell), kernel.on('kernel/changed', tell)];
  signal.addEventListener('abort', tell);
  void kernel.closed.then(tell);
  let last: SessionView | undefined;
  try {
    await kernel.call('evidence/subscribe', { lastSeenSeq: 0 }, { signal });
    for (;;) {
      news = Promise.withResolvers<void>();
      const { sessions } = await kernel.call('session/list', {}, { signal });
      const [first] = sessions;
      if (first !== undefined) {
        last = await kernel.call('session/get', { session: first.id }, { signal });
        if (there(last)) return last;
      }
      await news.promise;
      // A Kernel that answers at once answers also what was cancelled.
      signal.throwIfAborted();
    }
  } catch (error) {
    const attempt = last?.attempts.at(-1);
    throw new Error(`not in ${ms} ms: ${what}; the session is ${last?.state}, its attempt ${attempt?.phase}`, {
      cause: error,
    });
  } finally {
    for (const end of forget) end();
    signal.removeEventListener('abort', tell);
  }
}
